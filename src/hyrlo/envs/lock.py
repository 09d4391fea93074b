"""The rich-observation combination lock (paper, appendix "Combination Lock Environment"), batched in JAX.

Each step has three latent states: two good, one bad. In a good state one of the A actions leads to a good state, all
others to the bad state, which is never left. The last correct action pays 1. A wrong action in a good state pays
`anti_reward` with probability 1/2, which misleads greedy learners. An observation is the latent state and the step, one-hot,
with noise, times a Hadamard matrix.

For the appendix "Inadmissible Offline" there are data that no policy can produce (`inadmissible_observations`), and an
adversarial lock whose first step is made so that matching such data misses the only state from which it opens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.memory import require_memory
from hyrlo.core.policies import Step
from hyrlo.core.ranges import Finite, NonNegative, Options, Seed, TwoOrMore

LATENTS = 3
BAD = 2
OPENING = 0.1
"""Adversarial lock: probability that a correct first action leads to the only state from which the lock still opens."""
SLIP = 0.05
"""Adversarial lock: probability that a wrong first action leads to state 1, which the correct one leads to as well."""
INADMISSIBLE_HORIZON = 10
"""Inadmissible data give the bad state of step h the probability 1 − 0.1 h, so they end here."""


@dataclass(frozen=True)
class LockConfig(Options):
    """A lock. `seed` draws the combination; runs with other training seeds use the same lock."""

    actions: TwoOrMore = 10
    noise: NonNegative = 0.1
    """Standard deviation of the observation noise, before the Hadamard matrix."""
    anti_reward: Finite = 0.1
    """Paid with probability 1/2 for a wrong action in a good state."""
    seed: Seed = 0
    """Draws the combination; independent of the run's seed."""
    behaviour: Literal["epsilon-greedy", "hyq"] = "epsilon-greedy"
    """Who made the offline data: the paper's ε-greedy policy, or that of the HyQ authors, which also acts uniformly at
    step H/2."""


class Lock(eqx.Module):
    """The lock as a JAX environment; the latent state is 0 or 1 (good) or 2 (bad).

    The adversarial lock differs at two steps. At h = 0 a correct action leads to state 0 with probability 0.1, else to
    state 1; a wrong one to state 1 with probability 0.05, else to state 2. At h = 1 state 1 is as bad as state 2.
    """

    correct: Int[Array, "horizon 2"]
    hadamard: Float[Array, "used obs"]
    horizon: int = eqx.field(static=True)
    config: LockConfig = eqx.field(static=True)
    adversarial: bool = eqx.field(static=True, default=False)

    @classmethod
    def create(cls, horizon: int, config: LockConfig = LockConfig(), adversarial: bool = False) -> Lock:
        if horizon < 1:
            raise HyrloError(f"lock: horizon is {horizon}; give a whole number of at least 1")
        if adversarial and horizon < 2:
            raise HyrloError(f"lock-adversarial: horizon is {horizon}; its first two steps differ, so give at least 2")
        used = LATENTS + horizon + 1
        size = 2 ** int(np.ceil(np.log2(used)))
        require_memory(
            12 * size * size, f"lock: horizon {horizon:,}, states of {size:,} numbers", "give a smaller horizon"
        )
        combination = np.random.default_rng(config.seed).integers(config.actions, size=(horizon, 2))
        hadamard = jnp.asarray(scipy.linalg.hadamard(size)[:used], jnp.float32)
        return cls(jnp.asarray(combination), hadamard, horizon, config, adversarial)

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
        if self.adversarial:
            good &= (latent == 0) | (h != 1)
        right = good & (actions == self.correct[h, jnp.minimum(latent, 1)])
        opened = right & (h == self.horizon - 1)
        rewards = opened + self.config.anti_reward * (good & ~right & coin)
        following = jnp.where(right, coin.astype(latent.dtype), BAD)
        if self.adversarial:
            following = jnp.where(good & (h == 0), self._first_step(key, right), following)
        return following, rewards, opened

    def _first_step(self, key: PRNGKeyArray, right: Bool[Array, " n"]) -> Int[Array, " n"]:
        """Where the adversarial lock's first action leads; drawn apart from the coin, which pays the anti-reward."""
        draw = jax.random.uniform(jax.random.fold_in(key, 1), right.shape)
        return jnp.where(right, jnp.where(draw < OPENING, 0, 1), jnp.where(draw < SLIP, 1, BAD))

    def decode(self, observations: Float[Array, "n obs"]) -> Int[Array, " n"]:
        """The latent state of an observation, for the reset model."""
        return jnp.argmax(observations @ self.hadamard[:LATENTS].T, axis=1)


# The functions below know the combination. They generate data and evaluate; no algorithm calls them.


def optimal_actions(lock: Lock, latent: Int[Array, " n"], h: Step) -> Int[Array, " n"]:
    """The correct action in a good state; any action in the bad state."""
    return lock.correct[h, jnp.minimum(latent, 1)]


def optimal_success(lock: Lock) -> float:
    """The largest possible probability of opening the lock."""
    return OPENING if lock.adversarial else 1.0


