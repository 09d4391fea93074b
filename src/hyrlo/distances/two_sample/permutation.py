"""Permutation test of the unbiased squared MMD, step by step."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hyrlo.distances.mmd import compared_kernel
from hyrlo.distances.two_sample.samples import PaddedStates, Pool, median_distance


class MmdTest(NamedTuple):
    """Unbiased squared MMD of every step, its p-value, and the 95 % quantile over random splits of the pool (`null`)."""

    mmd2: Float[Array, " steps"]
    p_value: Float[Array, " steps"]
    null: Float[Array, " steps"]
    bandwidth: Float[Array, " steps"]
    """Kernel width, in standard deviations of the pool."""


def mmd_test(roll_in: PaddedStates, data: PaddedStates, permutations: int, seed: int, ends: bool = False) -> MmdTest:
    """Permutation test of the unbiased MMD. Steps run one after the other, so that memory holds one kernel matrix.

    `ends`: the last dimension says whether the episode has ended.
    """
    rng = np.random.default_rng(seed)
    real = [
        np.concatenate([np.arange(x.states.shape[1]) < x.counts[h] for x in (roll_in, data)])
        for h in range(len(data.counts))
    ]
    drawn = np.zeros((len(real), permutations, len(real[0])), bool)
    for h, rows in enumerate(real):
        first = np.arange(rows.sum()) < roll_in.counts[h]
        drawn[h][:, rows] = rng.permuted(np.tile(first, (permutations, 1)), axis=1)
    return _mmd_test(roll_in, data, jnp.asarray(drawn), ends)


@partial(jax.jit, static_argnames="ends")
def _mmd_test(roll_in: PaddedStates, data: PaddedStates, drawn: Bool[Array, "steps b p"], ends: bool) -> MmdTest:
    """`drawn` marks the rows of the first sample in random splits of the pool."""

    def one_step(step: tuple[Array, Array, Array, Array, Array]) -> MmdTest:
        x, n, y, m, first = step
        pool = Pool.of(x, n, y, m, ends)
        width = median_distance(pool, len(x))
        kernel = compared_kernel(pool.compared, pool.compared, width)
        kernel *= (pool.real[:, None] & pool.real) & ~jnp.eye(len(kernel), dtype=bool)  # unbiased: no diagonal
        everything = kernel.sum()

        def statistic(first: Float[Array, "b p"]) -> Float[Array, " b"]:
            """Squared MMD of splits. `first` is 1 on the rows of the first sample; the other real rows are the second."""
            towards = first @ kernel
            within = jnp.sum(towards * first, axis=1)
            between = towards.sum(axis=1) - within
            others = everything - within - 2 * between
            return within / (n * (n - 1.0)) + others / (m * (m - 1.0)) - 2 * between / (n * m)

        observed = statistic(1.0 * (~pool.is_data & pool.real)[None])[0]
        permuted = statistic(1.0 * first)
        p_value = (1 + jnp.sum(permuted >= observed)) / (len(first) + 1)
        return MmdTest(observed, p_value, jnp.quantile(permuted, 0.95), width)

    return jax.lax.map(one_step, (*roll_in, *data, drawn))
