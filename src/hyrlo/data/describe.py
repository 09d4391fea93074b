"""What the dimensions of states are like."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from hyrlo.data.states import ObservationDataset

SAMPLED = 2**18
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Dimension(NamedTuple):
    """The finite values of one dimension over all steps."""

    name: str
    low: float
    median: float
    high: float
    constant: bool


def dimension_names(data: ObservationDataset) -> tuple[str, ...]:
    return data.names or tuple(str(i) for i in range(data.observation_size))


def describe_dimensions(data: ObservationDataset) -> list[Dimension]:
    """One line per dimension; the median is that of about `SAMPLED` states, if there are more."""
    every = -(-sum(len(states) for states in data.steps) // SAMPLED)
    with np.errstate(invalid="ignore"):
        lows = np.min([states.min(axis=0) for states in data.steps], axis=0)
        highs = np.max([states.max(axis=0) for states in data.steps], axis=0)
    samples, rows = np.concatenate([states[::every] for states in data.steps]), []
    for i, name in enumerate(dimension_names(data)):
        low, high, sample = lows[i], highs[i], samples[:, i]
        if not np.isfinite([low, high]).all():
            values = np.concatenate([states[:, i] for states in data.steps])
            sample = values[np.isfinite(values)]
            low, high = (sample.min(), sample.max()) if sample.size else (np.nan, np.nan)
        median = np.median(sample) if sample.size else np.nan
        rows.append(Dimension(name, float(low), float(median), float(high), bool(low == high)))
    return rows


def quantiles_over_time(data: ObservationDataset) -> Float[np.ndarray, "quantile step obs"]:
    """`QUANTILES` of each dimension at each step."""
    return np.stack([np.quantile(states, QUANTILES, axis=0) for states in data.steps], axis=1)
