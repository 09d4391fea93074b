"""Where a forward policy loses the offline states: on fresh episodes, which are counted as evaluation."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Policy
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits, compared_bandwidth
from hyrlo.distances.mmd import compared_kernel

EPISODES, MOST = 100, 500
NAMED = 3
"""Dimensions that a warning names."""
FAR = 0.2
"""MMD beyond what equal distributions give, from which on a policy has lost the states."""


class Lost(NamedTuple):
    """The first step at which the states are lost."""

    step: int
    distance: float
    floor: float
    """The distance that samples of equal distributions have."""
    dimensions: tuple[int, ...]
    """The dimensions that differ most, first the worst."""


def first_lost(model: TraceModel, policy: Policy, data: ObservationDataset, key: PRNGKeyArray) -> Lost | None:
    """The first step whose states are further from the offline ones than chance allows, by MMD."""
    steps = tuple(range(model.spec.horizon))
    online = model.evaluation().record(Keys(key).compare, policy, EPISODES, steps).next_states
    of_all, rng = StateUnits.of_steps(data.steps, model.spec.ends), np.random.default_rng(0)
    for h in steps:
        size = min(MOST, max(len(x) for x in data.steps))  # the same at every step, so that one program serves all
        offline = rng.choice(data.at(h + 1), size, replace=len(data.at(h + 1)) < size)
        distance = float(distance_in(of_all, online[h], jnp.asarray(offline)))
        floor = (1 / EPISODES + 1 / min(size, len(data.at(h + 1)))) ** 0.5
        if distance > floor + FAR:
            worst = differing(of_all, np.asarray(online[h]), offline)
            return Lost(h + 1, distance, floor, tuple(worst[:NAMED].tolist()))
    return None


def differing(
    of_all: StateUnits, online: Float[np.ndarray, "n obs"], offline: Float[np.ndarray, "m obs"]
) -> Int[np.ndarray, " d"]:
    """The dimensions, by how much their quantiles differ in units of the offline states' spread; the largest first."""
    units = of_all.of_step(jnp.asarray(offline), jnp.ones(len(offline)))
    here, there = (np.asarray(units(jnp.asarray(x)).white) for x in (online, offline))
    shares = np.linspace(0.05, 0.95, 19)
    return np.argsort(-np.abs(np.quantile(here, shares, axis=0) - np.quantile(there, shares, axis=0)).mean(axis=0))


@eqx.filter_jit
def distance_in(of_all: StateUnits, online: Float[Array, "n obs"], offline: Float[Array, "m obs"]) -> Float[Array, ""]:
    """MMD in the units of the offline states."""
    units = of_all.of_step(offline, jnp.ones(len(offline)))
    here, there = units(online), units(offline)
    width = compared_bandwidth(here, there)
    means = [compared_kernel(x, y, width).mean() for x, y in ((here, here), (there, there), (here, there))]
    return jnp.sqrt(jnp.maximum(means[0] + means[1] - 2 * means[2], 0.0))


def warn_if_lost(model: TraceModel, policy: Policy, data: ObservationDataset, key: PRNGKeyArray, run: Run) -> None:
    """One line, where the forward pass has lost the states."""
    lost = first_lost(model, policy, data, key)
    if lost is not None:
        run.warn(
            f"the forward pass loses the offline states at step {lost.step}: MMD {lost.distance:.2f}, where equal "
            f"distributions give {lost.floor:.2f}; most in dimensions {', '.join(map(str, lost.dimensions))} (from 0); see "
            "`hyrlo diagnose`, try --forward with another estimator, or more data",
            phase="forward", step=lost.step, distance=lost.distance, floor=lost.floor, dimensions=list(lost.dimensions),
        )  # fmt: skip
