"""Gymnasium tasks from state logs of mixed quality: FOOBAR, beside SAC from scratch at equal environment steps.

On MountainCar also DQN with published settings, what a user would try first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from hyrlo.backward.sac import SCRATCH_PRESETS as SAC
from hyrlo.core.policies import Policy
from hyrlo.data.states import ObservationDataset
from hyrlo.envs import World, make
from hyrlo.envs.gym.collect import Noisy, collect_states
from hyrlo.experiments import plots
from hyrlo.experiments.behaviour import Balance, Pump, SwingUp
from hyrlo.experiments.dqn import NEEDS, DqnConfig, train_dqn
from hyrlo.experiments.recipes import Scale, smoke
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, row_of, write_csv
from hyrlo.foobar import MOST_HORIZON, STEPS
from hyrlo.runs.intervals import spread
from hyrlo.runs.training import config as configure

SEEDS = {"smoke": 1, "quick": 1, "paper": 3}
OPTIONS = {"num_envs": 32}
OURS = ("foobar", "sac")
METHODS = {"MountainCar": (*OURS, "dqn")}
"""Where there are more."""
EPISODES = {"smoke": 20, "quick": 500, "paper": 500}
BEHAVIOUR_EPISODES = 500


@dataclass(frozen=True)
class Task:
    """An environment, and who made the logs: half of the episodes with a little noise, half with a lot."""

    env: str
    horizon: int
    policy: Policy
    noise: tuple[float, float]

    def policies(self, world: World) -> list[Policy]:
        return [Noisy(self.policy, world.spec.uniform(), jnp.asarray(epsilon)) for epsilon in self.noise]


TASKS = {
    "MountainCar": Task("gym:MountainCar-v0", 200, Pump(), (0.4, 0.8)),
    "CartPole": Task("gym:CartPole-v1", 200, Balance(), (0.3, 0.8)),
    "Pendulum": Task("gym:Pendulum-v1", 200, SwingUp(), (0.0, 0.6)),
    "MountainCarContinuous": Task("gym:MountainCarContinuous-v0", 200, Pump(0.6), (0.2, 0.6)),
}


def logs(world: World, seed: int, task: str, scale: Scale) -> ObservationDataset:
    """States alone, as a user would have them."""
    return collect_states(world, TASKS[task].policies(world), EPISODES[scale], seed=seed)  # type: ignore[arg-type]


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    tasks = ["CartPole"] if scale == "smoke" else list(TASKS)
    return [
        spec_of(method, task, seed, scale) for task in tasks for method in METHODS.get(task, OURS) for seed in seeds
    ]


def spec_of(method: str, task: str, seed: int, scale: Scale) -> RunSpec:
    horizon = 10 if scale == "smoke" else TASKS[task].horizon
    if method == "dqn":
        return RunSpec(f"dqn-{task}", "dqn", TASKS[task].env, horizon, DqnConfig(), seed, curve_episodes=32,
                       eval_episodes=200, trainer=train_dqn, needs=NEEDS)  # fmt: skip
    if method == "foobar":
        config = configure("foobar", world=make(TASKS[task].env, horizon))
    else:
        config = replace(SAC["fast"], steps=STEPS * min(horizon, MOST_HORIZON))  # as many as FOOBAR has in all
    return RunSpec(
        f"{method}-{task}", method, TASKS[task].env, horizon,
        smoke(config) if scale == "smoke" else config, seed, curve_episodes=4 if scale == "smoke" else 32,
        eval_episodes=10 if scale == "smoke" else 200, options=OPTIONS,
        source=(logs, {"task": task, "scale": scale}) if method == "foobar" else None,
    )  # fmt: skip


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """The behaviour's return is measured here, on fresh episodes; everything else comes from the stored runs."""
    groups, rows, table = by_group(runs), [], []
    for task in dict.fromkeys(run.spec.group.split("-", 1)[1] for run in runs):
        ours, scratch, dqn = (groups.get(f"{method}-{task}", []) for method in ("foobar", "sac", "dqn"))
        members = ours + scratch + dqn
        behaviour = behaviour_return(task, members[0].spec.horizon, 20 if scale == "smoke" else BEHAVIOUR_EPISODES)
        steps = float(np.median([run.result["steps"] for run in ours])) if ours else None
        equal = [at_steps(run, steps) for run in scratch] if steps else []
        forward = [[m for m in run.metrics if m["phase"] == "forward"][-1]["return_mean"] for run in ours]
        table.append(
            [
                task, str(max(len(ours), len(scratch), len(dqn))), f"{behaviour:.1f}",
                *(spread(values) if values else "" for values in (forward, returns(ours), equal, returns(dqn))),
                f"{steps:,.0f}" if steps else "", spread([r.result["wall_seconds"] for r in ours]) if ours else "",
            ]
        )  # fmt: skip
        rows += [{**row_of(run), "behaviour_return": round(behaviour, 2)} for run in members]
        curves = {"FOOBAR": ours, "SAC from scratch": scratch, "DQN": dqn}
        metrics = {name: [run.metrics for run in found] for name, found in curves.items() if found}
        plots.returns(out / f"{task}.png", metrics, behaviour, task)
    write_csv(out / "gymnasium.csv", rows)
    header = [
        "task", "seeds", "behaviour", "forward policy", "FOOBAR", "SAC from scratch, equal steps",
        f"DQN, {DqnConfig.steps:,} steps", "steps", "seconds",
    ]  # fmt: skip
    return markdown(header, table)


def returns(runs: list[Finished]) -> list[float]:
    return [run.result["return_mean"] for run in runs]


def behaviour_return(task: str, horizon: int, episodes: int) -> float:
    world = make(TASKS[task].env, horizon, **OPTIONS)
    policies = TASKS[task].policies(world)
    model = world.trace_model()
    returns = [model.rollout(jax.random.key(i), p, episodes // 2).returns.mean() for i, p in enumerate(policies)]
    return float(np.mean(returns))


def at_steps(run: Finished, steps: float) -> float:
    """Return at the last evaluation within this number of steps."""
    return [line["return_mean"] for line in run.metrics if line["steps"] <= steps][-1]
