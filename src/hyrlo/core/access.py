"""Access models: everything an algorithm may do to the world, and the ledger that counts what it did.

A *trace model* can only start episodes at the initial distribution. A *reset model* can also start from given states. An
*interactive model* also answers queries about an offline distribution. Algorithms state which one they need. Sample counts
are the ledger's, never an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.errors import AccessError
from hyrlo.core.memory import require_memory
from hyrlo.core.policies import Actions, Policy, Uniform, UniformBox

Steps = int | tuple[int, ...] | Int[np.ndarray, "k n"]
"""Which steps of an episode to record: one, several in increasing order, or k of its own for each of n episodes."""


@dataclass(frozen=True)
class Spec:
    """Sizes an algorithm needs to build its networks."""

    horizon: int
    observation_size: int
    actions: int
    """Number of discrete actions; 0 where an action is a vector."""
    action_size: int = 0
    """Dimensions of an action vector, each from −1 to 1; 0 where actions are discrete."""
    ends: bool = False
    """Whether the last dimension of a state is 1 once the episode has ended (and 0 before)."""

    def uniform(self) -> Policy:
        """Every action with the same probability."""
        return UniformBox(self.action_size) if self.action_size else Uniform(self.actions)

    def no_actions(self, *shape: int) -> Actions:
        """An array of zero actions."""
        return jnp.zeros((*shape, self.action_size)) if self.action_size else jnp.zeros(shape, int)


@dataclass
class Ledger:
    """Episodes started and steps taken so far."""

    episodes: int = 0
    steps: int = 0

    def book(self, episodes: int, steps: int) -> None:
        self.episodes += episodes
        self.steps += steps


class Rollout(NamedTuple):
    """Whole-episode sums of a batch of episodes."""

    returns: Float[Array, " n"]
    success: Bool[Array, " n"] | None
    """None where the environment does not define success."""


class Recorded(NamedTuple):
    """A batch of episodes with some of their steps. The leading axis `k` is missing where one step was asked for."""

    returns: Float[Array, " n"]
    success: Bool[Array, " n"] | None
    """None where the environment does not define success."""
    states: Float[Array, "*k n obs"]
    actions: Int[Array, "*k n"] | Float[Array, "*k n act"]
    rewards: Float[Array, "*k n"]
    """Reward of the recorded step."""
    return_to_go: Float[Array, "*k n"]
    """Sum of rewards from the recorded step on."""
    next_states: Float[Array, "*k n obs"]
    ended: Bool[Array, "*k n"]
    """Whether the episode was over after the step. False where episodes never end before the horizon."""


@runtime_checkable
class TraceModel(Protocol):
    """Episodes from the initial distribution, and nothing else."""

    ledger: Ledger

    @property
    def spec(self) -> Spec: ...

    def rollout(self, key: PRNGKeyArray, policy: Policy, episodes: int, *, stop: int | None = None) -> Rollout:
        """Play `episodes` up to step `stop` (default: the horizon)."""
        ...

    def record(
        self, key: PRNGKeyArray, policy: Policy, episodes: int, steps: Steps, *, stop: int | None = None
    ) -> Recorded:
        """Play the same episodes as `rollout` and keep the given steps."""
        ...

    def evaluation(self) -> TraceModel:
        """The same world with trace access and a ledger of its own, so that evaluation is counted separately."""
        ...


@runtime_checkable
class ResetModel(TraceModel, Protocol):
    """A trace model that can also start from given states."""

    def rollout_from(
        self, key: PRNGKeyArray, observations: Float[Array, "n obs"], policy: Policy, *, at: int
    ) -> Recorded:
        """Reset to `observations` at step `at`, play to the end and record the first step."""
        ...


@runtime_checkable
class InteractiveModel(TraceModel, Protocol):
    """A trace model with geometric roll-ins, and an offline distribution that answers queries with next states only."""

    queries: Ledger

    @property
    def gamma(self) -> float: ...

    def roll_in(self, key: PRNGKeyArray, policy: Policy, then: Policy, episodes: int) -> Recorded:
        """Follow `policy` up to a step h ∼ Geom(1 − γ), take one action of `then`, and record that step."""
        ...

    def offline_next(self, key: PRNGKeyArray, observations: Float[Array, "n obs"]) -> Float[Array, "n obs"]:
        """For each state s: a ∼ μ(s), s′ ∼ P(s, a); returns s′ only."""
        ...


def require_reset(model: TraceModel, algorithm: str) -> ResetModel:
    """The model as a reset model, or an error that says what to use instead."""
    if not isinstance(model, ResetModel):
        raise AccessError(
            f"{algorithm} needs a reset model but was given a trace model; "
            "use an environment that can be reset to given states, or an algorithm with trace access such as foobar"
        )
    return model


def require_interactive(model: TraceModel, algorithm: str, name: str = "a trace model") -> InteractiveModel:
    """The model as an interactive model, or an error that says what to use instead."""
    if not isinstance(model, InteractiveModel):
        raise AccessError(
            f"{algorithm} asks an interactive offline distribution for next states, which {name} does not have; "
            "use the environment discounted, or fail, which needs logged states alone"
        )
    return model


def checked_steps(steps: Steps, episodes: int, stop: int) -> Int[np.ndarray, " k"] | Int[np.ndarray, "k n"]:
    """The steps to record as an array: one axis for steps of all episodes, two for steps of each episode."""
    if isinstance(steps, np.ndarray):
        if steps.shape[1] != episodes or steps.min() < 0 or steps.max() >= stop:
            raise ValueError(f"steps has shape {steps.shape}; give {episodes} episodes steps from 0 to before {stop}")
        return steps
    listed = steps if isinstance(steps, tuple) else (int(steps),)
    if not listed or list(listed) != sorted(set(listed)) or not 0 <= listed[0] <= listed[-1] < stop:
        raise ValueError(f"steps is {steps}; give steps in increasing order, from 0 to before stop = {stop}")
    return np.asarray(listed, int)


class Evaluation(NamedTuple):
    """Mean return and success rate of a policy; `success_rate` is None where success is not defined."""

    return_mean: float
    success_rate: float | None
    episodes: int


def evaluate(model: TraceModel, policy: Policy, key: PRNGKeyArray, episodes: int) -> Evaluation:
    """Play `episodes` with a ledger of their own."""
    require_memory(episodes * 8 * model.spec.observation_size, f"{episodes:,} episodes of evaluation", "give fewer")
    batch = model.evaluation().rollout(key, policy, episodes)
    success = None if batch.success is None else float(batch.success.mean())
    return Evaluation(float(batch.returns.mean()), success, episodes)
