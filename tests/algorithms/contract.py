"""What every algorithm promises. Small sizes; nothing here asks whether it learns."""

from __future__ import annotations

import dataclasses

import hyrlo
from hyrlo.algorithms import ALGORITHMS
from hyrlo.algorithms.briee import BrieeConfig
from hyrlo.algorithms.fit import FitConfig
from hyrlo.algorithms.hyq import HyqConfig
from hyrlo.algorithms.minmax import GameConfig
from hyrlo.algorithms.online import OnlineConfig

HORIZON, FORWARD, BACKWARD = 3, 40, 60
FORWARD_STEPS = FORWARD * sum(h + 1 for h in range(HORIZON))
BACKWARD_STEPS = BACKWARD * HORIZON * HORIZON
RESET_STEPS = BACKWARD * sum(HORIZON - h for h in range(HORIZON))
ONLINE = OnlineConfig(samples=10, iterations=3, trial_episodes=4)
ONLINE_EPISODES = ONLINE.iterations * (ONLINE.samples * HORIZON + ONLINE.trial_episodes)
EXPECTED = {  # episodes, steps
    "foobar": ((FORWARD + BACKWARD) * HORIZON, FORWARD_STEPS + BACKWARD_STEPS),
    "fail": (FORWARD * HORIZON, FORWARD_STEPS),
    "psdp": (BACKWARD * HORIZON, RESET_STEPS),
    "psdp-trace": (BACKWARD * HORIZON, BACKWARD_STEPS),
    "hyq": (ONLINE_EPISODES, ONLINE_EPISODES * HORIZON),
    "briee": (ONLINE_EPISODES, ONLINE_EPISODES * HORIZON),
}


def small(config):
    """The config with sizes for a test."""
    fit = FitConfig(updates=20, restarts=2, rounds=1)
    if hasattr(config, "forward"):
        return dataclasses.replace(config, forward=small(config.forward), backward=small(config.backward))
    if isinstance(config, HyqConfig):
        return dataclasses.replace(config, offline_samples=50, batch=60, fit=fit, online=ONLINE)
    if isinstance(config, BrieeConfig):
        return dataclasses.replace(config, rounds=2, updates=4, batch=20, hidden=8, online=ONLINE)
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
