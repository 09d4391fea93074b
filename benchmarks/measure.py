"""Timing and tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

console = Console(highlight=False)


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def best_seconds(call: Callable[[], Any], repeats: int = 2) -> float:
    """The shortest of `repeats` calls, after one that compiles and is not counted."""
    jax.block_until_ready(call())
    return min(seconds_of(call) for _ in range(repeats))


def in_turn(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Float[np.ndarray, " rounds"]]:
    """Seconds of each call in each round, in which each has its turn, so that what else the machine does hits all alike."""
    for call in calls.values():
        jax.block_until_ready(call())
    times = [[seconds_of(call) for call in calls.values()] for _ in range(rounds)]
    return dict(zip(calls, np.array(times).T, strict=True))


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> None:
    """A table whose first column is text and the others numbers."""
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table, note + "\n" if note else "")


def show_growth(title: str, size: str, seconds: dict[int, float], note: str = "", **extra: Sequence[str]) -> None:
    """Seconds by size, and how both grow from the first row."""
    first, shortest = next(iter(seconds.items()))
    rows = [[f"{n:,}", f"{s:.3f}", f"{n / first:.1f}", f"{s / shortest:.1f}"] for n, s in seconds.items()]
    rows = [[*row, *(column[i] for column in extra.values())] for i, row in enumerate(rows)]
    show(title, [size, "seconds", f"{size} ratio", "time ratio", *extra], rows, note)
