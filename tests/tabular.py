"""A random finite-horizon MDP with one-hot observations, and its exact solution by dynamic programming."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hyrlo.access import Spec


class TabularMDP(eqx.Module):
    initial_distribution: jax.Array  # (S,)
    transitions: jax.Array  # (H, S, A, S)
    rewards: jax.Array  # (H, S, A)

    @classmethod
    def random(cls, seed: int, horizon: int, states: int, actions: int) -> TabularMDP:
        rng = np.random.default_rng(seed)
        transitions = rng.dirichlet(np.full(states, 0.3), size=(horizon, states, actions))
        rewards = rng.uniform(size=(horizon, states, actions)) / horizon
        return cls(*(jnp.asarray(x, jnp.float32) for x in (rng.dirichlet(np.ones(states)), transitions, rewards)))

    @property
    def spec(self) -> Spec:
        horizon, states, actions = self.rewards.shape
        return Spec(horizon, states, actions)

    def initial(self, key: Any, n: int) -> jax.Array:
        return jax.random.categorical(key, jnp.log(self.initial_distribution), shape=(n,))

    def observe(self, key: Any, latent: jax.Array, h: Any) -> jax.Array:
        return jax.nn.one_hot(latent, self.rewards.shape[1])

    def step(self, key: Any, latent: jax.Array, actions: jax.Array, h: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        following = jax.random.categorical(key, jnp.log(self.transitions[h, latent, actions]))
        return following, self.rewards[h, latent, actions], jnp.zeros(latent.shape, bool)

    def decode(self, observations: jax.Array) -> jax.Array:
        return jnp.argmax(observations, axis=1)

    def optimal_q(self) -> np.ndarray:
        """Exact Q* of shape (H, S, A)."""
        rewards, transitions = np.asarray(self.rewards), np.asarray(self.transitions)
        q, value = np.zeros_like(rewards), np.zeros(rewards.shape[1])
        for h in reversed(range(len(rewards))):
            q[h] = rewards[h] + transitions[h] @ value
            value = q[h].max(axis=1)
        return q

    def occupancy(self, policy: np.ndarray) -> np.ndarray:
        """Exact state occupancy (H+1, S) of action probabilities (H, S, A)."""
        occupancy = [np.asarray(self.initial_distribution)]
        for h, transition in enumerate(np.asarray(self.transitions)):
            occupancy.append(np.einsum("s,sa,sat->t", occupancy[-1], policy[h], transition))
        return np.stack(occupancy)

    def value(self, policy: np.ndarray) -> float:
        """Exact value of action probabilities (H, S, A)."""
        return float(np.sum(self.occupancy(policy)[:-1, :, None] * policy * np.asarray(self.rewards)))
