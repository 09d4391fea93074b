"""Figure 1 (left) and the zoomed-in curve: FOOBAR, HyQ and BRIEE on the combination lock, over seeds and over combinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hyrlo.envs.lock import LockConfig
from hyrlo.experiments.recipes import Scale, limited, recipe
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, row_of, spread, write_csv
from hyrlo.runs import plots


class Group(NamedTuple):
    """Runs that differ in their seed alone."""

    label: str
    algo: str
    preset: str
    options: Mapping[str, Any] = {}
    """Of the lock."""


HORIZON = {"smoke": 3, "quick": 20, "paper": 100}
SEEDS = {"smoke": 1, "quick": 3, "paper": 10}
GROUPS = {
    "foobar-paper": Group("FOOBAR, paper", "foobar", "paper"),
    "foobar-lean": Group("FOOBAR, lean", "foobar", "lean"),
    "hyq-paper": Group("HyQ, paper", "hyq", "paper"),
    "hyq-authors": Group("HyQ, paper, its authors' data", "hyq", "paper", {"behaviour": "hyq"}),
    "hyq-fast": Group("HyQ, fast", "hyq", "fast"),
    "briee-fast": Group("BRIEE, fast", "briee", "fast"),
}
SHOWN = ("foobar-paper", "foobar-lean", "hyq-paper", "hyq-fast", "briee-fast")
COMBINATIONS = ("foobar-lean", "hyq-paper", "hyq-fast")
"""Groups that are also run with one seed on locks of different combinations."""
BUDGET = 140_000
"""Every algorithm may use at least this many episodes at the long horizons; it uses fewer if it stops as solved."""
ITERATIONS = {  # the fewest that use up the budget: an iteration takes up to a minute
    ("hyq-paper", 100): 28,
    ("briee-fast", 50): 14,
    ("briee-fast", 100): 7,
}


def spec_of(group: str, horizon: int, seed: int, scale: Scale) -> RunSpec:
    _, algo, preset, options = GROUPS[group]
    config = recipe(algo, preset, scale)
    if (group, horizon) in ITERATIONS:
        config = limited(config, ITERATIONS[group, horizon])
    return RunSpec(group, algo, "lock", horizon, config, seed, options=options)


def over_seeds(group: str, horizon: int, seeds: Sequence[int], scale: Scale) -> list[RunSpec]:
    """Runs on one lock."""
    return [spec_of(group, horizon, seed, scale) for seed in seeds]


def over_combinations(group: str, horizon: int, seeds: Sequence[int], scale: Scale) -> list[RunSpec]:
    """Runs with the first seed; the seeds draw the combinations."""
    spec = spec_of(group, horizon, seeds[0], scale)
    return [
        replace(spec, group=f"{group}-combinations", options={**spec.options, "seed": seed}, member=f"lock-{seed}")
        for seed in seeds
    ]


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    horizon = HORIZON[scale]
    on_one_lock = [spec for group in SHOWN for spec in over_seeds(group, horizon, seeds, scale)]
    return on_one_lock + [s for group in COMBINATIONS for s in over_combinations(group, horizon, seeds, scale)]


def label(group: str) -> str:
    name = group.removesuffix("-combinations")
    return GROUPS[name].label + (", over combinations" if name != group else "")


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    groups = by_group(runs)
    title = f"combination lock, H = {HORIZON[scale]}"
    curves = {label(g): [r.metrics for r in rs] for g, rs in groups.items() if g in GROUPS}
    plots.compare(out / "lock.png", curves, title)
    if "foobar-paper" in groups:
        plots.curve(out / "zoom.png", [r.metrics for r in groups["foobar-paper"]], f"FOOBAR, {title}")
    write_csv(out / "lock.csv", [{**row_of(r), "lock_seed": r.spec.options.get("seed", LockConfig.seed)} for r in runs])
    rows = []
    for group, members in groups.items():
        solved = [r.solved_after() for r in members]
        reached = [s for s in solved if s is not None]
        rows.append(
            [
                label(group),
                str(len(members)),
                spread([r.result["episodes"] for r in members]),
                f"{spread(reached)}, {len(reached)} of {len(members)}" if reached else f"0 of {len(members)}",
                spread([r.result["success_rate"] for r in members]),
                spread([r.result["wall_seconds"] for r in members]),
            ]
        )
    header = ["algorithm", "runs", "training episodes", "episodes to success ≥ 0.9", "final success", "seconds"]
    return markdown(header, rows)
