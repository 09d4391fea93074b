"""Whitening: inputs of networks and kernels scaled to mean 0 and standard deviation 1, dimension by dimension."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

LIMIT = 8.0  # standard deviations: keeps inputs bounded far from the states that the whitening was computed from
ROUNDING = 1e-6  # dimensions that vary less, as a share of their mean, are constant up to rounding


class Whitening(eqx.Module):
    """`(x − shift) / scale`, clipped at ±8."""

    shift: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def of(cls, states: Float[Array, "n d"], weights: Float[Array, " n"] | None = None) -> Whitening:
        """By the mean and standard deviation of `states`, which may be weighted. Constant dimensions have scale 1."""
        shift, deviation = moments(states, weights)
        return cls(shift, jnp.where(deviation > 0, deviation, 1.0))

    @classmethod
    def identity(cls, size: int) -> Whitening:
        return cls(jnp.zeros(size), jnp.ones(size))

    def with_identity(self, size: int) -> Whitening:
        """The same, followed by `size` dimensions that stay as they are."""
        return Whitening(jnp.pad(self.shift, (0, size)), jnp.pad(self.scale, (0, size), constant_values=1.0))

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jnp.clip((x - self.shift) / self.scale, -LIMIT, LIMIT)


def moments(
    states: Float[Array, "n d"], weights: Float[Array, " n"] | None = None
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Mean and standard deviation of every dimension; a deviation that is no more than rounding is 0.

    Centred twice: the first mean is only as exact as the states are large.
    """
    states = jnp.asarray(states)
    weights = jnp.ones(len(states)) if weights is None else weights
    weights = weights / jnp.maximum(weights.sum(), 1e-12)
    first = weights @ states
    second = weights @ (states - first)
    deviation = jnp.sqrt(weights @ (states - first - second) ** 2)
    mean = first + second
    return mean, jnp.where(deviation > ROUNDING * jnp.abs(mean), deviation, 0.0)
