"""Figure 1 (left) and the zoomed-in curve: FOOBAR, HyQ and BRIEE on the combination lock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hyrlo.experiments.recipes import Scale, limited, recipe
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, row_of, spread, write_csv
from hyrlo.runs import plots

HORIZON = {"smoke": 3, "quick": 20, "paper": 100}
SEEDS = {"smoke": 1, "quick": 3, "paper": 10}
GROUPS = {  # group: algorithm, preset
    "foobar-paper": ("foobar", "paper"),
    "foobar-lean": ("foobar", "lean"),
    "hyq": ("hyq", "fast"),
    "briee": ("briee", "fast"),
}
ITERATIONS = {  # at most, of an algorithm that stops when it has solved the lock: some minutes on one core
    "briee": {50: 5, 100: 5},
}
LABELS = {
    "foobar-paper": "FOOBAR, paper",
    "foobar-lean": "FOOBAR, lean",
    "hyq": "HyQ",
    "briee": "BRIEE",
}


def spec_of(group: str, horizon: int, seed: int, scale: Scale) -> RunSpec:
    algo, preset = GROUPS[group]
    config = recipe(algo, preset, scale)
    if horizon in ITERATIONS.get(group, {}):
        config = limited(config, ITERATIONS[group][horizon])
    return RunSpec(group, algo, "lock", horizon, config, seed)


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    return [spec_of(group, HORIZON[scale], seed, scale) for group in GROUPS for seed in seeds]


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    groups = by_group(runs)
    title = f"combination lock, H = {HORIZON[scale]}"
    plots.compare(out / "lock.png", {LABELS[g]: [r.metrics for r in rs] for g, rs in groups.items()}, title)
    if "foobar-paper" in groups:
        plots.curve(out / "zoom.png", [r.metrics for r in groups["foobar-paper"]], f"FOOBAR, {title}")
    write_csv(out / "lock.csv", [row_of(run) for run in runs])
    rows = []
    for group, members in groups.items():
        solved = [r.solved_after() for r in members]
        reached = [s for s in solved if s is not None]
        rows.append(
            [
                LABELS[group],
                str(len(members)),
                spread([r.result["episodes"] for r in members]),
                f"{spread(reached)}, {len(reached)} of {len(members)}" if reached else f"0 of {len(members)}",
                spread([r.result["success_rate"] for r in members]),
                spread([r.result["wall_seconds"] for r in members]),
            ]
        )
    header = ["algorithm", "seeds", "training episodes", "episodes to success ≥ 0.9", "final success", "seconds"]
    return markdown(header, rows)
