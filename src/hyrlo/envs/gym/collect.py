"""Collects the states, or the tuples, of a behaviour policy in a Gymnasium environment, as logs hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from hyrlo.core.access import Recorded
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.memory import require_memory
from hyrlo.core.policies import Actions, Policy, Step
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset, Transitions
from hyrlo.envs.gym.world import GymWorld

AT_ONCE = 2**25
"""Numbers in memory at a time, approximately: every step of every episode is recorded."""


class Noisy(Policy):
    """A policy whose actions are replaced by uniform ones with probability `epsilon`."""

    policy: Policy
    uniform: Policy
    epsilon: Float[Array, ""]

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        coin_key, uniform_key, policy_key = jax.random.split(key, 3)
        noisy = jax.random.bernoulli(coin_key, self.epsilon, (len(observations),))
        uniform = self.uniform.act(uniform_key, observations, h)
        noisy = noisy.reshape(-1, *[1] * (uniform.ndim - 1))
        return jnp.where(noisy, uniform, self.policy.act(policy_key, observations, h))

    def rows(self, start: int, n: int) -> Policy:
        return Noisy(self.policy.rows(start, n), self.uniform, self.epsilon)


def collect_states(
    world: GymWorld, policies: Sequence[Policy], episodes: int, epsilon: float = 0.0, seed: int = 0
) -> ObservationDataset:
    """The environment's own observations, `episodes` split evenly over `policies`; uniform actions if there are none.

    An episode that ended has no states after the one it ended with, so that later steps have fewer states.
    """
    parts: list[list[np.ndarray]] = [[] for _ in range(world.horizon + 1)]
    for batch in _batches(world, policies, episodes, epsilon, seed):
        for h, states in enumerate(np.concatenate([batch.states, batch.next_states[-1:]])):
            parts[h].append(states[states[:, -1] == 0, :-1])
    steps = [np.concatenate(states) for states in parts]
    last = max(h for h, states in enumerate(steps) if len(states))
    return ObservationDataset(tuple(steps[: last + 1]), f"{world.name} states, seed {seed}")


def collect_transitions(
    world: GymWorld, policies: Sequence[Policy], episodes: int, epsilon: float = 0.0, seed: int = 0
) -> TransitionDataset:
    """The tuples of the same episodes, with the algorithms' actions: 0 … n−1, or vectors in [−1, 1]."""
    parts: list[list[Transitions]] = [[] for _ in range(world.horizon)]
    for batch in _batches(world, policies, episodes, epsilon, seed):
        over = np.zeros(len(batch.returns), bool)
        actions = np.clip(batch.actions, -1, 1) if world.spec.action_size else batch.actions  # as the environment does
        arrays = (batch.states[..., :-1], actions, batch.rewards, batch.next_states[..., :-1], batch.ended)
        for h, step in enumerate(zip(*arrays, strict=True)):
            parts[h].append(Transitions(*(np.asarray(array)[~over] for array in step)))
            over = np.asarray(batch.ended[h])
    steps = [Transitions(*(np.concatenate(column) for column in zip(*part, strict=True))) for part in parts]
    running = tuple(step for step in steps if len(step.states))
    return TransitionDataset(running, f"{world.name} transitions, seed {seed}")


def _batches(
    world: GymWorld, policies: Sequence[Policy], episodes: int, epsilon: float, seed: int
) -> Iterator[Recorded]:
    """All steps of the episodes, as many at a time as memory allows."""
    if not 0 <= epsilon <= 1:
        raise HyrloError(f"epsilon is {epsilon}; give a probability")
    size = 4 * world.horizon * world.env.size  # a state of every step is kept, of episodes that do not end early
    require_memory(episodes * size, f"{world.name}: {episodes:,} episodes of {world.horizon:,} steps", "give fewer")
    uniform = world.spec.uniform()
    chosen: list[Policy] = [Noisy(p, uniform, jnp.asarray(epsilon)) for p in policies]
    shares = _split(episodes, max(1, len(chosen)))
    for number, (policy, share) in enumerate(zip(chosen or [uniform], shares, strict=True)):
        key = jax.random.fold_in(Keys.of_seed(seed).data, number)
        yield from _play(world, policy, share, key)


def _split(total: int, parts: int) -> list[int]:
    return [total // parts + (number < total % parts) for number in range(parts)]


def _play(world: GymWorld, policy: Policy, episodes: int, key: PRNGKeyArray) -> Iterator[Recorded]:
    spec, model = world.spec, world.trace_model()
    most = max(world.config.num_envs, AT_ONCE // (spec.horizon * spec.observation_size))
    for begin in range(0, episodes, most):
        n = min(most, episodes - begin)
        batch = model.record(jax.random.fold_in(key, begin), policy, n, tuple(range(spec.horizon)))
        yield jax.tree.map(np.asarray, batch)
