"""An agent: a learned policy in the environment's own terms, NumPy in and out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim
from jaxtyping import Array, Float, Int

from hyrlo.core.access import Evaluation, evaluate
from hyrlo.core.errors import HyrloError, RunError, check_seed
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Actions, MostLikely, Policy, Step, action_of, is_stationary
from hyrlo.envs import World, make
from hyrlo.envs.gym.wrappers import action_converter
from hyrlo.runs.cache import enable_compilation_cache
from hyrlo.runs.directory import kept_policy, read_config
from hyrlo.runs.loading import load_run
from hyrlo.runs.numpy_policy import flat
from hyrlo.runs.seeds import seed_directories

ABOUT = ("algo", "env", "horizon", "seed")
"""What an agent says of its run."""


class Agent:
    """Acts with a policy.

    The usual loop; `reset` says that an episode begins:

        observation, _ = env.reset()
        agent.reset()
        while not over:
            action = agent.predict(observation)
            observation, reward, terminated, truncated, _ = env.step(action)

    Policies may depend on the step. The agent counts it: `reset` begins at 0, and each `predict` of a single observation is one
    step. Give `step` for observations in another order, and for a batch, whose rows the agent cannot count.
    """

    def __init__(
        self,
        policy: Policy,
        world: World,
        *,
        roll_in: Policy | None = None,
        about: dict[str, Any] | None = None,
        path: Path | None = None,
        seed: int = 0,
    ):
        check_seed(seed)
        self.policy, self.world, self.about, self.path = policy, world, about or {}, path
        self.observation_space, self.action_space = world.spaces
        self.layout = layout_of(self.observation_space)
        self._roll_in, self._seed = roll_in, seed
        self._episode = 0
        self._flags = world.spec.observation_size - flatdim(self.observation_space)
        self._convert, self._actions = action_converter(self.action_space)
        self.needs_step = not is_stationary(policy)
        """Whether actions may depend on the step."""
        _check_fit(policy, world)
        self._likely, self._drawn = Compiled(MostLikely(policy)), Compiled(policy.rows(0, 1))
        self.reset(seed)

    def reset(self, seed: int | None = None) -> None:
        """An episode begins: the next step is 0. With `seed`, actions that are drawn begin anew as well."""
        self.step = 0
        self._episode += 1
        self.__dict__.pop("_drawing", None)
        if seed is not None:
            check_seed(seed)
            self._key, self._episode, self._draws = jax.random.key(seed), 0, 0

    def predict(self, observation: Any, step: int | np.ndarray | None = None, deterministic: bool = True) -> Any:
        """The action for one observation, or the actions for a batch, in the environment's own spaces.

        `step` is the number of steps since the episode began; by default the agent counts it (see above). A batch may have one
        step for all rows, or one for each. `deterministic`: the most likely action; else one is drawn, and the same seed and
        the same calls give the same actions.
        """
        states, single = self._states(observation)
        h = self._step(step, len(states), single)
        if deterministic:
            found = self._likely(self._likely.policy, self._key, 0, states, h)
        else:
            policy = self._drawing if single else self.policy.rows(0, len(states))
            found = self._drawn(policy, self._key, self._draws, states, h)
            self._draws += 1
        if isinstance(self._actions, spaces.Discrete) and found.max() >= self._actions.n:
            raise HyrloError(f"{self.world.name}: has {self._actions.n} actions, the policy chose {found.max()}")
        actions = self._convert(found)
        if not single:
            return actions
        return int(actions[0]) if actions.ndim == 1 else actions[0]

    @functools.cached_property
    def _drawing(self) -> Policy:
        """The policy of this episode: a mixture follows one of its policies for a whole episode."""
        return self.policy.rows(self._episode, 1)

    def evaluate(self, episodes: int = 100, seed: int = 0, deterministic: bool = False) -> Evaluation:
        """Play fresh episodes, those of `hyrlo eval`: return, success rate and number of episodes."""
        if episodes < 1:
            raise HyrloError(f"evaluate: episodes is {episodes}; give at least 1")
        check_seed(seed)
        policy = MostLikely(self.policy) if deterministic else self.policy
        return evaluate(self.world.trace_model(), policy, Keys.of_seed(seed).fresh_evaluation, episodes)

    def render(self, file: str | Path | None = None, seed: int = 0) -> Any:
        """Write one episode as a GIF, as `hyrlo eval --render` does; by default `episode.gif` in the run directory."""
        from hyrlo.runs.render import DEFAULT_FILE, render_policy

        return render_policy(
            self.world, self.policy, (self.path or Path()) / DEFAULT_FILE if file is None else file, seed
        )

    @functools.cached_property
    def roll_in(self) -> Agent:
        """The agent of the roll-in, which the forward pass learned."""
        if self._roll_in is None:
            raise HyrloError(
                f"{self.path or self.about.get('algo', 'agent')}: the run keeps no roll-in; runs of foobar and fail do"
            )
        return Agent(self._roll_in, self.world, roll_in=self._roll_in, about=self.about, seed=self._seed)

    def _states(self, observation: Any) -> tuple[Float[np.ndarray, "n obs"], bool]:
        try:
            states, single = flat(self.layout, observation)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise HyrloError(
                f"predict: observation {error}; give one of {self.observation_space}, or a batch of them"
            ) from error
        if not np.isfinite(states).all():
            row, column = np.argwhere(~np.isfinite(states))[0]
            raise HyrloError(
                f"predict: observation {row}, dimension {column} is {states[row, column]}; give finite numbers"
            )
        return np.pad(states, ((0, 0), (0, self._flags))) if self._flags else states, single

    def _step(self, step: Any, rows: int, single: bool) -> np.ndarray:
        if step is None:
            if self.needs_step and not single:
                raise HyrloError("predict: this policy depends on the step; give step with a batch of observations")
            step = self.step
            self.step += single
        h = np.asarray(step)
        if h.dtype.kind not in "iu" or h.shape not in ((), (rows,)):
            raise HyrloError(
                f"predict: step is {step!r}; give a whole number, or one for each of the {rows} observations"
            )
        horizon = self.world.spec.horizon
        if self.needs_step and ((h < 0) | (h >= horizon)).any():
            raise HyrloError(
                f"predict: step is {step}, but the policy is for steps 0 … {horizon - 1}; call agent.reset() when an "
                "episode begins"
            )
        return h.astype(np.int32)


class Compiled:
    """A policy that acts, compiled once for each number of observations. It is taken apart once, not at every call."""

    def __init__(self, policy: Policy):
        arrays, static = eqx.partition(policy, eqx.is_array)
        self.policy = policy
        self.leaves, structure = jax.tree.flatten(arrays)

        def act(leaves: list[Array], key: Array, draw: Array, states: Float[Array, "n obs"], h: Step) -> Actions:
            # Arrays are arguments, not constants: a stack of networks as a constant takes long to compile.
            whole: Policy = eqx.combine(jax.tree.unflatten(structure, leaves), static)
            return whole.act(jax.random.fold_in(key, draw), states, h)

        self._program = jax.jit(act)

    def __call__(
        self, policy: Policy, key: Array, draw: int, states: Float[np.ndarray, "n obs"], h: Int[np.ndarray, "*n"]
    ) -> np.ndarray:
        """Actions of `policy`, which has the structure of the one that this was made of; each row may have its own step."""
        leaves = self.leaves if policy is self.policy else jax.tree.leaves(eqx.filter(policy, eqx.is_array))
        act = lambda h: np.asarray(self._program(leaves, key, np.uint32(draw), states, np.int32(h)))  # noqa: E731
        if not h.ndim:
            return act(h)
        by_step = {step: act(step) for step in np.unique(h)}
        return np.stack([by_step[step][row] for row, step in enumerate(h)])


def layout_of(space: spaces.Space) -> dict[str, Any]:
    """How observations of a space become rows of numbers, for `hyrlo.runs.numpy_policy.flat`: as Gymnasium flattens them."""
    if isinstance(space, spaces.Dict):
        return {"parts": [[key, layout_of(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"parts": [[i, layout_of(part)] for i, part in enumerate(space.spaces)]}
    shape: dict[str, Any] = {"shape": list(space.shape or ())}
    if isinstance(space, spaces.Discrete):
        return {**shape, "choices": [[int(space.start)], [int(space.n)]]}
    if isinstance(space, spaces.MultiDiscrete):
        return {**shape, "choices": [np.ravel(space.start).tolist(), np.ravel(space.nvec).tolist()]}
    return shape


def _check_fit(policy: Policy, world: World) -> None:
    spec = world.spec
    action = action_of(policy, spec.observation_size)
    if action is None or action.shape != spec.no_actions(1).shape:
        raise HyrloError(f"the policy is for other states or actions than those of {world.name}; give another")


def load(
    path: str | Path,
    world: World | str | gymnasium.Env | Callable[[], gymnasium.Env] | None = None,
    seed: int = 0,
    trust: bool = False,
) -> Agent:
    """The agent of a finished run. Give the environment as `world` if the run was made from an environment object.

    `seed` is that of `predict(…, deterministic=False)`. With `trust`, modules that the run's `config.json` names are imported:
    only for runs of people whose code you would run.
    """
    enable_compilation_cache()
    path = Path(path)
    if (first := seed_directories(path)[0]) != path:
        raise RunError(f"{path}: holds the runs of several seeds; give the directory of one, such as {first}")
    if world is not None and not isinstance(world, World):
        world = make(world, read_config(path)["horizon"])
    found, policy, settings = load_run(path, world, trust)
    about = {name: settings[name] for name in ABOUT}
    roll_in = policy if settings["algo"] == "fail" else kept_policy(path, "roll_in")
    return Agent(policy, found, roll_in=roll_in, about=about, path=path, seed=seed)
