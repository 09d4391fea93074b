"""Episodes until success of at least 0.9, against the horizon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hyrlo.experiments import lock, plots
from hyrlo.experiments.recipes import Scale
from hyrlo.experiments.runner import Finished, RunSpec, markdown, row_of, spread, write_csv

HORIZONS = {"smoke": (2, 3), "quick": (5, 10), "paper": (5, 10, 20, 50, 100)}
SEEDS = {"smoke": 1, "quick": 2, "paper": 10}
GROUPS = ("foobar-lean", "hyq", "briee")


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    """Those at H = 100 are the runs of `reproduce lock`."""
    groups = [*GROUPS, "foobar-paper"]
    return [
        lock.spec_of(group, horizon, seed, scale)
        for horizon in HORIZONS[scale]
        for group in groups
        for seed in seeds
        if group in GROUPS or horizon == HORIZONS[scale][-1]
    ]


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    write_csv(out / "horizon-scaling.csv", [row_of(run) for run in runs])
    table, points = [], {}
    for group in dict.fromkeys(run.spec.group for run in runs):
        cells, line = [], {}
        for horizon in HORIZONS[scale]:
            members = [r for r in runs if r.spec.group == group and r.spec.horizon == horizon]
            solved = [s for r in members if (s := r.solved_after()) is not None]
            budget = max((r.result["episodes"] for r in members), default=0)
            if not members:
                cells.append("")
            elif 2 * len(solved) < len(members):
                cells.append(f"unsolved after {budget:,} ({len(solved)} of {len(members)})")
            else:
                cells.append(f"{spread(solved)}, {len(solved)} of {len(members)}")
            line[horizon] = solved if 2 * len(solved) >= len(members) else []
        table.append([lock.LABELS[group], *cells])
        points[lock.LABELS[group]] = line
    plots.scaling(out / "horizon-scaling.png", points, "episodes to success ≥ 0.9 on the lock")
    return markdown(["algorithm", *(f"H = {h}" for h in HORIZONS[scale])], table)
