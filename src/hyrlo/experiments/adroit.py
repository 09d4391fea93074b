"""Three Adroit tasks with rewards for success alone: FOOBAR from states of an expert, beside RLPD from its tuples and SAC.

FOOBAR has its default settings. On the hammer it also learns from rewards in other units. The experts behind the data must
be at hand (`adroit_expert.py`); at `smoke` scale random actions take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hyrlo.backward.sac import SacConfig
from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import Policy
from hyrlo.core.serialize import load_policy
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.distances import StateUnits, mmd2
from hyrlo.envs import World, make
from hyrlo.experiments import plots
from hyrlo.experiments.adroit_expert import (
    expert_file,
    expert_states,
    expert_transitions,
    load_expert,
    own_size,
)
from hyrlo.experiments.recipes import HELD_OUT, Scale, smoke
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, row_of, say, write_csv
from hyrlo.foobar import STEPS
from hyrlo.runs.directory import roll_in_of
from hyrlo.runs.intervals import spread
from hyrlo.runs.render import render_strip
from hyrlo.runs.training import config as configure

SEEDS = {"smoke": 1, "quick": 1, "paper": 6}
EPISODES = {"smoke": 40, "quick": 1000, "paper": 1000}
"""Logged episodes of the expert."""
CHECKED = {"smoke": 40, "quick": 500, "paper": 1000}
"""Episodes of expert and roll-in that the report plays."""
TRIES = 20
"""Episodes among which a failure of the roll-in is looked for."""


@dataclass(frozen=True)
class Method:
    """A row of the table for each task."""

    algo: str
    label: str
    learns_from: str
    options: dict[str, Any] = field(default_factory=dict)
    """Of the environment."""


METHODS = {
    "foobar": Method("foobar", "FOOBAR", "states"),
    "units": Method("foobar", "FOOBAR, rewards · 100 + 7", "states", {"reward": "scaled"}),
    "rlpd": Method("rlpd", "RLPD", "states, actions, rewards"),
    "sac": Method("sac", "SAC from scratch", "nothing"),
}


@dataclass(frozen=True)
class AdroitTask:
    """An environment, and which runs are made in it."""

    env: str
    horizon: int
    failure: float
    """Reward of a step without success; with success it is above 0."""
    methods: tuple[str, ...] = ("foobar", "rlpd", "sac")
    most_seeds: int | None = 3


TASKS = {
    "hammer": AdroitTask("hammer-binary", 50, -1.0, tuple(METHODS), most_seeds=None),
    "pen": AdroitTask("gym:AdroitHandPenSparse-v1", 60, -0.1),
    "relocate": AdroitTask("gym:AdroitHandRelocateSparse-v1", 70, -0.1),
}


def horizon_of(task: str, scale: Scale) -> int:
    return 3 if scale == "smoke" else TASKS[task].horizon


def player(world: World, task: str, scale: Scale) -> Policy:
    """Who plays the logged episodes."""
    return world.spec.uniform() if scale == "smoke" else load_expert(expert_file(task), world)


def logs(world: World, seed: int, task: str, scale: Scale) -> ObservationDataset:
    """States alone, as a user would have them."""
    return expert_states(world, player(world, task, scale), EPISODES[scale], seed)


def tuples(world: World, seed: int, task: str, scale: Scale) -> TransitionDataset:
    """The same episodes with actions and rewards, which RLPD needs."""
    return expert_transitions(world, player(world, task, scale), EPISODES[scale], seed)


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    return [
        spec_of(method, name, seed, scale)
        for name, task in TASKS.items()
        for method in task.methods
        for seed in seeds[: task.most_seeds]
    ]


def spec_of(method: str, task: str, seed: int, scale: Scale) -> RunSpec:
    algo, config = METHODS[method].algo, config_of(METHODS[method].algo, task, scale)
    source = {"foobar": logs, "rlpd": tuples, "sac": None}[algo]
    return RunSpec(
        f"{method}-{task}", algo, TASKS[task].env, horizon_of(task, scale), config, seed,
        curve_episodes=4 if scale == "smoke" else 20, eval_episodes=10 if scale == "smoke" else 256,
        options=METHODS[method].options, source=(source, {"task": task, "scale": scale}) if source else None,
    )  # fmt: skip


@cache
def config_of(algo: str, task: str, scale: Scale) -> Any:
    """FOOBAR with its defaults; RLPD and SAC with as many environment steps."""
    horizon = horizon_of(task, scale)
    if algo == "foobar":
        config = configure("foobar", world=make(TASKS[task].env, horizon))
    else:
        config = configure(algo, "fast", steps=(STEPS - SacConfig().race_episodes) * horizon)
    return smoke(config) if scale == "smoke" else config


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """Experts and roll-ins are played once more; everything else comes from the stored runs."""
    results = [result_of(task, runs, scale) for task in TASKS]
    found = [result for result in results if result.groups]
    write_csv(out / "adroit.csv", [row for result in found for row in csv_rows(result)])
    steps = [row for result in found for row in result.steps]
    if steps:
        write_csv(out / "adroit-steps.csv", steps)
        plots.match_per_step(out / "match.png", steps)
    for task, groups, data, _, _ in found:
        curves = {METHODS[name].label: [run.metrics for run in members] for name, members in groups.items()}
        plots.successes(out / f"{task}.png", curves, data, f"{TASKS[task].env}, H = {horizon_of(task, scale)}")
        if "foobar" in groups:
            pictures(task, groups["foobar"][0], out)
    return table(found)


class Result(NamedTuple):
    """All about one task."""

    task: str
    groups: dict[str, list[Finished]]
    """Runs by method."""
    data: float
    """Success of the expert that made the data."""
    roll_ins: dict[Path, float]
    """Success of the roll-in, by run."""
    steps: list[dict[str, Any]]
    """Roll-ins against data that no run has seen, by step."""


def result_of(task: str, runs: list[Finished], scale: Scale) -> Result:
    every = by_group(runs)
    groups = {name: every[f"{name}-{task}"] for name in METHODS if f"{name}-{task}" in every}
    if not groups:
        return Result(task, {}, 0.0, {}, [])
    world = make(TASKS[task].env, horizon_of(task, scale))
    expert = player(world, task, scale)
    matched = [(name, run) for name, members in groups.items() for run in members if run.spec.algo == "foobar"]
    reference = Reference.create(world, expert, CHECKED[scale]) if matched else None
    roll_ins, steps = {}, []
    for name, run in matched:
        assert reference is not None
        rows = compared(roll_in_of(run.path), world, reference, CHECKED[scale])
        roll_ins[run.path] = rows[-1]["success_by_now"]
        steps += [{"task": task, "method": METHODS[name].label, "seed": run.spec.seed, **row} for row in rows]
    return Result(task, groups, success_of(expert, world, CHECKED[scale]), roll_ins, steps)


def success_of(policy: Policy, world: World, episodes: int) -> float:
    batch = world.trace_model().rollout(jax.random.key(3), policy, episodes)
    assert batch.success is not None, "Adroit tasks report success"
    return float(jnp.mean(batch.success))


class Reference(NamedTuple):
    """States of the expert that no run has seen, and how far more of them are from these, by step."""

    states: list[np.ndarray]
    mmd2: list[float]

    @classmethod
    def create(cls, world: World, expert: Policy, episodes: int) -> Reference:
        states, more = (list(expert_states(world, expert, episodes, seed).steps[1:]) for seed in HELD_OUT)
        return cls(states, distances2(more, states))


def distances2(found: list[np.ndarray], wanted: list[np.ndarray]) -> list[float]:
    """Squared MMD by step, in units of the spread there."""
    everywhere, by_step = StateUnits.of_steps(wanted, ends=False), []
    for x, y in zip(found, wanted, strict=True):
        units = everywhere.of_step(jnp.asarray(y), jnp.ones(len(y)))
        by_step.append(round(float(mmd2(*(units(jnp.asarray(states)).white for states in (x, y)))), 6))
    return by_step


def compared(roll_in: Policy, world: World, reference: Reference, episodes: int) -> list[dict[str, Any]]:
    """A row a step: how far the states of the roll-in are from those of the expert, and the share that has succeeded."""
    every = tuple(range(world.spec.horizon))
    batch = world.trace_model().record(jax.random.key(1), roll_in, episodes, every)
    reached = list(np.asarray(batch.next_states)[..., : own_size(world)])
    by_now = np.maximum.accumulate(np.asarray(batch.rewards) > 0, axis=0).mean(axis=1)
    columns = {
        "step": [h + 1 for h in every], "mmd2": distances2(reached, reference.states), "floor": reference.mmd2,
        "success_by_now": [round(float(x), 4) for x in by_now],
    }  # fmt: skip
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def csv_rows(result: Result) -> list[dict[str, Any]]:
    """A row a run."""
    return [
        {
            "task": result.task, **row_of(run), "data_success": result.data,
            "roll_in_success": result.roll_ins.get(run.path, ""), "forward_steps": forward_steps(run),
            "minutes": minutes(run), "warnings": len(run.result["warnings"]),
        }
        for members in result.groups.values()
        for run in members
    ]  # fmt: skip


def forward_steps(run: Finished) -> int | str:
    """Environment steps of the forward pass; empty without one."""
    first = [line["steps"] for line in run.metrics if line["phase"] == "forward"]
    return first[-1] if first else ""


def minutes(run: Finished) -> float:
    return round(run.result["wall_seconds"] / 60, 1)


def table(results: list[Result]) -> str:
    header = [
        "task", "algorithm", "learns from", "seeds", "success of the data", "success of the roll-in", "success",
        "worst seed", "seeds at least as good as the data", "environment steps", "minutes", "runs with a warning",
    ]  # fmt: skip
    return markdown(header, [line(result, name) for result in results for name in result.groups])


def line(result: Result, name: str) -> list[str]:
    """A row of the table: one method on one task."""
    members, method = result.groups[name], METHODS[name]
    success = [run.result["success_rate"] for run in members]
    roll_ins = [result.roll_ins[run.path] for run in members if run.path in result.roll_ins]
    return [
        result.task, method.label, method.learns_from, str(len(members)), f"{result.data:.3g}",
        spread(roll_ins) if roll_ins else "", spread(success), f"{min(success):.3g}",
        f"{sum(rate >= result.data for rate in success)} of {len(members)}",
        spread([run.result["steps"] for run in members]), spread([minutes(run) for run in members]),
        str(sum(bool(run.result["warnings"]) for run in members)),
    ]  # fmt: skip


def pictures(task: str, run: Finished, out: Path) -> None:
    """Frames of a roll-in that fails, if there is one, and of the final policy."""
    horizon = run.spec.horizon
    world = make(run.spec.env, horizon)
    shown = tuple(range(0, horizon + 1, max(1, horizon // 5)))
    never = TASKS[task].failure * horizon + 1e-3  # sums of rewards are rounded
    try:
        for seed in range(TRIES):
            failed = render_strip(world, roll_in_of(run.path), out / f"{task}-failed-roll-in.png", seed, shown)
            if failed.episode_return <= never:
                break
        else:
            failed.file.unlink()
        render_strip(world, load_policy(run.path), out / f"{task}-final.png", 0, shown)
    except HyrloError as error:
        say(f"no pictures: {error}")
