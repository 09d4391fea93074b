"""The loop of HyQ and BRIEE: collect with the greedy policy, keep the tuples of every step, learn from all of them, repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Policy, Stack
from hyrlo.core.ranges import Count, Options
from hyrlo.core.replay import ReplayBuffer
from hyrlo.data.transitions import TransitionDataset


@dataclass(frozen=True)
class OnlineConfig(Options):
    """The loop around collecting and learning."""

    samples: Count = 50
    """Episodes per step and iteration."""
    iterations: Count = 60
    """Most iterations; see `solved`."""
    trial_episodes: Count = 20
    """Episodes of the policy learned so far after each iteration; they count as training."""
    solved: Count = 5
    """Stop after this many trials in a row in which every episode succeeds."""


class Tuples(NamedTuple):
    """(s, a, r, s′) of every step, and ends."""

    states: Float[Array, "h n obs"]
    actions: Int[Array, "h n"]
    rewards: Float[Array, "h n"]
    next_states: Float[Array, "h n obs"]
    terminals: Bool[Array, "h n"]
    """Whether the episode was over after the step, so that nothing of value follows."""


def record_tuples(model: TraceModel, key: PRNGKeyArray, policy: Policy, steps: Int[np.ndarray, "k n"]) -> Tuples:
    """The tuples of k steps of each of n episodes.

    An episode that is over by then is in the absorbing state. The observation it ended with looks like that of an episode
    that goes on, but is worth nothing.
    """
    k, n = steps.shape
    if not model.spec.ends:
        batch = model.record(key, policy, n, steps)
        return Tuples(batch.states, batch.actions, batch.rewards, batch.next_states, batch.ended)
    batch = model.record(key, policy, n, np.concatenate([steps, np.maximum(steps - 1, 0)]))
    over = batch.ended[k:] & (steps > 0)
    states = jnp.where(over[..., None], jnp.eye(model.spec.observation_size)[-1], batch.states[:k])
    return Tuples(states, batch.actions[:k], batch.rewards[:k], batch.next_states[:k], batch.ended[:k])


Buffer = ReplayBuffer[Tuples]
"""One replay buffer per step, stacked along a first axis; offline tuples are its fixed rows."""


def create_buffer(horizon: int, observations: int, capacity: int, source: TransitionDataset | None = None) -> Buffer:
    """Offline tuples, then room for `capacity` online ones of each step. Steps with fewer offline tuples have blank rows."""
    begin = int(offline_counts(horizon, source).max())
    shapes = {"states": (observations,), "next_states": (observations,)}
    dtypes = {"actions": np.int32, "terminals": bool}
    arrays = []
    for name in Tuples._fields:
        array = np.zeros((horizon, begin + capacity, *shapes.get(name, ())), dtypes.get(name, np.float32))
        for h, step in enumerate(source.steps if source else ()):
            array[h, : len(step.states)] = getattr(step, name)
        arrays.append(jnp.asarray(array))
    return ReplayBuffer(Tuples(*arrays), jnp.zeros(horizon, int), begin)


def offline_counts(horizon: int, source: TransitionDataset | None) -> Int[np.ndarray, " h"]:
    """Number of offline tuples of each step."""
    return np.array([len(step.states) for step in source.steps]) if source else np.zeros(horizon, int)


@eqx.filter_jit(donate="all-except-first")
def add_tuples(tuples: Tuples, buffer: Buffer) -> Buffer:
    """Add the same number of tuples to every step. The old buffer's memory is used again."""
    return jax.vmap(ReplayBuffer.add)(buffer, tuples, jnp.ones(tuples.actions.shape, bool))


class Learner(Protocol):
    """What is learned, a pytree: two policies, which may be the same, and whatever else the next iteration starts from."""

    @property
    def exploring(self) -> Stack:
        """The policy to collect with."""
        ...

    @property
    def best(self) -> Stack:
        """The policy to return."""
        ...


AnyLearner = TypeVar("AnyLearner", bound=Learner)
Collect = Callable[[PRNGKeyArray, int, Policy], Tuples]
"""Tuples of iteration t, collected with a policy."""
Learn = Callable[[PRNGKeyArray, AnyLearner, Buffer], tuple[AnyLearner, Float[Array, ""]]]
"""The next learner from all tuples so far, and a loss."""


def alternate(
    model: TraceModel,
    start: AnyLearner,
    buffer: Buffer,
    collect: Collect,
    learn: Learn[AnyLearner],
    config: OnlineConfig,
    key: PRNGKeyArray,
    run: Run,
) -> Policy:
    """Collect with the policy, learn the next one from all tuples; stop when trials say that it is solved."""
    phase = run.phase("online", range(config.iterations), (start, jnp.zeros((), int)), model)
    for rows in phase.kept():
        buffer = add_tuples(Tuples(*rows), buffer)
    for t in phase:
        learner, solved = phase.state
        if solved >= config.solved:
            break
        keys = Keys(key).at(t)
        tuples = collect(keys.collect, t, learner.exploring)
        buffer = add_tuples(tuples, buffer)
        phase.keep(tuple(tuples))
        learner, loss = learn(keys.learn, learner, buffer)
        trial = model.rollout(keys.trial, learner.best, config.trial_episodes)
        solved = jnp.where(False if trial.success is None else trial.success.all(), solved + 1, 0)
        phase.done(model.spec.horizon, (learner, solved), evaluate=learner.best, iteration=t, loss=float(loss))
    return phase.state[0].best