def optimal_value(lock: Lock) -> float:
    """The largest expected return: that of opening the lock, or the expected anti-reward if that is more.

    The adversarial lock adds nothing to this. A correct first action earns something only if it leads to state 0, worth
    max(1, c) with c half the anti-reward; a wrong one earns c, wherever it leads: max(0.1 max(1, c), c) = max(0.1, c).
    """
    return max(optimal_success(lock), 0.5 * lock.config.anti_reward)


def behaviour_occupancy(lock: Lock, epsilon: float) -> Float[np.ndarray, "steps 3"]:
    """Exact latent occupancy of the ε-greedy behaviour policy at steps 0 … H of the standard lock."""
    if lock.adversarial:
        raise HyrloError("behaviour_occupancy: is that of the standard lock; see inadmissible_occupancy")
    steps, wrong = np.arange(lock.horizon + 1), 1 - 1 / lock.config.actions
    good = 0.5 * (1 - epsilon * wrong) ** steps
    if lock.config.behaviour == "hyq":
        middle = lock.horizon // 2
        good *= np.where(steps > middle, (1 - wrong) / (1 - epsilon * wrong), 1.0)
    return np.stack([good, good, 1 - 2 * good], axis=1)


def inadmissible_occupancy(lock: Lock) -> Float[np.ndarray, "steps 3"]:
    """Exact latent distribution of the inadmissible data. The share of good states grows, which no policy can achieve."""
    if lock.horizon > INADMISSIBLE_HORIZON:
        raise HyrloError(
            f"inadmissible data: horizon is {lock.horizon}; the bad state's probability is 1 − 0.1 h, "
            f"so give {INADMISSIBLE_HORIZON} or less"
        )
    good = 0.05 * np.arange(lock.horizon + 1)
    occupancy = np.stack([good, good, 1 - 2 * good], axis=1)
    occupancy[0] = 0.5, 0.5, 0.0
    occupancy[1] = 0.1, 0.05, 0.85
    return occupancy


@eqx.filter_jit
def _behave(lock: Lock, key: PRNGKeyArray, n: int, epsilon: float) -> tuple[Array, Array, Array]:
    keys = Keys(key)

    def step(latent: Array, h: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        own = keys.at(h)
        explore = jax.random.bernoulli(own.explore, epsilon, (n,))
        if lock.config.behaviour == "hyq":
            explore |= h == lock.horizon // 2
        anything = jax.random.randint(own.action, (n,), 0, lock.config.actions)
        actions = jnp.where(explore, anything, optimal_actions(lock, latent, h))
        following, rewards, _ = lock.step(own.step, latent, actions, h)
        return following, (lock.observe(own.observe, latent, h), actions, rewards)

    # One step beyond the last, for its state alone: the action and reward of step H do not exist.
    _, (observations, actions, rewards) = jax.lax.scan(step, lock.initial(keys.start, n), jnp.arange(lock.horizon + 1))
    return observations, actions[:-1], rewards[:-1]


def _check_memory(lock: Lock, episodes: int) -> None:
    size = 8 * (lock.horizon + 1) * lock.hadamard.shape[1]  # in JAX and in NumPy
    require_memory(episodes * size, f"lock: {episodes:,} episodes of data", "give fewer")


def behaviour_trajectories(
    lock: Lock, key: PRNGKeyArray, episodes: int, epsilon: float | None = None
) -> tuple[Float[np.ndarray, "n steps obs"], Int[np.ndarray, "n horizon"], Float[np.ndarray, "n horizon"]]:
    """H + 1 states, H actions and H rewards of the ε-greedy behaviour policy (ε = 1/H by default)."""
    epsilon = 1 / lock.horizon if epsilon is None else epsilon
    _check_memory(lock, episodes)
    observations, actions, rewards = (np.asarray(x) for x in _behave(lock, key, episodes, epsilon))
    return observations.transpose(1, 0, 2), actions.T, rewards.T


def behaviour_observations(
    lock: Lock, key: PRNGKeyArray, episodes: int, epsilon: float | None = None
) -> Float[np.ndarray, "n steps obs"]:
    """The states of `behaviour_trajectories`."""
    return behaviour_trajectories(lock, key, episodes, epsilon)[0]


@eqx.filter_jit
def _draw_states(lock: Lock, key: PRNGKeyArray, n: int, occupancy: Float[Array, "steps 3"]) -> Array:
    def draw(h: Array) -> Array:
        latent_key, observe_key = jax.random.split(jax.random.fold_in(key, h))
        return lock.observe(observe_key, jax.random.choice(latent_key, LATENTS, (n,), p=occupancy[h]), h)

    return jax.lax.map(draw, jnp.arange(lock.horizon + 1))


def inadmissible_observations(lock: Lock, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "steps n obs"]:
    """`n` states of every step from `inadmissible_occupancy`, drawn independently: there are no trajectories."""
    _check_memory(lock, n)
    return np.asarray(_draw_states(lock, key, n, jnp.asarray(inadmissible_occupancy(lock))))


def latent_occupancy(lock: Lock, observations: Float[Array, "n obs"]) -> Float[np.ndarray, 3]:
    """Share of each latent state among observations of one step."""
    return np.bincount(np.asarray(lock.decode(jnp.asarray(observations))), minlength=LATENTS) / len(observations)
