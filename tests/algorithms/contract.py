"""What every algorithm promises. Small sizes; nothing here asks whether it learns."""

from __future__ import annotations

import dataclasses

import hyrlo
from hyrlo.runs.algorithms import ALGORITHMS

HORIZON, FORWARD, BACKWARD = 3, 40, 60
CHOOSE, CHECK = 20, 10
FORWARD_STEPS = FORWARD * sum(h + 1 for h in range(HORIZON))
BACKWARD_STEPS = BACKWARD * HORIZON * HORIZON
RESET_STEPS = BACKWARD * sum(HORIZON - h for h in range(HORIZON))
SAC_EPISODES = 4 * (2 + 3 * 2)  # four at a time: random collections, then iterations of collections
SAC_CHECK = 5
RACE = (
    3 * SAC_CHECK + 2 * 2 * SAC_CHECK
)  # last actor, clone and roll-in, then two of them; too few episodes for a best actor
ONLINE_EPISODES = 3 * (10 * HORIZON + 4)  # iterations of samples for every step and a trial
EXPECTED = {  # episodes, steps
    "foobar": (CHOOSE + FORWARD * HORIZON + 3 * CHECK, (CHOOSE + 3 * CHECK) * HORIZON + FORWARD_STEPS),
    "foobar-fast": ((FORWARD + BACKWARD) * HORIZON, FORWARD_STEPS + BACKWARD_STEPS),
    "foobar-exploring": ((2 * FORWARD + BACKWARD) * HORIZON, 2 * FORWARD_STEPS + BACKWARD_STEPS),
    "fail": (CHOOSE + FORWARD * HORIZON, CHOOSE * HORIZON + FORWARD_STEPS),
    "fail-fast": (FORWARD * HORIZON, FORWARD_STEPS),
    "psdp": (BACKWARD * HORIZON, RESET_STEPS),
    "psdp-trace": (BACKWARD * HORIZON, BACKWARD_STEPS),
    "foobar-paper": ((FORWARD + BACKWARD) * HORIZON, FORWARD_STEPS + BACKWARD_STEPS),
    "hyq-paper": (ONLINE_EPISODES, ONLINE_EPISODES * HORIZON),
    "hyq": (ONLINE_EPISODES, ONLINE_EPISODES * HORIZON),
    "briee": (ONLINE_EPISODES, ONLINE_EPISODES * HORIZON),
    "cpi": (SAC_EPISODES + RACE, (SAC_EPISODES + RACE) * HORIZON),
    "cpi-paper": (3 * BACKWARD, 3 * BACKWARD * HORIZON),
    "inter-fail": (5 * FORWARD, 5 * FORWARD),
    "distil": (20, 20 * HORIZON),
    "rlpd": (SAC_EPISODES + 2 * SAC_CHECK, (SAC_EPISODES + 2 * SAC_CHECK) * HORIZON),
    "sac": (SAC_EPISODES + 2 * SAC_CHECK, (SAC_EPISODES + 2 * SAC_CHECK) * HORIZON),
    "foobar-model": (
        2 * FORWARD * HORIZON + SAC_EPISODES + RACE,
        2 * FORWARD_STEPS + (SAC_EPISODES + RACE) * HORIZON,
    ),
}
"""Of all variants but those that collect until they know enough."""
VARIANTS = {algo: (algo, {}) for algo in ALGORITHMS} | {
    "foobar-fast": ("foobar", {"preset": "fast"}),
    "foobar-replan": ("foobar", {"forward": "latent", "improve": "plan", "backward.slack": 1e-9, "backward.rounds": 3}),
    "fail-fast": ("fail", {"preset": "fast"}),
    "foobar-model": ("foobar", {"forward": "model", "improve": "sac"}),
    "foobar-paper": ("foobar", {"preset": "paper"}),
    "foobar-exploring": ("foobar", {"explore": 0.5}),
    "cpi-paper": ("cpi", {"improve": "cpi"}),
    "hyq-paper": ("hyq", {"preset": "paper"}),
}
"""What the tests run over: every algorithm, and its other variants: choices of `hyrlo.config`."""
SIZES = {
    "ForwardConfig.samples": FORWARD, "SeekConfig.samples": FORWARD, "PsdpConfig.samples": BACKWARD,
    "CpiConfig.samples": BACKWARD, "MeasuredConfig.episodes": CHOOSE, "LatentConfig.most": FORWARD,
    "PlanConfig.episodes": CHECK, "PlanConfig.samples": CHECK,
    "InterFailConfig.samples": FORWARD, "InterFailConfig.iterations": 5, "InterFailConfig.points": 5,
    "offline_samples": 50, "features": 32, "GameConfig.iterations": 20, "ModelConfig.hidden": 8, "ModelConfig.updates": 10,
    "DynamicsConfig.hidden": 8, "DynamicsConfig.updates": 10, "DynamicsConfig.memory": 100,
    "FitConfig.updates": 20, "FitConfig.restarts": 2, "FitConfig.rounds": 1,
    "SacConfig.iterations": 3, "SacConfig.steps": SAC_EPISODES * HORIZON, "SacConfig.keep": 1, "SacConfig.check": SAC_CHECK,
    "SacConfig.episodes": 4, "SacConfig.random_collections": 2,
    "SacConfig.utd": 1.0, "SacConfig.hidden": 8, "SacConfig.batch": 16, "SacConfig.replay": 200,
    "CpiConfig.iterations": 3, "CpiConfig.epsilon": -100.0, "CpiConfig.alpha": 0.5,  # never stops early
    "DistilConfig.episodes": 20, "DistilConfig.hidden": 8, "DistilConfig.updates": 10, "DistilConfig.batch": 16,
    "OnlineConfig.samples": 10, "OnlineConfig.iterations": 3, "OnlineConfig.trial_episodes": 4,
    "HyqConfig.batch": 60, "HyqSgdConfig.updates": 20,
    "BrieeConfig.rounds": 2, "BrieeConfig.updates": 4, "BrieeConfig.batch": 20, "BrieeConfig.hidden": 8,
}  # fmt: skip


def small(config):
    """The config with sizes for a test, by field or by type (or base type) and field."""
    changes = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        names = [f"{kind.__name__}.{field.name}" for kind in type(config).__mro__] + [field.name]
        found = [SIZES[name] for name in names if name in SIZES]
        if dataclasses.is_dataclass(value):
            changes[field.name] = small(value)
        elif found:
            changes[field.name] = found[0]
    return dataclasses.replace(config, **changes)


def world(variant=""):
    if variant == "inter-fail":  # without discount every roll-in is one step
        return hyrlo.make("discounted", horizon=HORIZON, gamma=0.0)
    return hyrlo.make("lock", horizon=HORIZON)


def train(variant: str, out, seed=3, **kwargs):
    algo, choices = VARIANTS[variant]
    choices = {"backward.plan.slack": 1e9, **choices} if variant == "foobar" else choices
    roll_in = hyrlo.Uniform(10) if algo == "distil" else None
    return hyrlo.train(
        algo, world(variant), roll_in=roll_in, config=small(hyrlo.config(algo, **choices)), seed=seed, out=out,
        curve_episodes=20, eval_episodes=50, **kwargs,
    )  # fmt: skip
