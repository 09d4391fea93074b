"""The configs that the experiments compare, at the sizes of a scale."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, Literal

from hyrlo.baselines.briee import BrieeConfig
from hyrlo.baselines.hyq import HyqConfig
from hyrlo.runs.training import config as configure

Scale = Literal["smoke", "quick", "paper"]
SMOKE = {
    "samples": 50, "offline_samples": 100, "features": 32, "updates": 10, "hidden": 8, "batch": 32, "memory": 500,
    "restarts": 2, "episodes": 4, "replay": 1000, "iterations": 2, "GameConfig.iterations": 20,
    "OnlineConfig.samples": 10, "rounds": 2, "MeasuredConfig.episodes": 50, "most": 50,
    "steps": 300,
}  # fmt: skip
"""The largest sizes at `smoke` scale, by field or by type and field."""
FIRST_SEED = {"smoke": 0, "quick": 0, "paper": 1000}
"""Settings are chosen on seeds below 100; tables come from seeds that no choice has seen."""
HELD_OUT = (10_000, 20_000)
"""Added to a seed, or seeds by themselves, for data that no run learns from."""


def seeds_of(scale: Scale, number: int, first: int | None = None) -> range:
    """The seeds of an experiment's runs."""
    first = FIRST_SEED[scale] if first is None else first
    return range(first, first + number)


def recipe(algo: str, scale: Scale, **choices: Any) -> Any:
    """The config of some choices; at `smoke` scale so small that it only shows that everything runs."""
    config = configure(algo, **choices)
    return smoke(config) if scale == "smoke" else config


def smoke(config: Any) -> Any:
    """The config with no size above those of `SMOKE`."""
    changes = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        most = SMOKE.get(f"{type(config).__name__}.{field.name}", SMOKE.get(field.name))
        if dataclasses.is_dataclass(value):
            changes[field.name] = smoke(value)
        elif isinstance(value, int) and most is not None:
            by_default = field.name == "steps" and value == 0  # as many as suit the horizon
            changes[field.name] = most if by_default else min(value, most)
    return replace(config, **changes)


def limited(config: HyqConfig | BrieeConfig, iterations: int) -> HyqConfig | BrieeConfig:
    """With another budget of iterations."""
    return replace(config, online=replace(config.online, iterations=iterations))
