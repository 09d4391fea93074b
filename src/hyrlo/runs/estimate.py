"""The memory that a run needs at least, from shapes alone: what cannot fit is refused before anything is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from hyrlo.core.access import Spec
from hyrlo.core.memory import require_memory

ROWS = (
    "samples", "offline_samples", "episodes", "trial_episodes", "batch", "replay", "memory", "window", "warm_start",
    "check", "points", "most",
)  # fmt: skip
"""Fields of configs that count states, episodes or transitions in memory at a time."""
WIDTHS = ("hidden", "latents", "features", "functions", "directions")
"""Fields that count numbers for each dimension of a state."""
NUMBER = 4
"""Bytes of a float32."""


def check_memory(spec: Spec, config: Any, **episodes: int) -> None:
    """Reject a horizon, a number of samples or of `episodes`, or a network, that does not fit by itself."""
    row = NUMBER * (2 * spec.observation_size + max(spec.action_size, 1) + 3)
    require_memory(spec.horizon * row, f"horizon {spec.horizon:,}", "give a smaller --horizon")
    heads = NUMBER * spec.horizon * max(spec.actions, spec.action_size)
    require_memory(heads, f"{spec.actions:,} actions and horizon {spec.horizon:,}", "give fewer actions or steps")
    for name, value in [*_whole_numbers(config), *episodes.items()]:
        last = name.split(".")[-1]
        each = row if last in ROWS or name in episodes else NUMBER * spec.observation_size if last in WIDTHS else 0
        if last == "hidden":
            each += NUMBER * value
        require_memory(value * each, f"--{name.replace('_', '-')} {value:,}", "give a smaller number")


def _whole_numbers(config: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The names and values of a config's numbers, those of configs in it with dots."""
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            yield from _whole_numbers(value, f"{name}.")
        elif isinstance(value, int):
            yield name, value
