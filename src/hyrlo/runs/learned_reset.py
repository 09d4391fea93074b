"""A learned reset for any learner: episodes of a Gymnasium environment that begin in states a roll-in reaches.

The roll-in is a trained forward policy π^f. With h uniform over 0 … H−1, the learner starts from the distribution
(1/H) Σ_h d_h^{π^f}: the states of the logs, as far as the forward pass matched them. Trace access is enough.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim
from gymnasium.utils import RecordConstructorArgs
from jaxtyping import Array, Float

from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import Actions, Policy, Step, action_of, known_steps
from hyrlo.core.ranges import Count, check_value
from hyrlo.envs.gym.answers import flattener
from hyrlo.envs.gym.wrappers import action_converter
from hyrlo.runs.directory import read_config, roll_in_of


class Actor:
    """A policy for one environment: takes one observation, returns one action, both in the environment's own spaces.

    Observations are flattened and actions scaled as in `hyrlo.envs.gym.wrappers`. The ended flag is left out for policies
    that were trained without it, as those of the `lock`: `observation_size` is that of the policy's states, if it is known.
    """

    def __init__(self, policy: Policy, env: gymnasium.Env, observation_size: int | None = None):
        self.policy = policy
        self._flat = flattener(env.observation_space)
        self._convert, self._actions = action_converter(env.action_space)
        self._size = flatdim(env.observation_space)
        flags, action = _sizes(policy, self._size, observation_size)
        _check_action(action, self._actions)
        self._state = np.zeros((1, self._size + flags), np.float32)
        self.begin(0)
        self._structure = jax.tree.structure(self._arrays())
        self._static = eqx.filter(self._episode, eqx.is_array, inverse=True)
        self._compiled = jax.jit(self._act)

    def begin(self, number: int) -> None:
        """Begin an episode. Its actions are a function of `number` and of the observations.

        A mixture of policies follows one of them for the whole episode: that of row `number` of a batch.
        """
        self._number = np.uint32(number)
        self._episode = self.policy.rows(number, 1)
        self._leaves = jax.tree.leaves(self._arrays())

    def __call__(self, observation: Any, h: int) -> Any:
        """The environment's own action at step `h`."""
        self._state[0, : self._size] = self._flat(observation)
        action = np.asarray(self._compiled(self._leaves, self._number, self._state, np.int32(h)))[0]
        if isinstance(self._actions, spaces.Discrete) and action >= self._actions.n:
            raise HyrloError(
                f"the policy chose action {action} but the environment has {self._actions.n}; "
                "give a policy that was trained for this environment"
            )
        return self._convert(action)

    def _arrays(self) -> Policy:
        return eqx.filter(self._episode, eqx.is_array)

    def _act(self, leaves: list[Array], number: Array, state: Float[Array, "1 obs"], h: Step) -> Actions:
        # Arrays are arguments, not constants: a stack of networks as a constant takes long to compile.
        policy: Policy = eqx.combine(jax.tree.unflatten(self._structure, leaves), self._static)
        return policy.act(jax.random.fold_in(jax.random.key(number), h), state, h)


def _sizes(policy: Policy, size: int, known: int | None) -> tuple[int, jax.ShapeDtypeStruct]:
    """1 if the policy takes the ended flag after the `size` numbers of an observation, else 0; and its action."""
    for flags in (1, 0) if known is None else (known - size,):
        if (action := action_of(policy, size + flags)) is not None:
            return flags, action
    raise HyrloError(
        f"the policy does not take the environment's observations, {size} numbers when flattened, and a flag; "
        "give a policy that was trained for this environment"
    )


def _check_action(action: jax.ShapeDtypeStruct, space: spaces.Space) -> None:
    discrete = np.issubdtype(action.dtype, np.integer) and action.ndim == 1
    fits = discrete if isinstance(space, spaces.Discrete) else not discrete and action.shape[1:] == space.shape
    if not fits:
        has = "a discrete one" if discrete else f"a vector of {action.shape[-1]}"
        wants = f"a vector of {space.shape[0]}" if space.shape else "a discrete one"
        raise HyrloError(
            f"the policy's action is {has} but the environment's is {wants}; "
            "give a policy that was trained for this environment"
        )


class LearnedReset(gymnasium.Wrapper, RecordConstructorArgs):
    """`reset` plays a trained policy for h steps, h uniform over 0 … `horizon` − 1, and returns where that leads.

    `run_or_policy` is the directory of a `fail` run, of a `foobar` run (its forward policy is taken), any directory with
    a saved policy, or a policy. `horizon` is by default the run's, else the environment's time limit. If the episode
    ends during the roll-in, a new roll-in with a new h is played. After that, `step` is the environment's own. Its time
    limit includes the roll-in: a limit of 200 leaves 200 − h steps. `info["roll_in_steps"]` of `reset` is h.

    `reset(seed=…)` makes environment and roll-ins reproducible; `seed` is used by the first reset without one.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        run_or_policy: str | Path | Policy,
        *,
        horizon: int | None = None,
        seed: int | None = None,
    ):
        RecordConstructorArgs.__init__(  # so that `spec` can make the wrapped environment again
            self, _disable_deepcopy=True, run_or_policy=run_or_policy, horizon=horizon, seed=seed
        )
        gymnasium.Wrapper.__init__(self, env)
        policy, own = read_roll_in(run_or_policy)
        self.horizon = _first(horizon, own, env.spec.max_episode_steps if env.spec else None)
        known = known_steps(policy)
        if known is not None and known < self.horizon:
            raise HyrloError(
                f"LearnedReset: horizon is {self.horizon}, but the policy is for {known} steps; give {known}"
            )
        self.actor = Actor(policy, env)
        self.steps = 0
        """Steps taken in the environment, roll-ins included. Compare learners by this number."""
        self.roll_in_steps = 0
        """Steps taken during roll-ins, the repeated ones included."""
        self._seed = seed
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seed, self._seed = self._seed if seed is None else seed, None
        if seed is not None:
            self._rng = np.random.default_rng(
                (seed, 1)
            )  # not the seed itself: the environment draws its numbers from that
        while True:
            observation, info = self.env.reset(seed=seed, options=options)
            seed = None  # a second try continues the random numbers of the first
            steps, number = int(self._rng.integers(self.horizon)), int(self._rng.integers(2**31))
            self.actor.begin(number)
            for h in range(steps):
                observation, _, terminated, truncated, info = self.step(self.actor(observation, h))
                self.roll_in_steps += 1
                if terminated or truncated:
                    break
            else:
                return observation, {**info, "roll_in_steps": steps}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.env.step(action)


def _first(*horizons: int | None) -> int:
    """The first horizon that is known."""
    for horizon in horizons:
        if horizon is not None:
            check_value("LearnedReset: horizon", horizon, Count)
            return horizon
    raise HyrloError("LearnedReset: neither the run nor the environment has a horizon; give horizon")


def read_roll_in(source: str | Path | Policy) -> tuple[Policy, int | None]:
    """The roll-in of a run directory (or the policy itself), and its horizon if it is known."""
    if isinstance(source, Policy):
        return source, None
    path = Path(source)
    config = read_config(path, ["horizon"]) if (path / "config.json").exists() else {}
    return roll_in_of(path), config.get("horizon")
