"""States of every step, padded to one size, and the pooled states of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hyrlo.distances.mmd import compared_bandwidth
from hyrlo.distances.units import Compared, StateUnits

NEIGHBOURS = 100  # states of each sample from which the median distance is taken


class PaddedStates(NamedTuple):
    """States of every step in random order, padded to the same number. The first `counts[h]` of step h are real."""

    states: Float[Array, "steps n obs"]
    counts: Int[Array, " steps"]

    @classmethod
    def shuffled(cls, steps: Sequence[np.ndarray] | np.ndarray, seed: int) -> PaddedStates:
        rng = np.random.default_rng(seed)
        mixed = [np.asarray(states)[rng.permutation(len(states))] for states in steps]
        counts = [len(states) for states in mixed]
        filled = [np.pad(states, ((0, max(counts) - len(states)), (0, 0))) for states in mixed]
        return cls(jnp.asarray(np.stack(filled)), jnp.asarray(counts))

    def at_most(self, most: int) -> PaddedStates:
        return PaddedStates(self.states[:, :most], jnp.minimum(self.counts, most))

    def halves(self) -> tuple[PaddedStates, PaddedStates]:
        """The states at even and at odd positions."""
        return (
            PaddedStates(self.states[:, ::2], (self.counts + 1) // 2),
            PaddedStates(self.states[:, 1::2], self.counts // 2),
        )


class Pool(NamedTuple):
    """Roll-in states, then data states of one step. Both are whitened by all that go on, so that either may be the other."""

    compared: Compared
    inputs: Float[Array, "p obs"]
    """For networks."""
    is_data: Bool[Array, " p"]
    real: Bool[Array, " p"]

    @classmethod
    def of(cls, roll_in: Array, n: Array, data: Array, m: Array, ends: bool = False) -> Pool:
        states = jnp.concatenate([roll_in, data])
        is_data = jnp.arange(len(states)) >= len(roll_in)
        real = jnp.concatenate([jnp.arange(len(roll_in)) < n, jnp.arange(len(data)) < m])
        units = StateUnits.of(states, ends, 1.0 * real)
        return cls(units(states), units.inputs(states), is_data, real)


def median_distance(pool: Pool, n: int) -> Float[Array, ""]:
    """Median distance between real states that go on, at most NEIGHBOURS of each sample. The roll-in has `n` rows."""
    roll_in, data = (Compared(*(x[part] for x in pool.compared)) for part in (slice(0, n), slice(n, None)))
    return compared_bandwidth(roll_in, data, pool.real[:n], pool.real[n:], NEIGHBOURS)
