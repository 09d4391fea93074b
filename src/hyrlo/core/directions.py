"""The directions along which states vary more than their noise."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from hyrlo.core.whitening import moments

LEAST_NOISE = 0.05  # variance that is never explained in a dimension of variance 1


def unexplained(correlation: Float[Array, "d d"], most: int) -> Float[Array, " d"]:
    """The standard deviation of each dimension that the leading directions leave unexplained: its noise, in factor analysis."""
    variances, directions = jnp.linalg.eigh(correlation)
    explained = jnp.sum(variances[-most:] * directions[:, -most:] ** 2, axis=1)
    return jnp.sqrt(jnp.maximum(jnp.diagonal(correlation) - explained, LEAST_NOISE))


class PrincipalDirections(eqx.Module):
    """Coordinates along which states vary most, each of mean 0 and variance 1.

    States are measured in their noise, dimension by dimension, so that no unit and no offset of a single dimension matters.
    In units of their whole spread, the dimensions that tell states apart would count less than those that are all noise. An
    encoder of the coordinates is one of the states, with an offset, and the other way round.
    """

    mean: Float[Array, " obs"]
    directions: Float[Array, "obs k"]

    @classmethod
    def of(cls, states: Float[Array, "n obs"], most: int) -> PrincipalDirections:
        """Directions in which states do not vary at all are zero: scaled up, they would drown the others."""
        mean, deviation = moments(states)
        inverse = jnp.where(deviation > 0, 1 / jnp.where(deviation > 0, deviation, 1.0), 0.0)
        white = (states - mean) * inverse
        covariance = white.T @ white / len(white)
        most = min(most, states.shape[1])
        if most < states.shape[1]:
            noise = unexplained(covariance, most)
            inverse, covariance = inverse / noise, covariance / jnp.outer(noise, noise)
        variances, directions = jnp.linalg.eigh(covariance)
        varying = variances[-most:] > 1e-5 * variances[-1]
        scales = jnp.where(varying, 1 / jnp.sqrt(variances[-most:] + 1e-6), 0.0)
        return cls(mean, inverse[:, None] * directions[:, -most:] * scales)

    def __call__(self, states: Float[Array, "n obs"]) -> Float[Array, "n k"]:
        return (states - self.mean) @ self.directions

    def encoder_of_states(self, inside: Float[Array, "k+1 latents"]) -> Float[Array, "obs+1 latents"]:
        encoder = self.directions @ inside[:-1]
        return jnp.append(encoder, inside[-1:] - self.mean @ encoder, axis=0)

    def encoder_inside(self, encoder: Float[Array, "obs+1 latents"]) -> Float[Array, "k+1 latents"]:
        inside = jnp.linalg.lstsq(self.directions, encoder[:-1])[0]
        return jnp.append(inside, encoder[-1:] + self.mean @ encoder[:-1], axis=0)
