"""What HyQ and BRIEE share: collect with the greedy policy, keep the tuples of every step, learn from all of them, repeat."""

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


class Buffer(NamedTuple):
    """Offline tuples, then room for online ones; the newest take the place of the oldest once it is full."""

    tuples: Tuples
    offline: Int[Array, " h"]
    """How many offline tuples there are of each step."""
    begin: int
    """Where the online ones begin."""
    online: int = 0
    """How many have been added."""

    @classmethod
    def create(cls, horizon: int, observations: int, room: int, source: TransitionDataset | None = None) -> Buffer:
        counts = np.array([len(step.states) for step in source.steps]) if source else np.zeros(horizon, int)
        begin = int(counts.max())
        shapes = {"states": (observations,), "next_states": (observations,)}
        arrays = []
        for name in Tuples._fields:
            array = np.zeros(
                (horizon, begin + room, *shapes.get(name, ())), np.int32 if name == "actions" else np.float32
            )
            for h, count in enumerate(counts):
                if source:
                    array[h, :count] = getattr(source.steps[h], name)
            arrays.append(jnp.asarray(array))
        return cls(Tuples(*arrays), jnp.asarray(counts), begin)

    @property
    def room(self) -> int:
        return self.tuples.actions.shape[1] - self.begin

    @property
    def filled(self) -> Int[Array, ""]:
        """How many online tuples of each step there are."""
        return jnp.minimum(self.online, self.room)

    def add(self, tuples: Tuples) -> Buffer:
        at = self.begin + self.online % self.room
        return self._replace(
            tuples=_write(jnp.asarray(at), self.tuples, tuples), online=self.online + tuples.actions.shape[1]
        )


@eqx.filter_jit(donate="all-except-first")
def _write(at: Int[Array, ""], old: Tuples, new: Tuples) -> Tuples:
    return jax.tree.map(lambda o, n: jax.lax.dynamic_update_slice_in_dim(o, n, at, 1), old, new)


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

    A checkpoint holds the policies of all iterations and not the tuples: these follow from the policies that collected
    them, and are collected anew, uncounted, when a run is resumed.
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
            buffer = buffer.add(collect(past_key, past, _at(history, past), model.evaluation()))
        buffer = buffer.add(collect(collect_key, t, policy, model))
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
