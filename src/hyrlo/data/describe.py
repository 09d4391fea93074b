"""What the dimensions of states are like."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from hyrlo.data.states import ObservationDataset

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
    """One line per dimension."""
    rows = []
    for i, name in enumerate(dimension_names(data)):
        values = np.concatenate([states[:, i] for states in data.steps])
        values = values[np.isfinite(values)]
        low, median, high = (float(f(values)) if values.size else float("nan") for f in (np.min, np.median, np.max))
        rows.append(Dimension(name, low, median, high, low == high))
    return rows


def quantiles_over_time(data: ObservationDataset) -> Float[np.ndarray, "quantile step obs"]:
    """`QUANTILES` of each dimension at each step."""
    return np.stack([np.quantile(states, QUANTILES, axis=0) for states in data.steps], axis=1)
