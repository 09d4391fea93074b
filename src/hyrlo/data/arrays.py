"""Checks and conversions that all data sets share."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from hyrlo.core.errors import DataError


def check_numeric(array: np.ndarray, name: str, source: str) -> None:
    """Reject text, objects, dates and complex numbers."""
    if array.dtype.kind not in "fiub":
        raise DataError(f"{source}: {name} has dtype {array.dtype}; it must be a numeric array")


def as_float32(array: np.ndarray, name: str, source: str) -> Float[np.ndarray, ...]:
    """A numeric array as float32; too large values become infinite."""
    check_numeric(array, name, source)
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def check_timesteps(timesteps: np.ndarray, source: str) -> None:
    """Reject timesteps that are not integers."""
    if not isinstance(timesteps, np.ndarray) or timesteps.dtype.kind not in "iu":
        raise DataError(
            f"{source}: timesteps has dtype {getattr(timesteps, 'dtype', '?')}; it must be an integer array"
        )


def rows_by_step(
    timesteps: Int[np.ndarray, " m"], source: str, what: str = "states", beyond: int = 0
) -> list[Int[np.ndarray, " n"]]:
    """The rows of each timestep, in their order. The horizon is `beyond` steps after the last timestep."""
    if timesteps.size == 0:
        raise DataError(f"{source}: holds no {what}")
    if timesteps.min() < 0:
        raise DataError(f"{source}: timesteps[{int(timesteps.argmin())}] is {timesteps.min()}; timesteps start at 0")
    last = int(timesteps.max())
    if last > len(timesteps) * 2 + 1:
        missing = int(np.setdiff1d(np.arange(len(timesteps) + 1), timesteps)[0])
        raise DataError(f"{source}: timestep {missing} has no {what}; horizon is {last + beyond}")
    order = np.argsort(timesteps, kind="stable")
    return np.split(order, np.searchsorted(timesteps[order], np.arange(1, last + 1)))
