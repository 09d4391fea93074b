"""What the estimators that follow a gradient aim at: mean kernel features of the offline states of the next steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hyrlo.core.whitening import Whitening
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import median_bandwidth, random_features

WIDTHS = (
    0.5,
    1.0,
    2.0,
    4.0,
)  # of the kernels, in median distances: narrow ones match details, wide ones pull from afar
LEAST_SPREAD = 0.1  # of the states of one step, as a share of the spread of all states
LEAST_VARIANCE = 0.05  # along a direction of correlated states, where each dimension has variance 1

Units = Literal["all", "step", "joint"]


class Goals(NamedTuple):
    """Goals of the next k steps: mean features of their offline states, how features are computed (states are shifted,
    scaled and turned first), and which of the steps exist."""

    means: Float[Array, "k f"]
    frequencies: Float[Array, "k obs f"]
    whitening: Whitening
    """One for each step."""
    turn: Float[Array, "k obs obs"]
    real: Bool[Array, " k"]


@dataclass(frozen=True)
class GoalMaker:
    """Makes the goals of any step from the offline states."""

    data: ObservationDataset
    frequencies: Float[Array, "obs f"]
    whitening: Whitening
    """Of all offline states."""
    ends: bool
    units: Units
    moments: float

    def after(self, h: int, stop: int, k: int) -> Goals:
        """Goals of steps h + 1 … stop, padded to k steps so that every h has the same shape."""
        steps = [self.data.padded(min(h + j, stop)) for j in range(1, k + 1)]
        states, weights = (jnp.stack(x) for x in zip(*steps, strict=True))
        made = mean_features(states, weights, self.frequencies, self.whitening, self.ends, self.units, self.moments)
        return Goals(*made, jnp.arange(k) < stop - h)


def features_of(states: Float[Array, "n obs"], goal: Goals, moments: float) -> Float[Array, "n f"]:
    """Features to compare with the mean features of one goal."""
    return embed(goal.whitening(states) @ goal.turn, goal.frequencies, moments)


@eqx.filter_jit
def mean_features(
    states: Float[Array, "k m obs"],
    weights: Float[Array, "k m"],
    frequencies: Array,
    whitening: Whitening,
    ends: bool,
    units: Units,
    moments: float,
) -> tuple[Array, Array, Whitening, Array]:
    """All fields of `Goals` but the last. Each step has kernels of several widths, in its own median distances."""
    widths = jnp.resize(jnp.asarray(WIDTHS), (frequencies.shape[1],))

    def one(args: tuple[Array, Array]) -> tuple[Array, Array, Whitening, Array]:
        own = whitening if units == "all" else own_whitening(*args, whitening, ends)
        white = own(args[0])
        turn = decorrelating(white, args[1]) if units == "joint" else jnp.eye(white.shape[1])
        white = white @ turn
        scaled = frequencies / (widths * jnp.maximum(median_bandwidth(white, white), 0.05))
        return args[1] @ embed(white, scaled, moments), scaled, own, turn

    return jax.lax.map(one, (states, weights))


def embed(white: Float[Array, "n obs"], frequencies: Float[Array, "obs f"], moments: float) -> Float[Array, "n e"]:
    """Random features and, if they have a weight, first and second moments."""
    bell = random_features(white, frequencies, jnp.ones(()))
    if not moments:
        return bell
    return jnp.concatenate([bell, moments**0.5 * white, (moments / 2) ** 0.5 * white**2], axis=1)


def decorrelating(white: Float[Array, "m obs"], weights: Float[Array, " m"]) -> Float[Array, "obs obs"]:
    """The symmetric matrix after which states have variance 1 in every direction in which they vary."""
    variances, axes = jnp.linalg.eigh((weights[:, None] * white).T @ white)
    return axes / jnp.sqrt(jnp.maximum(variances, LEAST_VARIANCE)) @ axes.T


def own_whitening(
    states: Float[Array, "m obs"], weights: Float[Array, " m"], of_all: Whitening, ends: bool
) -> Whitening:
    """By the states of one step; its scale is not far below that of all states.

    Where episodes can end, only the states of those that have not are counted.
    """
    if ends:
        going = weights * (states[:, -1] < 0.5)
        weights = jnp.where(going.sum() > 0, going / jnp.maximum(going.sum(), 1e-12), weights)
    mean = weights @ states
    return Whitening(mean, jnp.maximum(jnp.sqrt(weights @ (states - mean) ** 2), LEAST_SPREAD * of_all.scale))


def unbiased_distance2(seen: Float[Array, "n f"], mean: Float[Array, " f"]) -> Float[Array, ""]:
    """‖E[seen] − mean‖² without the diagonal, which would reward a policy for less spread."""
    n, total = len(seen), seen.sum(axis=0)
    return (total @ total - jnp.sum(seen**2)) / (n * (n - 1)) - 2 * total @ mean / n + mean @ mean
