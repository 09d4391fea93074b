"""Rewards without units: multiplying all rewards, or shifting them where no episode ends early, changes nothing.

The unit is the spread of the discounted returns seen so far, which becomes `VALUE`. Where no episode ends early, rewards are
counted from the least one, so that values are at least 0. Where episodes end, a shift would change what ending is worth, so
that there is none. When the unit changes, critics and temperature are rescaled so that they mean the same in the new one
(as in Pop-Art, van Hasselt et al. 2016).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

VALUE = 20.0
"""Spread of the returns in the units of the critics."""


class RewardUnits(eqx.Module):
    """What has been seen so far."""

    low: Float[Array, ""]
    """The least reward."""
    ends: Bool[Array, ""]
    """Whether an episode has ended before the horizon."""
    least: Float[Array, ""]
    most: Float[Array, ""]
    """Range of the discounted returns, 0 included."""

    @classmethod
    def unknown(cls) -> RewardUnits:
        return cls(jnp.asarray(jnp.inf), jnp.zeros((), bool), jnp.zeros(()), jnp.zeros(()))

    @classmethod
    def raw(cls) -> RewardUnits:
        """Rewards as they are."""
        return cls(jnp.zeros(()), jnp.ones((), bool), jnp.zeros(()), jnp.asarray(VALUE))

    @property
    def shift(self) -> Float[Array, ""]:
        return jnp.where(self.ends | jnp.isinf(self.low), 0.0, self.low)

    @property
    def scale(self) -> Float[Array, ""]:
        """Factor on rewards."""
        spread = self.most - self.least
        return jnp.where(spread > 0, VALUE / jnp.where(spread > 0, spread, 1.0), 1.0)

    @property
    def least_value(self) -> Float[Array, ""]:
        """The least discounted return, in the units of the critics."""
        return self.scale * self.least

    def __call__(self, rewards: Float[Array, " n"]) -> Float[Array, " n"]:
        return (rewards - self.shift) * self.scale

    def seen(self, rewards: Float[Array, "h n"], ended: Bool[Array, "h n"], gamma: float) -> RewardUnits:
        """With whole episodes; `ended` says whether they are over after each step. Rewards after the end are 0."""
        over = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
        low = jnp.minimum(self.low, jnp.min(rewards, where=~over, initial=jnp.inf))
        known = RewardUnits(low, self.ends | ended.any(), self.least, self.most)
        counted = jnp.where(over, 0.0, rewards - known.shift)
        step = lambda later, reward: (reward + gamma * later,) * 2  # noqa: E731
        returns = jax.lax.scan(step, jnp.zeros(counted.shape[1]), counted, reverse=True)[1]
        least = jnp.where(known.ends, jnp.minimum(self.least, returns.min()), 0.0)
        return RewardUnits(low, known.ends, least, jnp.maximum(self.most, returns.max()))
