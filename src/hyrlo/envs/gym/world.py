"""Any Gymnasium environment behind hyrlo's access models: `make("gym:CartPole-v1")`.

Episodes are played in batches of `num_envs` in lock-step. A roll-out is a function of key, policy and number of episodes
(and of `num_envs`: it decides which episodes draw their actions together), in this process or in workers.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import io
import json
import weakref
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, load_env_creator, parse_env_id

from hyrlo.core.access import Spec
from hyrlo.core.errors import DataError, HyrloError
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs.gym.model import GymResetModel, GymTraceModel
from hyrlo.envs.gym.vector import Vector
from hyrlo.envs.gym.wrappers import Absorbing, SetState, build, describe

__all__ = ["GymConfig", "GymResetModel", "GymTraceModel", "GymWorld"]

PREFIX = "gym:"
LIBRARIES = ("gymnasium_robotics",)
"""Of hyrlo's extras: they register environments when they are imported."""


@dataclass(frozen=True)
class GymConfig:
    """How a Gymnasium environment is made and played."""

    num_envs: int = 16
    """Episodes at a time; more amortise the policy better."""
    asynchronous: bool = False
    """Each environment in a worker process: for environments whose step takes far longer than a message, 0.1 ms."""
    kwargs: str = "{}"
    """Arguments of the environment, as a JSON object: '{"goal_velocity": 0.1}'."""

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise HyrloError(f"num_envs is {self.num_envs}; give at least 1")
        self.arguments()

    def arguments(self) -> dict[str, Any]:
        try:
            arguments = json.loads(self.kwargs)
        except ValueError as error:
            raise HyrloError(f"kwargs is {self.kwargs!r}, which is not JSON ({error}); give a JSON object") from None
        if not isinstance(arguments, dict):
            raise HyrloError(f"kwargs is {self.kwargs!r}; give a JSON object, as '{{\"goal_velocity\": 0.1}}'")
        return arguments


class GymWorld:
    """`gym:<id>`: hands out access models, which share one vector of environments."""

    def __init__(self, name: str, horizon: int | None = None, config: GymConfig | None = None):
        self.name, self.config = name, config or GymConfig()
        self._registered = _find(name)
        self._arguments, self.horizon = _settle(name, self._registered, self.config.arguments(), horizon)
        self.env = self._make()
        self.says_success = False
        """Whether any episode so far said something about success."""
        self._vector: Vector | None = None

    def _make(self) -> Absorbing:
        try:
            return build(self._registered, self._arguments, self.horizon)
        except HyrloError as error:
            raise HyrloError(f"{self.name}: {error}") from None
        except Exception as error:
            raise HyrloError(
                f"{self.name}: cannot be made: {describe(error)}; check the id and --gym.kwargs"
            ) from error

    @property
    def spec(self) -> Spec:
        space: Any = self.env.action_space
        discrete = isinstance(space, gymnasium.spaces.Discrete)
        actions, size = (int(space.n), 0) if discrete else (0, space.shape[0])
        return Spec(self.horizon, self.env.size + 1, actions, size, ends=True)

    @property
    def options(self) -> dict[str, Any]:
        return dataclasses.asdict(self.config)

    def trace_model(self) -> GymTraceModel:
        return GymTraceModel(self)

    def reset_model(self, set_state: SetState | None = None) -> GymResetModel:
        """`set_state(env, observation)` puts `env` into the state of `observation`; known environments need none."""
        return GymResetModel(self, set_state=set_state)

    def prepare(self, data: ObservationDataset) -> ObservationDataset:
        """Data of this environment's own observations, with the flag and absorbing states."""
        if data.observation_size != self.env.size:
            raise DataError(
                f"{data.source}: states have {data.observation_size} dimensions but {self.name} has {self.env.size}; "
                "give the environment's own observations, flattened"
            )
        return data.with_ended(self.horizon)

    def behaviour_data(self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None) -> ObservationDataset:
        raise HyrloError(f"{self.name} has no behaviour data of its own; give --data")

    def behaviour_transitions(
        self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None
    ) -> TransitionDataset:
        raise HyrloError(f"{self.name} has no behaviour data of its own; give --data")

    def vector(self) -> Vector:
        """The environments, made when they are first needed, and again if a worker has died."""
        if self._vector is None or self._vector.closed:
            make = [
                functools.partial(build, self._registered, self._arguments, self.horizon, index)
                for index in range(self.config.num_envs)
            ]
            self._vector = Vector(self.name, make, self.config.asynchronous)
            weakref.finalize(self, Vector.close, self._vector)
        return self._vector


def _find(name: str) -> EnvSpec:
    """The registration of `gym:<id>` or `gym:<module>:<id>`; without a version, the newest."""
    module, _, env_id = name.removeprefix(PREFIX).rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        namespace, short, version = parse_env_id(env_id)
        if not module and find_highest_version(namespace, short) is None:
            load_libraries()
        if version is None and (newest := find_highest_version(namespace, short)) is not None:
            env_id = f"{env_id}-v{newest}"
        return gymnasium.spec(env_id)
    except Exception as error:
        known = isinstance(error, gymnasium.error.Error | ImportError)
        said = str(error).rstrip(".?") if known else describe(error)
        raise HyrloError(
            f"{name}: {said}; give an id that gymnasium.make knows, or gym:MODULE:ID where MODULE registers it"
        ) from error


def load_libraries() -> None:
    """Import what registers more environments, where it is installed; what it has to say about others is left out."""
    with redirect_stderr(io.StringIO()):
        for library in LIBRARIES:
            if importlib.util.find_spec(library):
                importlib.import_module(library)


def _settle(name: str, spec: EnvSpec, arguments: dict[str, Any], horizon: int | None) -> tuple[dict[str, Any], int]:
    """Arguments and horizon. An environment that takes a `horizon` is given it; its own is the last resort."""
    argument = _horizon_argument(spec)
    own = argument.default if argument else None
    for limit in (horizon, arguments.get("horizon"), spec.max_episode_steps, own):
        if isinstance(limit, int):
            if limit < 1:
                raise HyrloError(f"{name}: horizon is {limit}; give at least 1")
            return ({"horizon": limit, **arguments} if argument else arguments), limit
    raise HyrloError(f"{name}: has no time limit of its own; give --horizon")


def _horizon_argument(spec: EnvSpec) -> inspect.Parameter | None:
    """The environment's argument of this name, unless its default says that it is no number of steps."""
    try:
        creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
        argument = inspect.signature(creator).parameters.get("horizon")  # type: ignore[arg-type]
    except Exception:  # making the environment will say what is wrong
        return None
    if argument is None or not isinstance(argument.default, int | None | type(inspect.Parameter.empty)):
        return None
    return argument
