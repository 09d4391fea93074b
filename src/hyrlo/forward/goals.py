"""What the estimators that follow a gradient aim at: mean kernel features of the offline states of the next steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hyrlo.data.states import ObservationDataset
from hyrlo.distances import Compared, StateUnits, compared_bandwidth, compared_features

WIDTHS = (
    0.5,
    1.0,
    2.0,
    4.0,
)  # of the kernels, in median distances: narrow ones match details, wide ones pull from afar
LEAST_VARIANCE = 0.05  # along a direction of correlated states, where each dimension has variance 1

Units = Literal["all", "step", "joint"]


class Goals(NamedTuple):
    """Goals of the next k steps: mean features of their offline states, how features are computed (states are whitened
    and turned first), and which of the steps exist."""

    means: Float[Array, "k f"]
    frequencies: Float[Array, "k d f"]
    units: StateUnits
    """One for each step."""
    turn: Float[Array, "k d d"]
    real: Bool[Array, " k"]


@dataclass(frozen=True)
class GoalMaker:
    """Makes the goals of any step from the offline states."""

    data: ObservationDataset
    frequencies: Float[Array, "d f"]
    of_all: StateUnits
    """By all offline states."""
    units: Units
    moments: float

    def after(self, h: int, stop: int, k: int) -> Goals:
        """Goals of steps h + 1 … stop, padded to k steps so that every h has the same shape."""
        steps = [self.data.padded(min(h + j, stop)) for j in range(1, k + 1)]
        states, weights = (jnp.stack(x) for x in zip(*steps, strict=True))
        made = mean_features(states, weights, self.frequencies, self.of_all, self.units, self.moments)
        return Goals(*made, jnp.arange(k) < stop - h)


def features_of(states: Float[Array, "n obs"], goal: Goals, moments: float) -> Float[Array, "n f"]:
    """Features to compare with the mean features of one goal."""
    return embed(turned(goal.units(states), goal.turn), goal.frequencies, moments)


@eqx.filter_jit
def mean_features(
    states: Float[Array, "k m obs"],
    weights: Float[Array, "k m"],
    frequencies: Array,
    of_all: StateUnits,
    units: Units,
    moments: float,
) -> tuple[Array, Array, StateUnits, Array]:
    """All fields of `Goals` but the last. Each step has kernels of several widths, in its own median distances."""
    widths = jnp.resize(jnp.asarray(WIDTHS), (frequencies.shape[1],))

    def one(args: tuple[Array, Array]) -> tuple[Array, Array, StateUnits, Array]:
        states, weights = args
        own = of_all if units == "all" else of_all.of_step(states, weights)
        compared = own(states)
        turn = decorrelating(compared, weights) if units == "joint" else jnp.eye(compared.white.shape[1])
        compared = turned(compared, turn)
        width = compared_bandwidth(compared, compared, weights, weights)
        scaled = frequencies / (widths * jnp.maximum(width, 0.05))
        return weights @ embed(compared, scaled, moments), scaled, own, turn

    return jax.lax.map(one, (states, weights))


def turned(compared: Compared, turn: Float[Array, "d d"]) -> Compared:
    return Compared(compared.white @ turn, compared.ended)


def embed(compared: Compared, frequencies: Float[Array, "d f"], moments: float) -> Float[Array, "n e"]:
    """Random features and, if they have a weight, first and second moments of the states that go on."""
    bell = compared_features(compared, frequencies, jnp.ones(()))
    if not moments:
        return bell
    going, white = (1 - compared.ended)[:, None], compared.white
    return jnp.concatenate([bell, moments**0.5 * going * white, (moments / 2) ** 0.5 * going * white**2], axis=1)


def decorrelating(compared: Compared, weights: Float[Array, " m"]) -> Float[Array, "d d"]:
    """The symmetric matrix after which states that go on have variance 1 in every direction in which they vary."""
    weights = weights * (1 - compared.ended)
    weights = weights / jnp.maximum(weights.sum(), 1e-12)
    variances, axes = jnp.linalg.eigh((weights[:, None] * compared.white).T @ compared.white)
    return axes / jnp.sqrt(jnp.maximum(variances, LEAST_VARIANCE)) @ axes.T


def unbiased_distance2(seen: Float[Array, "n f"], mean: Float[Array, " f"]) -> Float[Array, ""]:
    """‖E[seen] − mean‖² without the diagonal, which would reward a policy for less spread."""
    n, total = len(seen), seen.sum(axis=0)
    return (total @ total - jnp.sum(seen**2)) / (n * (n - 1)) - 2 * total @ mean / n + mean @ mean
