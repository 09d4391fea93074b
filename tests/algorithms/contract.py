"""What every algorithm promises. Small sizes; nothing here asks whether it learns."""

from __future__ import annotations

import dataclasses

import hyrlo
from hyrlo.algorithms import ALGORITHMS
from hyrlo.algorithms.fit import FitConfig
from hyrlo.algorithms.minmax import GameConfig

HORIZON, FORWARD, BACKWARD = 3, 40, 60
FORWARD_STEPS = FORWARD * sum(h + 1 for h in range(HORIZON))
BACKWARD_STEPS = BACKWARD * HORIZON * HORIZON
RESET_STEPS = BACKWARD * sum(HORIZON - h for h in range(HORIZON))
EXPECTED = {  # episodes, steps
    "foobar": ((FORWARD + BACKWARD) * HORIZON, FORWARD_STEPS + BACKWARD_STEPS),
    "fail": (FORWARD * HORIZON, FORWARD_STEPS),
    "psdp": (BACKWARD * HORIZON, RESET_STEPS),
    "psdp-trace": (BACKWARD * HORIZON, BACKWARD_STEPS),
}


def small(config):
    """The config with sizes for a test."""
    fit = FitConfig(updates=20, restarts=2, rounds=1)
    if hasattr(config, "forward"):
        return dataclasses.replace(config, forward=small(config.forward), backward=small(config.backward))
    if hasattr(config, "game"):
        return dataclasses.replace(
            config, samples=FORWARD, offline_samples=50, features=32, game=GameConfig(iterations=20), fit=fit
        )
    return dataclasses.replace(config, samples=BACKWARD, offline_samples=50, fit=fit)


def world():
    return hyrlo.make("lock", horizon=HORIZON)


def train(algo: str, out, **kwargs):
    config = small(ALGORITHMS[algo].presets["fast"])
    return hyrlo.train(algo, world(), config=config, seed=3, out=out, curve_episodes=20, eval_episodes=50, **kwargs)
