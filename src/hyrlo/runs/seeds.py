"""Runs of several seeds: a directory each, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyrlo.core.errors import RunError


def seed_directories(path: Path) -> list[Path]:
    """The run in `path`, or the runs of several seeds below it."""
    return _seeds_below(path) or [path]


def _seeds_below(path: Path) -> list[Path]:
    numbers = {p.parent: p.parent.name.removeprefix("seed-") for p in path.glob("seed-*/config.json")}
    return sorted((p for p, number in numbers.items() if number.isdecimal()), key=lambda p: int(numbers[p]))


def check_seeds(path: Path, seeds: Sequence[int]) -> None:
    """Refuse a directory for several seeds that holds something else: its summary speaks of all that is there."""
    if (path / "config.json").exists():
        raise RunError(f"{path}: already holds a run of a single seed; give another --out")
    others = [p.name for p in _seeds_below(path) if p.name not in {f"seed-{s}" for s in seeds}]
    if others:
        raise RunError(f"{path}: already holds other seeds ({', '.join(others)}); give another --out")


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and 25–75 % over seeds of what a result counts and measures."""
    summary: dict[str, Any] = {k: results[0][k] for k in ("algo", "env", "horizon", "eval_episodes")}
    summary["seeds"] = [r["seed"] for r in results]
    for name in ("episodes", "steps", "return_mean", "success_rate", "wall_seconds"):
        values = [r[name] for r in results]
        if None in values:
            summary[name] = None
        else:
            low, median, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
            summary[name] = {"median": median, "q25": low, "q75": high}
    return summary
