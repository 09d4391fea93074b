"""The configs that the experiments compare, at the sizes of a scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from hyrlo.backward.psdp import PsdpConfig
from hyrlo.backward.sac import SacConfig
from hyrlo.baselines.briee import BrieeConfig
from hyrlo.baselines.distil import DistilConfig
from hyrlo.baselines.hyq import HyqConfig
from hyrlo.baselines.online import OnlineConfig
from hyrlo.core.regression import FitConfig
from hyrlo.foobar import FoobarConfig
from hyrlo.forward.dynamics import DynamicsConfig
from hyrlo.forward.fail import FailConfig
from hyrlo.runs.algorithms import ALGORITHMS

Scale = Literal["smoke", "quick", "paper"]
SMOKE_DYNAMICS = DynamicsConfig(hidden=8, updates=10, memory=500)
SMOKE_FIT = FitConfig(updates=20, restarts=2, rounds=1)


def recipe(algo: str, preset: str, scale: Scale) -> Any:
    """A preset; at `smoke` scale so small that it only shows that everything runs."""
    config = ALGORITHMS[algo].presets[preset]
    return smoke(config) if scale == "smoke" else config


def smoke(config: Any) -> Any:
    match config:
        case FoobarConfig():
            explore = replace(config.explore, samples=50, features=32, fit=SMOKE_FIT)
            return replace(
                config, forward=smoke(config.forward), backward=smoke(config.backward), explore=explore,
                sac=smoke(config.sac),
            )  # fmt: skip
        case FailConfig():
            return replace(
                config, samples=50, offline_samples=100, features=32, fit=SMOKE_FIT,
                game=replace(config.game, iterations=20),
                track=replace(
                    config.track, updates=10, hidden=8, features=32,
                    dynamics=replace(config.track.dynamics, hidden=8, updates=10, memory=500),
                ),
            )  # fmt: skip
        case DistilConfig():
            return replace(config, episodes=10, hidden=8, updates=10)
        case PsdpConfig():
            return replace(config, samples=60, offline_samples=100, fit=replace(SMOKE_FIT, solver=config.fit.solver))
        case HyqConfig():
            fit = replace(SMOKE_FIT, solver=config.fit.solver)
            return replace(config, offline_samples=100, updates=20, batch=64, fit=fit, online=OnlineConfig(10, 2))
        case SacConfig():
            return replace(config, iterations=2, episodes=4, hidden=8, batch=16, replay=1000)
        case BrieeConfig():
            return replace(config, rounds=2, updates=4, batch=32, hidden=16, online=OnlineConfig(10, 2))
    raise TypeError(f"no smoke sizes for {type(config).__name__}")


def limited(config: HyqConfig | BrieeConfig, iterations: int) -> HyqConfig | BrieeConfig:
    """With another budget of iterations."""
    return replace(config, online=replace(config.online, iterations=iterations))
