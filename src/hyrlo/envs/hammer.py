"""`hammer-binary`: the Adroit hand drives a nail into a board, with a binary reward. Needs `hyrlo[robotics]`.

The dynamics are exactly those of `AdroitHandHammer-v1` of Gymnasium-Robotics; reward and horizon are the paper's. Only the
height of the board is random; it is drawn from the episode's seed as Gymnasium does. Episodes never end early, so that
states have no ended flag: they are the environment's 46 numbers.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import gymnasium
import numpy as np
from gymnasium.utils.seeding import np_random
from jaxtyping import Bool, Float

from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.ranges import Count, CountOrZero, Options
from hyrlo.envs.gym.answers import describe
from hyrlo.envs.gym.model import GymTraceModel
from hyrlo.envs.gym.sources import load_libraries
from hyrlo.envs.gym.vector import News, Vector
from hyrlo.envs.gym.wrappers import Start
from hyrlo.envs.world import SIMULATED, World

if TYPE_CHECKING:
    import mujoco

NAME = "hammer-binary"
ID = "AdroitHandHammer-v1"
HORIZON = 50
REWARDS = {"paper": (-1.0, 1.0), "shifted": (-1.0, 0.0), "scaled": (-93.0, 107.0)}
"""Reward of a step after which the nail is not in, and is in."""
SCENE = "envs/assets/adroit_hand/adroit_hammer.xml"
FRAME_SKIP = 5
HEIGHTS = (0.1, 0.25)
NAIL_IN = 0.01
"""The distance of the nail to its goal, in metres, below which it is in."""
OBSERVATION_SIZE, ACTION_SIZE = 46, 26
READ = ("qpos", "qvel", "xpos", "site_xpos", "xmat", "sensordata")
"""The arrays of MuJoCo from which observations are computed."""
CAMERA = {"distance": 1.1, "azimuth": 45.0, "elevation": -35.0, "lookat": np.array([0.0, -0.15, 0.15])}


@dataclass(frozen=True)
class HammerConfig(Options):
    """Reward of `hammer-binary`, and how it is simulated."""

    reward: Literal["paper", "shifted", "scaled"] = "paper"
    """Reward of a step: `paper` is 1 if the nail is in, else −1; `shifted`, as in RLPD's data, is 0 or −1; `scaled` is 107
    or −93, the same in other units (100 r + 7)."""
    num_envs: Count = 64
    """Simulations at a time. Results depend on it: the episodes of a batch draw their actions together."""
    threads: CountOrZero = 0
    """Threads that step them; 0 takes one per core. Results do not depend on it."""


class HammerWorld(World):
    """`hammer-binary`. Its trace models share one batch of simulations; there is no reset model."""

    config: HammerConfig
    default_traits = dataclasses.replace(SIMULATED, horizon_from_data=False)

    def __init__(self, horizon: int | None = None, config: HammerConfig | None = None):
        self.name, self.config = NAME, config or HammerConfig()
        self.horizon = HORIZON if horizon is None else horizon
        if self.horizon < 1:
            raise HyrloError(f"{NAME}: horizon is {horizon}; give at least 1")
        self.env: Any = load_model()
        self.says_success = True
        self._vector: HammerVector | None = None

    @classmethod
    def create(cls, name: str, horizon: int | None, config: HammerConfig) -> Self:
        return cls(horizon, config)

    @property
    def spec(self) -> Spec:
        return Spec(self.horizon, OBSERVATION_SIZE, 0, ACTION_SIZE)

    def trace_model(self) -> GymTraceModel:
        return GymTraceModel(self)

    def render_env(self) -> gymnasium.Env:
        return single_hammer(self, render_mode="rgb_array")

    def vector(self) -> HammerVector:
        if self._vector is None:
            self._vector = HammerVector(self.env, self.config)
        return self._vector


class HammerVector(Vector):
    """`count` hammers that are reset and stepped together by threads of this process, with MuJoCo's `Batch`.

    Simulations keep the solver's warm start between steps. They are bit for bit those of plain MuJoCo, for any number of
    threads. (`mujoco.rollout` starts every call without it and agrees to about 1e-6.)
    """

    def __init__(self, model: mujoco.MjModel, config: HammerConfig):
        from mujoco.batch import Batch, SimulationError

        self.name, self.count = NAME, config.num_envs
        self.rewards = np.asarray(REWARDS[config.reward])
        self.failure: Any = SimulationError
        threads = min(config.threads or available_cores(), self.count)
        try:
            self.batch: Any = Batch(model, self.count, threads)
        except (TypeError, ValueError, MemoryError) as error:
            raise HyrloError(f"{NAME}: num_envs is {self.count}, too many ({describe(error)}); give fewer") from error
        self.read = {name: self.batch.bind(name) for name in READ}
        # As in Gymnasium, what MuJoCo derives from the height when it compiles a model stays that of the file.
        self.heights = self.batch.expand("body_pos")[:, model.body("nail_board").id, 2]
        self.hammer = model.body("Object").id
        self.palm, self.nail, self.goal = (model.site(name).id for name in ("S_grasp", "S_target", "nail_goal"))
        self.touch = int(model.sensor("S_nail").adr[0])
        low, high = model.actuator_ctrlrange.T
        self.middle, self.half = (low + high) / 2, (high - low) / 2
        self.playing = 0

    def reset(self, seeds: Sequence[int], start: Start) -> tuple[Float[np.ndarray, "n obs"], News]:
        self.seeds, self.playing = seeds, start.rows
        self.heights[: self.playing] = [np_random(seed)[0].uniform(*HEIGHTS) for seed in seeds[: self.playing]]
        self.batch.reset(np.arange(self.playing))
        return self._observations(), News(np.arange(self.count) >= self.playing, None)

    def step(self, actions: np.ndarray, h: int) -> tuple[Float[np.ndarray, "n obs"], Float[np.ndarray, " n"], News]:
        actions = self._checked(actions[: self.playing], "action", h)
        self.batch.ctrl[: self.playing] = self.middle + np.clip(actions, -1.0, 1.0) * self.half
        try:
            self.batch.step(np.arange(self.playing), FRAME_SKIP)
        except self.failure as error:
            seed = self.seeds[error.ids[0]]
            raise HyrloError(
                f"{NAME}: {error} at step {h} of the episode with seed {seed}; use another seed"
            ) from error
        observations, success = self._observations(), self._nail_is_in()
        rewards = self.rewards[success.astype(int)]
        return self._checked(observations, "observation", h), rewards, News(np.zeros(self.count, bool), success)

    def _observations(self) -> Float[np.ndarray, "n obs"]:
        """Joint positions, velocity of the hammer, positions of palm and hammer, its rotation, nail, and touch sensor."""
        read = {name: values[: self.playing] for name, values in self.read.items()}
        parts = (
            read["qpos"][:, :-6],
            np.clip(read["qvel"][:, -6:], -1.0, 1.0),
            read["site_xpos"][:, self.palm],
            read["xpos"][:, self.hammer],
            _angles(read["xmat"][:, self.hammer].reshape(-1, 3, 3)),
            read["site_xpos"][:, self.nail],
            np.clip(read["sensordata"][:, [self.touch]], -1.0, 1.0),
        )
        observations = np.zeros((self.count, OBSERVATION_SIZE), np.float32)
        observations[: self.playing] = np.concatenate(parts, axis=1)
        return observations

    def _nail_is_in(self) -> Bool[np.ndarray, " n"]:
        sites = self.read["site_xpos"][: self.playing]
        success = np.zeros(self.count, bool)
        success[: self.playing] = np.linalg.norm(sites[:, self.nail] - sites[:, self.goal], axis=1) < NAIL_IN
        return success

    @property
    def closed(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to do: the threads end with the batch."""


