"""The loop of HyQ and BRIEE: collect with the greedy policy, keep the tuples of every step, learn from all of them, repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.random import fold_in
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import check_positive
from hyrlo.core.policies import Policy, Stack
from hyrlo.core.replay import ReplayBuffer
from hyrlo.data.transitions import TransitionDataset


@dataclass(frozen=True)
class OnlineConfig:
    """The loop around collecting and learning."""

    samples: int = 50
    """Episodes per step and iteration."""
    iterations: int = 60
    """Most iterations; see `solved`."""
    trial_episodes: int = 20
    """Episodes of the policy learned so far after each iteration; they count as training."""
    solved: int = 5
    """Stop after this many trials in a row in which every episode succeeds."""

    def __post_init__(self) -> None:
        check_positive(self, "samples", "iterations", "trial_episodes", "solved")


class Tuples(NamedTuple):
    """(s, a, r, s′) of every step."""

    states: Float[Array, "h n obs"]
    actions: Int[Array, "h n"]
    rewards: Float[Array, "h n"]
    next_states: Float[Array, "h n obs"]


Buffer = ReplayBuffer[Tuples]
"""One replay buffer per step, stacked along a first axis; offline tuples are its fixed rows."""


def create_buffer(horizon: int, observations: int, capacity: int, source: TransitionDataset | None = None) -> Buffer:
    """Offline tuples, then room for `capacity` online ones of each step. Steps with fewer offline tuples have blank rows."""
    begin = int(offline_counts(horizon, source).max())
    shapes = {"states": (observations,), "next_states": (observations,)}
    arrays = []
    for name in Tuples._fields:
        dtype = np.int32 if name == "actions" else np.float32
        array = np.zeros((horizon, begin + capacity, *shapes.get(name, ())), dtype)
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


class Collect(Protocol):
    def __call__(self, key: PRNGKeyArray, t: int, policy: Policy, model: TraceModel) -> Tuples: ...


class Learn(Protocol):
    def __call__(self, key: PRNGKeyArray, policy: Stack, buffer: Buffer) -> tuple[Stack, Stack, Float[Array, ""]]:
        """The policy to collect with next, the policy that is best so far, and a loss."""
        ...


def alternate(
    model: TraceModel,
    start: Stack,
    buffer: Buffer,
    collect: Collect,
    learn: Learn,
    config: OnlineConfig,
    key: PRNGKeyArray,
    run: Run,
) -> Policy:
    """Collect with the policy, learn the next one from all tuples; stop when trials say that it is solved.

    A checkpoint holds the policies of all iterations, not the tuples. When a run is resumed, the same tuples are collected
    again with these policies; they are not counted twice.
    """
    history = jax.tree.map(lambda x: jnp.zeros((config.iterations, *x.shape), x.dtype), start)
    phase = run.phase("online", range(config.iterations), (start, start, history, jnp.zeros((), int)), model)
    known = 0
    for t in phase:
        policy, best, history, solved = phase.state
        if solved >= config.solved:
            break
        collect_key, learn_key, trial_key = jax.random.split(fold_in(key, t), 3)
        for past in range(known, t):
            past_key = jax.random.split(fold_in(key, past), 3)[0]
            buffer = add_tuples(collect(past_key, past, _at(history, past), model.evaluation()), buffer)
        buffer = add_tuples(collect(collect_key, t, policy, model), buffer)
        known = t + 1
        history = _set(history, jnp.asarray(t), policy)
        policy, best, loss = learn(learn_key, policy, buffer)
        trial = model.rollout(trial_key, best, config.trial_episodes)
        solved = jnp.where(False if trial.success is None else trial.success.all(), solved + 1, 0)
        phase.done(model.spec.horizon, (policy, best, history, solved), evaluate=best, iteration=t, loss=float(loss))
    return phase.state[1]


@eqx.filter_jit
def _set(history: Stack, t: Int[Array, ""], policy: Stack) -> Stack:
    return jax.tree.map(lambda old, new: old.at[t].set(new), history, policy)


def _at(history: Stack, t: int) -> Stack:
    return jax.tree.map(lambda x: x[t], history)
