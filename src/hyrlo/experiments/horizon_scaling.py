"""Episodes until success of at least 0.9, against the horizon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hyrlo.experiments import lock, plots
from hyrlo.experiments.recipes import Scale
from hyrlo.experiments.runner import Finished, RunSpec, markdown, row_of, spread, write_csv

HORIZONS = {"smoke": (2, 3), "quick": (5, 10), "paper": (5, 10, 20, 50, 100)}
SEEDS = {"smoke": 1, "quick": 2, "paper": 10}
GROUPS = ("foobar-lean", "hyq-fast", "briee-fast", "hyq-paper", "hyq-authors", "foobar-paper")
ONLY = {"hyq-paper": (5, 10, 20, 100), "hyq-authors": (5, 10, 20), "foobar-paper": (100,)}
"""Groups that are not run at every horizon of scale `paper`, for the time they take."""


def horizons(group: str, scale: Scale) -> tuple[int, ...]:
    return ONLY.get(group, HORIZONS[scale]) if scale == "paper" else HORIZONS[scale]


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    """Those at H = 100 are the runs of `reproduce lock`."""
    return [
        spec
        for group in GROUPS
        for horizon in horizons(group, scale)
        for spec in lock.over_seeds(group, horizon, seeds, scale)
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
        table.append([lock.label(group), *cells])
        points[lock.label(group)] = line
    plots.scaling(out / "horizon-scaling.png", points, "episodes to success ≥ 0.9 on the lock")
    return markdown(["algorithm", *(f"H = {h}" for h in HORIZONS[scale])], table)
