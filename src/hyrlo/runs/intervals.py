"""Numbers over seeds, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.stats

FEW = 10
"""Below this number of runs a table also has bootstrap intervals: quartiles say little then."""


def spread(values: Sequence[float]) -> str:
    """Median (25 %, 75 %); of fewer than `FEW` values also a bootstrap interval of the median, of one value that alone."""
    low, median, high = (short(x) for x in np.quantile(values, [0.25, 0.5, 0.75]))
    if len(values) == 1:
        return median
    if len(values) >= FEW:
        return f"{median} ({low}, {high})"
    least, most = (short(x) for x in median_interval(values))
    return f"{median} ({low}, {high}; 95 % {least}–{most})"


def short(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the median; the same values give the same interval."""
    found = scipy.stats.bootstrap([values], np.median, method="percentile", random_state=np.random.default_rng(0))
    return found.confidence_interval.low, found.confidence_interval.high
