"""Whitening: inputs of networks and kernels scaled to mean 0 and standard deviation 1, dimension by dimension."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

LIMIT = 8.0  # standard deviations: keeps inputs bounded far from the states that the whitening was computed from
LEAST_SCALE = 1e-6  # dimensions that vary less are only shifted


class Whitening(eqx.Module):
    """`(x − shift) / scale`, clipped at ±8."""

    shift: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def of(cls, states: Any, weights: Float[Array, " n"] | None = None) -> Whitening:
        """By the mean and standard deviation of `states` (n, d), which may be weighted. Constant dimensions have scale 1."""
        if weights is None:
            shift, scale = states.mean(axis=0), states.std(axis=0)
        else:
            total = jnp.maximum(weights.sum(), 1.0)
            shift = (weights[:, None] * states).sum(axis=0) / total
            scale = jnp.sqrt((weights[:, None] * (states - shift) ** 2).sum(axis=0) / total)
        return cls(jnp.asarray(shift), jnp.where(scale > LEAST_SCALE, scale, 1.0))

    @classmethod
    def identity(cls, size: int) -> Whitening:
        return cls(jnp.zeros(size), jnp.ones(size))

    def with_identity(self, size: int) -> Whitening:
        """The same, followed by `size` dimensions that stay as they are."""
        return Whitening(jnp.pad(self.shift, (0, size)), jnp.pad(self.scale, (0, size), constant_values=1.0))

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jnp.clip((x - self.shift) / self.scale, -LIMIT, LIMIT)
