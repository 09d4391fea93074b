"""The rich-observation combination lock (paper, appendix "Combination Lock Environment"), batched in JAX.

Three latent states a step: two good, one bad. In each good state one action of A leads on to a good state, all others
to the bad state for ever. The last correct action pays 1; a wrong action in a good state pays `anti_reward` with
probability one half, so that greed leads astray. Observations hide the latent state in noise behind a Hadamard matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.access import Spec
from hyrlo.errors import HyrloError
from hyrlo.policies import Step

LATENTS = 3
BAD = 2


@dataclass(frozen=True)
class LockConfig:
    """A lock. `seed` draws the combination, so that data and training runs of any other seed meet the same lock."""

    actions: int = 10
    noise: float = 0.1
    """Standard deviation of the observation noise, before the Hadamard matrix."""
    anti_reward: float = 0.1
    """Paid with probability 1/2 for a wrong action in a good state."""
    seed: int = 0
    """Draws the combination; independent of the run's seed."""

    def __post_init__(self) -> None:
        if self.actions < 2:
            raise HyrloError(f"lock: actions is {self.actions}; a lock needs at least 2")
        if not (self.noise >= 0 and np.isfinite(self.noise)):
            raise HyrloError(f"lock: noise is {self.noise}; give a standard deviation of at least 0")


class Lock(eqx.Module):
    """The lock as a JAX environment; the latent state is 0 or 1 (good) or 2 (bad)."""

    correct: Int[Array, "horizon 2"]
    hadamard: Float[Array, "used obs"]
    horizon: int = eqx.field(static=True)
    config: LockConfig = eqx.field(static=True)

    @classmethod
    def create(cls, horizon: int, config: LockConfig = LockConfig()) -> Lock:
        if horizon < 1:
            raise HyrloError(f"lock: horizon is {horizon}; give a whole number of at least 1")
        used = LATENTS + horizon + 1
        size = 2 ** int(np.ceil(np.log2(used)))
        combination = np.random.default_rng(config.seed).integers(config.actions, size=(horizon, 2))
        hadamard = jnp.asarray(scipy.linalg.hadamard(size)[:used], jnp.float32)
        return cls(jnp.asarray(combination), hadamard, horizon, config)

    @property
    def spec(self) -> Spec:
        return Spec(self.horizon, self.hadamard.shape[1], self.config.actions)

    def initial(self, key: PRNGKeyArray, n: int) -> Int[Array, " n"]:
        return jax.random.randint(key, (n,), 0, 2)

    def observe(self, key: PRNGKeyArray, latent: Int[Array, " n"], h: Step) -> Float[Array, "n obs"]:
        used = jnp.arange(self.hadamard.shape[0])
        clean = (used == latent[:, None]) | (used == LATENTS + h)
        noise = self.config.noise * jax.random.normal(key, clean.shape)
        return (clean + noise) @ self.hadamard

    def step(
        self, key: PRNGKeyArray, latent: Int[Array, " n"], actions: Int[Array, " n"], h: Step
    ) -> tuple[Int[Array, " n"], Float[Array, " n"], Bool[Array, " n"]]:
        coin = jax.random.bernoulli(key, shape=latent.shape)
        good = latent != BAD
        right = good & (actions == self.correct[h, jnp.minimum(latent, 1)])
        opened = right & (h == self.horizon - 1)
        rewards = opened + self.config.anti_reward * (good & ~right & coin)
        return jnp.where(right, coin.astype(latent.dtype), BAD), rewards, opened

    def decode(self, observations: Float[Array, "n obs"]) -> Int[Array, " n"]:
        """The latent state behind an observation: what makes a reset model of the lock possible."""
        return jnp.argmax(observations @ self.hadamard[:LATENTS].T, axis=1)


# What follows knows the combination: it generates data and evaluates, and no algorithm calls it.


def optimal_actions(lock: Lock, latent: Int[Array, " n"], h: Step) -> Int[Array, " n"]:
    """The correct action in a good state; in the bad state all are alike."""
    return lock.correct[h, jnp.minimum(latent, 1)]


def optimal_value(lock: Lock) -> float:
    """The largest expected return: open the lock, or fall at once and take the coin's anti-reward where that pays more."""
    return max(1.0, 0.5 * lock.config.anti_reward)


def behaviour_occupancy(lock: Lock, epsilon: float) -> Float[np.ndarray, "steps 3"]:
    """Exact latent occupancy of the ε-greedy behaviour policy at steps 0 … H."""
    keep = 1 - epsilon * (1 - 1 / lock.config.actions)
    good = 0.5 * keep ** np.arange(lock.horizon + 1)
    return np.stack([good, good, 1 - 2 * good], axis=1)


@eqx.filter_jit
def _behave(lock: Lock, key: PRNGKeyArray, n: int, epsilon: float) -> tuple[Array, Array]:
    start_key, key = jax.random.split(key)

    def step(latent: Array, h: Array) -> tuple[Array, tuple[Array, Array]]:
        observe_key, explore_key, action_key, step_key = jax.random.split(jax.random.fold_in(key, h), 4)
        explore = jax.random.bernoulli(explore_key, epsilon, (n,))
        anything = jax.random.randint(action_key, (n,), 0, lock.config.actions)
        actions = jnp.where(explore, anything, optimal_actions(lock, latent, h))
        return lock.step(step_key, latent, actions, h)[0], (lock.observe(observe_key, latent, h), latent)

    _, (observations, latents) = jax.lax.scan(step, lock.initial(start_key, n), jnp.arange(lock.horizon + 1))
    return observations, latents


def behaviour_observations(
    lock: Lock, key: PRNGKeyArray, episodes: int, epsilon: float | None = None
) -> Float[np.ndarray, "n steps obs"]:
    """States of the ε-greedy behaviour policy (ε = 1/H unless told), as trajectories of H + 1 states."""
    epsilon = 1 / lock.horizon if epsilon is None else epsilon
    observations, _ = _behave(lock, key, episodes, epsilon)
    return np.asarray(observations).transpose(1, 0, 2)


def latent_occupancy(lock: Lock, observations: Float[Array, "n obs"]) -> Float[np.ndarray, 3]:
    """Share of each latent state among observations of one step."""
    return np.bincount(np.asarray(lock.decode(jnp.asarray(observations))), minlength=LATENTS) / len(observations)
