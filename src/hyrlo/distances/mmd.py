"""Maximum mean discrepancy with the RBF kernel `k(x, y) = exp(-|x - y|² / 2σ²)`, σ by the median trick.

States are compared in the units of `StateUnits`, with *ended* as a place of its own (units.py).

Two forms of the same IPM: exact, in blocks so that memory grows with N and not with N², and by random Fourier features.
All estimates keep the kernel's diagonal (V-statistics): dropping it rewards weights that collapse onto few samples.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hyrlo.core.networks import pick
from hyrlo.distances.units import Compared

BLOCK = 512


def squared_distances(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    square = jnp.sum(x**2, axis=1)[:, None] + jnp.sum(y**2, axis=1)[None, :] - 2 * x @ y.T
    return jnp.maximum(square, 0.0)


def median_bandwidth(
    x: Float[Array, "n d"],
    y: Float[Array, "m d"],
    x_counts: Bool[Array, " n"] | None = None,
    y_counts: Bool[Array, " m"] | None = None,
    most: int = 256,
) -> Float[Array, ""]:
    """σ: the median distance within the pool of at most `most` evenly spaced samples each of `x` and `y`, of those that
    count."""
    parts = [evenly_spaced(s, counts, most) for s, counts in ((x, x_counts), (y, y_counts))]
    pool, real = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    above = jnp.triu_indices(len(pool), k=1)
    squares = jnp.where((real[:, None] & real)[above], squared_distances(pool, pool)[above], jnp.nan)
    median = jnp.nanmedian(squares)
    # If more than half of the pairs are equal, up to rounding, take 1.
    return jnp.where(median > 1e-5 * jnp.nanmax(squares), jnp.sqrt(median), 1.0)


def evenly_spaced(
    x: Float[Array, "n d"], counts: Bool[Array, " n"] | None, most: int
) -> tuple[Float[Array, "k d"], Bool[Array, " k"]]:
    """At most `most` of the samples that count, and which of the rows are such."""
    counts = jnp.ones(len(x), bool) if counts is None else counts
    total, order = counts.sum(), jnp.argsort(~counts, stable=True)
    rows = (jnp.arange(min(most, len(x))) * jnp.maximum(total / most, 1.0)).astype(int)
    return x[order[jnp.minimum(rows, len(x) - 1)]], rows < total


def compared_bandwidth(
    x: Compared, y: Compared, x_weights: Array | None = None, y_weights: Array | None = None, most: int = 256
) -> Float[Array, ""]:
    """σ by the states of episodes that go on, of those with a weight."""
    x_counts, y_counts = (
        (s.ended < 0.5) & (True if weights is None else weights > 0) for s, weights in ((x, x_weights), (y, y_weights))
    )
    return median_bandwidth(x.white, y.white, x_counts, y_counts, most)


def kernel_mean(
    at: Float[Array, "n d"], points: Float[Array, "m d"], weights: Float[Array, " m"], bandwidth: Float[Array, ""]
) -> Float[Array, " n"]:
    """`Σ_j weights_j k(at_i, points_j)`, a block of rows at a time."""
    rows = -(-len(at) // BLOCK)
    padded = jnp.pad(at, ((0, rows * BLOCK - len(at)), (0, 0))).reshape(rows, BLOCK, -1)

    def one_block(block: Float[Array, "b d"]) -> Float[Array, " b"]:
        return jnp.exp(-squared_distances(block, points) / (2 * bandwidth**2)) @ weights

    return jax.lax.map(one_block, padded).reshape(-1)[: len(at)]


def compared_kernel(x: Compared, y: Compared, bandwidth: Float[Array, ""]) -> Float[Array, "n m"]:
    """The kernel with *ended* as a place of its own."""
    states = jnp.exp(-squared_distances(x.white, y.white) / (2 * bandwidth**2))
    return jnp.outer(1 - x.ended, 1 - y.ended) * states + jnp.outer(x.ended, y.ended)


def compared_mean(
    at: Compared, points: Compared, weights: Float[Array, " m"], bandwidth: Float[Array, ""]
) -> Float[Array, " n"]:
    """`Σ_j weights_j k(at_i, points_j)` with the same kernel, a block of rows at a time."""
    states = kernel_mean(at.white, points.white, weights * (1 - points.ended), bandwidth)
    return (1 - at.ended) * states + at.ended * (weights @ points.ended)


@jax.jit
def mmd2(
    x: Float[Array, "n d"],
    y: Float[Array, "m d"],
    x_weights: Float[Array, " n"] | None = None,
    y_weights: Float[Array, " m"] | None = None,
    bandwidth: Float[Array, ""] | float | None = None,
) -> Float[Array, ""]:
    """Squared MMD between two samples. Weights default to the mean; they need not sum to one."""
    wx = jnp.full(len(x), 1 / len(x)) if x_weights is None else x_weights
    wy = jnp.full(len(y), 1 / len(y)) if y_weights is None else y_weights
    # Centring keeps distances exact in float32 far from the origin. The centre is the same for (x, y) and (y, x).
    centre = (x.mean(axis=0) + y.mean(axis=0)) / 2
    x, y = x - centre, y - centre
    width = median_bandwidth(x, y) if bandwidth is None else jnp.asarray(bandwidth)
    within_x = wx @ kernel_mean(x, x, wx, width)
    within_y = wy @ kernel_mean(y, y, wy, width)
    return jnp.maximum(within_x + within_y - 2 * wx @ kernel_mean(x, y, wy, width), 0.0)


def random_features(
    x: Float[Array, "n d"], frequencies: Float[Array, "d f"], bandwidth: Float[Array, ""]
) -> Float[Array, "n 2f"]:
    """Features whose inner product is the RBF kernel in expectation over standard normal `frequencies`."""
    return jnp.concatenate(cos_sin(x @ (frequencies / bandwidth)), axis=1) / jnp.sqrt(frequencies.shape[1])


def compared_features(
    x: Compared, frequencies: Float[Array, "d f"], bandwidth: Float[Array, ""]
) -> Float[Array, "n 2f+1"]:
    """`[(1 − e) φ(s), e]`: random features of states, and whether the episode has ended."""
    states = random_features(x.white, frequencies, bandwidth)
    return jnp.concatenate([(1 - x.ended)[:, None] * states, x.ended[:, None]], axis=1)


@jax.custom_jvp
def cos_sin(angles: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Cosine and sine, by the series of half the angle, reduced to one turn.

    As exact as the angle is in float32 (1e-6 up to 10), and several times as fast as JAX's on a CPU, which is not vectorised
    (`python -m benchmarks.waves`).
    """
    turns = angles / (2 * np.pi)
    half = np.pi * (turns - jnp.round(turns))
    sine, cosine = half * series(half**2, range(1, 12, 2)), series(half**2, range(0, 13, 2))
    return 1 - 2 * sine**2, 2 * sine * cosine


