"""Rejects numbers that lose their meaning in float32, the type of all states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Shaped

from hyrlo.core.errors import DataError

LEVELS = 2**10
"""A dimension whose range has fewer float32 numbers than this is looked at closely."""
ROUNDING = 2.0**-36
"""A range below this share of the numbers themselves is the rounding error of a simulator: the dimension is constant."""
EXACT = 2**53
"""Whole numbers up to here are exact as float64."""


def check_precision(values: Shaped[np.ndarray, "rows n"], source: str, names: Sequence[str] | None = None) -> None:
    """Reject a column, one for each dimension, with values that float32 cannot tell apart.

    Whole numbers must all stay different. Of other numbers, half of those in a narrow range may become equal.
    """
    exact = values.dtype.kind not in "fiu" or values.dtype.itemsize < 4 or values.dtype == np.float32
    if exact or values.size == 0:
        return
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = values.min(axis=0).astype(np.float64), values.max(axis=0).astype(np.float64)
        largest = np.maximum(abs(low), abs(high))
        spacing = np.spacing(largest.astype(np.float32)).astype(np.float64)
        narrow = high - low < LEVELS * spacing
        suspects = np.isfinite(spacing) & (narrow | (spacing > 1)) | ~np.isfinite(low + high)
    for column in np.flatnonzero(suspects).tolist():
        if _loses_meaning(values[:, column]):
            name = f"dimension {column}" if names is None else names[column]
            raise DataError(
                f"{source}: {name} is from {low[column]:.17g} to {high[column]:.17g}, with values that float32, the type "
                "of all states, cannot tell apart; subtract an offset from it, change its unit, or leave it out"
            )


def _loses_meaning(column: Shaped[np.ndarray, " n"]) -> bool:
    column = column[np.isfinite(column)]
    with np.errstate(over="ignore"):
        rounded = column.astype(np.float32)
    column, rounded = column[np.isfinite(rounded)], rounded[np.isfinite(rounded)]  # infinite ones are refused as such
    if column.size == 0:
        return False
    different, left = len(np.unique(column)), len(np.unique(rounded))
    if left == different:
        return False
    largest, spread = float(abs(column).max()), float(column.max()) - float(column.min())
    if column.dtype.kind in "iu" or (largest <= EXACT and (column == np.rint(column)).all()):
        return True
    return left * 2 < different and ROUNDING * largest < spread < LEVELS * float(np.spacing(abs(rounded).max()))
