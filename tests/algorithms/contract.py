"""What every algorithm promises. Small sizes; nothing here asks whether it learns."""

from __future__ import annotations

import dataclasses

import hyrlo
from hyrlo.backward.cpi import CpiConfig
from hyrlo.backward.sac import SacConfig
from hyrlo.baselines.briee import BrieeConfig
from hyrlo.baselines.distil import DistilConfig
from hyrlo.baselines.hyq import HyqConfig
from hyrlo.baselines.online import OnlineConfig
from hyrlo.baselines.rlpd import RlpdConfig
from hyrlo.core.regression import FitConfig
from hyrlo.forward.dynamics import DynamicsConfig
from hyrlo.forward.minmax import GameConfig
from hyrlo.forward.track import TrackConfig
from hyrlo.runs.algorithms import ALGORITHMS
from hyrlo.theory.inter_fail import InterFailConfig

HORIZON, FORWARD, BACKWARD = 3, 40, 60
FORWARD_STEPS = FORWARD * sum(h + 1 for h in range(HORIZON))
BACKWARD_STEPS = BACKWARD * HORIZON * HORIZON
RESET_STEPS = BACKWARD * sum(HORIZON - h for h in range(HORIZON))
ONLINE = OnlineConfig(samples=10, iterations=3, trial_episodes=4)
SAC = SacConfig(iterations=3, collections=2, episodes=4, random_collections=2, utd=1.0, hidden=8, batch=16, replay=200)
SAC_EPISODES = SAC.episodes * (SAC.random_collections + SAC.iterations * SAC.collections)
TRACK = TrackConfig(hidden=8, updates=10, features=32, dynamics=DynamicsConfig(hidden=8, updates=10, memory=100))
ONLINE_EPISODES = ONLINE.iterations * (ONLINE.samples * HORIZON + ONLINE.trial_episodes)
EXPECTED = {  # episodes, steps
    "foobar": ((FORWARD + BACKWARD) * HORIZON, FORWARD_STEPS + BACKWARD_STEPS),
    "fail": (FORWARD * HORIZON, FORWARD_STEPS),
    "psdp": (BACKWARD * HORIZON, RESET_STEPS),
    "psdp-trace": (BACKWARD * HORIZON, BACKWARD_STEPS),
    "hyq": (ONLINE_EPISODES, ONLINE_EPISODES * HORIZON),
    "briee": (ONLINE_EPISODES, ONLINE_EPISODES * HORIZON),
    "cpi": (SAC_EPISODES, SAC_EPISODES * HORIZON),
    "cpi-paper": (3 * BACKWARD, 3 * BACKWARD * HORIZON),
    "inter-fail": (5 * FORWARD, 5 * FORWARD),
    "distil": (20, 20 * HORIZON),
    "rlpd": (SAC_EPISODES, SAC_EPISODES * HORIZON),
    "sac": (SAC_EPISODES, SAC_EPISODES * HORIZON),
    "foobar-model": (
        TRACK.rounds * FORWARD * HORIZON + SAC_EPISODES,
        TRACK.rounds * FORWARD_STEPS + SAC_EPISODES * HORIZON,
    ),
}
VARIANTS = {algo: (algo, "fast") for algo in ALGORITHMS} | {
    "foobar-model": ("foobar", "model"),
    "cpi-paper": ("cpi", "paper"),
}
"""What the tests run over: every algorithm, and those that a preset makes another one."""


def small(config):
    """The config with sizes for a test."""
    fit = FitConfig(updates=20, restarts=2, rounds=1)
    if hasattr(config, "forward"):
        return dataclasses.replace(config, forward=small(config.forward), backward=small(config.backward), sac=SAC)
    if isinstance(config, RlpdConfig):
        return dataclasses.replace(config, offline_samples=50, **sizes(SAC))
    if isinstance(config, SacConfig):
        return SAC
    if isinstance(config, CpiConfig):  # never stops early
        return CpiConfig(
            iterations=3, samples=BACKWARD, epsilon=-100.0, alpha=0.5, fit=dataclasses.replace(fit, model="mlp")
        )
    if isinstance(config, InterFailConfig):
        return InterFailConfig(iterations=5, samples=FORWARD, points=5)
    if isinstance(config, DistilConfig):
        return DistilConfig(episodes=20, hidden=8, updates=10, batch=16)
    if isinstance(config, HyqConfig):
        return dataclasses.replace(config, offline_samples=50, batch=60, fit=fit, online=ONLINE)
    if isinstance(config, BrieeConfig):
        return dataclasses.replace(config, rounds=2, updates=4, batch=20, hidden=8, online=ONLINE)
    if hasattr(config, "game"):
        return dataclasses.replace(
            config,
            samples=FORWARD,
            offline_samples=50,
            features=32,
            game=GameConfig(iterations=20),
            fit=fit,
            track=TRACK,
        )
    return dataclasses.replace(config, samples=BACKWARD, offline_samples=50, fit=fit)


def sizes(config):
    return {
        name: getattr(config, name)
        for name in ("iterations", "collections", "episodes", "random_collections", "utd", "hidden", "batch", "replay")
    }


def world(variant=""):
    if variant == "inter-fail":  # without discount every roll-in is one step
        return hyrlo.make("discounted", horizon=HORIZON, gamma=0.0)
    return hyrlo.make("lock", horizon=HORIZON)


def train(variant: str, out, seed=3, **kwargs):
    algo, preset = VARIANTS[variant]
    config = small(ALGORITHMS[algo].presets[preset])
    return hyrlo.train(
        algo, world(variant), config=config, seed=seed, out=out, curve_episodes=20, eval_episodes=50, **kwargs
    )