def series(square: Float[Array, "*n"], powers: range) -> Float[Array, "*n"]:
    """Σ ±xⁿ/n! over `powers`, divided by x if they are odd; `square` is x²."""
    total = jnp.zeros_like(square)
    for n in reversed(powers):
        total = total * square + (-1) ** (n // 2) / math.factorial(n)
    return total


@cos_sin.defjvp
def _cos_sin_slopes(angles: tuple[Array], along: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    cosine, sine = cos_sin(*angles)
    return (cosine, sine), (-sine * along[0], cosine * along[0])


# Witness classes of the min-max game, for the online samples of one step (s, a uniform, s') and the offline states of the
# next. `embed` estimates the difference of mean embeddings between a policy's next states and the
# offline ones; the best witness against the policy is that difference itself, and its value there is an `inner` product.


class ImportanceMMD(eqx.Module):
    """Random features, importance weights `A·π(a|s)` on the online samples: the paper's estimator.

    Centring the features at the offline mean looks like a free control variate, since the weights average one. It is not:
    with one action seen per state a rich policy can send every weight to zero, and only the mismatch of total mass, which
    centring removes, keeps it from doing so.
    """

    features: Float[Array, "n f"]
    offline_mean: Float[Array, " f"]
    actions: Int[Array, " n"]

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Float[Array, " f"]:
        weights = policy.shape[1] * pick(policy, self.actions[batch])
        return weights @ self.features[batch] / len(batch) - self.offline_mean

    def inner(self, witness: Float[Array, " f"], embedding: Float[Array, " f"]) -> Float[Array, ""]:
        return witness @ embedding


class RegressedMMD(eqx.Module):
    """Random features regressed on (latent state of s, a), then averaged over the policy's own actions.

    Without importance weights the variance is far smaller; the bias is that of the regression.
    """

    latents: Float[Array, "n latents"]
    head: Float[Array, "actions latents f"]
    mean: Float[Array, " f"]

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Float[Array, " f"]:
        share = policy.T @ self.latents[batch] / len(batch)
        return jnp.einsum("ak,akf->f", share, self.head) + self.mean

    def inner(self, witness: Float[Array, " f"], embedding: Float[Array, " f"]) -> Float[Array, ""]:
        return witness @ embedding


class ExactMMD(eqx.Module):
    """`ImportanceMMD` with the exact kernel: an embedding is its coefficients on the online samples, minus the offline mean.

    The offline mean is the same in every embedding, so it is not part of the coefficients.
    """

    online: Compared
    actions: Int[Array, " n"]
    offline_values: Float[Array, " n"]
    offline_norm2: Float[Array, ""]
    bandwidth: Float[Array, ""]

    @classmethod
    def create(
        cls,
        online: Compared,
        actions: Int[Array, " n"],
        offline: Compared,
        offline_weights: Float[Array, " m"],
    ) -> ExactMMD:
        width = compared_bandwidth(online, offline, None, offline_weights)
        norm2 = offline_weights @ compared_mean(offline, offline, offline_weights, width)
        return cls(online, actions, compared_mean(online, offline, offline_weights, width), norm2, width)

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Float[Array, " n"]:
        weights = policy.shape[1] * pick(policy, self.actions[batch])
        return jnp.zeros(len(self.actions)).at[batch].add(weights / len(batch))

    def inner(self, witness: Float[Array, " n"], embedding: Float[Array, " n"]) -> Float[Array, ""]:
        raw = embedding @ compared_mean(self.online, self.online, witness, self.bandwidth)
        return raw - (witness + embedding) @ self.offline_values + self.offline_norm2