class BinaryReward(gymnasium.Wrapper):
    """One hammer of Gymnasium-Robotics with the reward of `hammer-binary`."""

    def __init__(self, env: gymnasium.Env, config: HammerConfig):
        super().__init__(env)
        self.rewards = REWARDS[config.reward]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, self.rewards[bool(info["success"])], terminated, truncated, info


def single_hammer(world: HammerWorld, **arguments: Any) -> gymnasium.Env:
    """A hammer as an ordinary Gymnasium environment, with a camera close to the scene."""
    load_libraries()
    env = gymnasium.make(ID, max_episode_steps=world.horizon, disable_env_checker=True, **arguments)
    scene: Any = env.unwrapped
    scene.mujoco_renderer.default_cam_config = CAMERA
    return BinaryReward(env, world.config)


def _angles(turn: Float[np.ndarray, "n 3 3"]) -> Float[np.ndarray, "n 3"]:
    """Intrinsic Euler angles x, y, z of rotation matrices."""
    cosine = np.hypot(turn[:, 1, 2], turn[:, 2, 2])
    x, y = -np.arctan2(turn[:, 1, 2], turn[:, 2, 2]), np.arctan2(turn[:, 0, 2], cosine)
    return np.stack([x, y, -np.arctan2(turn[:, 0, 1], turn[:, 0, 0])], axis=1)


def load_model() -> mujoco.MjModel:
    """The model without visual parts and unused sensors (0.1 MB instead of 7); the physics is the same."""
    found = importlib.util.find_spec("gymnasium_robotics")
    if found is None or found.origin is None or importlib.util.find_spec("mujoco") is None:
        raise HyrloError(f"{NAME}: needs MuJoCo and Gymnasium-Robotics; install hyrlo[robotics]")
    try:
        import mujoco
    except Exception as error:  # the import loads a renderer
        raise HyrloError(f"{NAME}: MuJoCo cannot be loaded: {describe(error)}; check the value of MUJOCO_GL") from error
    if importlib.util.find_spec("mujoco.batch") is None:
        raise HyrloError(f"{NAME}: needs MuJoCo 4 or later, not {mujoco.__version__}; install hyrlo[robotics]")
    scene = mujoco.MjSpec.from_file(str(Path(found.origin).parent / SCENE))
    scene.compiler.discardvisual = True
    for sensor in list(scene.sensors):
        if sensor.name != "S_nail":
            scene.delete(sensor)
    model = scene.compile()
    # Gymnasium-Robotics sets how stiff the joints are in code: the wrist 10, the fingers 1.
    wrist, fingers, end = (model.actuator(name).id for name in ("A_WRJ1", "A_FFJ3", "A_THJ0"))
    for joints, stiffness in ((slice(wrist, fingers), 10.0), (slice(fingers, end + 1), 1.0)):
        model.actuator_gainprm[joints, :3] = (stiffness, 0.0, 0.0)
        model.actuator_biasprm[joints, :3] = (0.0, -stiffness, 0.0)
    return model


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
