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
    timesteps = timesteps.astype(np.min_scalar_type(last))  # small integers are sorted in linear time
    order = np.argsort(timesteps, kind="stable")
    return np.split(order, np.searchsorted(timesteps[order], np.arange(1, last + 1)))


def count_duplicates(states: Float[np.ndarray, "n obs"]) -> int:
    """How many rows have been there before.

    Rows are compared by a number of 64 bits first: sorting the rows themselves takes ten times as long.
    """
    numbers = np.zeros(len(states), np.uint64)
    for bits in np.ascontiguousarray(states + np.float32(0)).view(np.uint32).T:  # + 0, so that −0 is 0
        numbers = (numbers ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        numbers ^= numbers >> np.uint64(32)
    ordered = np.sort(numbers)
    if not (ordered[1:] == ordered[:-1]).any():
        return 0
    order = np.argsort(numbers, kind="stable")
    same = np.flatnonzero(numbers[order][1:] == numbers[order][:-1])
    if not (
        states[order[same]] == states[order[same + 1]]
    ).all():  # rows with nan, or two numbers that are equal by chance
        return len(states) - len(np.unique(states, axis=0))
    return len(same)
