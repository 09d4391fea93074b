"""States of every step, padded to one size, and the pooled states of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hyrlo.core.whitening import Whitening
from hyrlo.distances.mmd import squared_distances

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
    """Roll-in states, then data states of one step, standardised together; constant dimensions become 0."""

    states: Float[Array, "p obs"]
    is_data: Bool[Array, " p"]
    real: Bool[Array, " p"]

    @classmethod
    def of(cls, roll_in: Array, n: Array, data: Array, m: Array) -> Pool:
        states = jnp.concatenate([roll_in, data])
        is_data = jnp.arange(len(states)) >= len(roll_in)
        real = jnp.concatenate([jnp.arange(len(roll_in)) < n, jnp.arange(len(data)) < m])
        shift = jnp.mean(states, axis=0, where=real[:, None])
        scale = jnp.std(states, axis=0, where=real[:, None])
        varies = scale > 1e-6 * (1 + jnp.abs(shift))
        return cls(jnp.where(varies, Whitening(shift, jnp.where(varies, scale, 1.0))(states), 0.0), is_data, real)


def median_distance(pool: Pool, n: int) -> Float[Array, ""]:
    """Median distance between real states, from at most NEIGHBOURS of each sample; 1 if it is 0. The roll-in has `n` rows."""
    rows = np.concatenate([np.arange(len(pool.states))[part][:NEIGHBOURS] for part in (slice(0, n), slice(n, None))])
    states, real = pool.states[rows], pool.real[rows]
    pairs = (real[:, None] & real) & (rows[:, None] < rows)
    median = jnp.nanmedian(jnp.where(pairs, squared_distances(states, states), jnp.nan))
    return jnp.where(median > 1e-6, jnp.sqrt(median), 1.0)
