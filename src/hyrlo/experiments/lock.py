"""Every number on the lock: the defaults, good mass, Figure 1 (left), episodes against the horizon, and Table 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hyrlo.envs import make
from hyrlo.envs.lock import BAD, LockConfig, latent_occupancy
from hyrlo.experiments import inadmissible, plots
from hyrlo.experiments.recipes import Scale, limited, recipe
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, row_of, write_csv
from hyrlo.runs import plots as run_plots
from hyrlo.runs.intervals import spread

Seeds = Mapping[int, int]
"""Number of seeds by horizon."""


class Group(NamedTuple):
    """Runs that differ in their seed and horizon alone."""

    label: str
    algo: str
    choices: Mapping[str, Any]
    """Of `hyrlo.config`."""
    seeds: Seeds
    """At scale `paper`."""
    options: Mapping[str, Any] = {}
    """Of the lock."""
    eval_episodes: int = 1000


def at(*horizons: int, seeds: int) -> dict[int, int]:
    return dict.fromkeys(horizons, seeds)


GROUPS = {
    "foobar": Group("FOOBAR", "foobar", {}, at(5, 10, 20, 50, seeds=20) | at(100, seeds=10)),
    "foobar-sac": Group("FOOBAR, SAC backward", "foobar", {"improve": "sac"}, at(5, 10, seeds=5)),
    "fail": Group("FAIL", "fail", {}, at(6, 10, 20, seeds=20), eval_episodes=4000),
    "foobar-lean": Group("FOOBAR, lean", "foobar", {"preset": "lean"}, at(5, 10, 20, 50, 100, seeds=5)),
    "foobar-paper": Group("FOOBAR, paper", "foobar", {"preset": "paper"}, at(100, seeds=3)),
    "hyq-fast": Group("HyQ, fast", "hyq", {"preset": "fast"}, at(5, 10, 20, 50, 100, seeds=10)),
    "hyq-paper": Group("HyQ, paper", "hyq", {"preset": "paper"}, at(5, 10, 20, seeds=5) | at(100, seeds=2)),
    "hyq-authors": Group(
        "HyQ, paper, its authors' data", "hyq", {"preset": "paper"}, at(5, 10, 20, seeds=3), {"behaviour": "hyq"}
    ),
    "briee-fast": Group("BRIEE, fast", "briee", {"preset": "fast"}, at(5, 10, 20, seeds=3) | at(50, 100, seeds=2)),
}
NO_OPTIONS = ("foobar", "default-lock-benign", "foobar-sac")
"""The groups of plain commands; that of the benign lock belongs to Table 2."""
COMPARED = ("foobar", "foobar-lean", "foobar-paper", "hyq-fast", "hyq-paper", "hyq-authors", "briee-fast")
"""The groups of the comparison, at the longest horizon and against the horizon."""
COMBINATIONS = ("foobar", "hyq-fast")
"""Groups that are also run with one seed on ten locks of different combinations, at the longest horizon."""
SEEDS = {"smoke": 1, "quick": 2, "paper": 20}
"""The most seeds of a group."""
BUDGET = 140_000
"""Every algorithm may use at least this many episodes at the long horizons; it uses fewer if it stops as solved."""
ITERATIONS = {  # the fewest that use up the budget: an iteration takes up to a minute
    ("hyq-paper", 100): 28,
    ("briee-fast", 50): 14,
    ("briee-fast", 100): 7,
}


def horizons(group: str, scale: Scale) -> list[int]:
    """Those of scale `paper`; at scale `quick` none above 20, at `smoke` a short one."""
    wanted = [h for h in GROUPS[group].seeds if scale == "paper" or h <= 20]
    return [3] if scale == "smoke" else wanted


def spec_of(group: str, horizon: int, seed: int, scale: Scale) -> RunSpec:
    about = GROUPS[group]
    config = recipe(about.algo, scale, **about.choices)
    if (group, horizon) in ITERATIONS:
        config = limited(config, ITERATIONS[group, horizon])
    episodes = about.eval_episodes if scale == "paper" else 200
    return RunSpec(group, about.algo, "lock", horizon, config, seed, options=about.options, eval_episodes=episodes)


def over_seeds(group: str, seeds: Sequence[int], scale: Scale) -> list[RunSpec]:
    """Runs on one lock."""
    most = GROUPS[group].seeds
    return [
        spec_of(group, horizon, seed, scale)
        for horizon in horizons(group, scale)
        for seed in seeds[: most[horizon] if scale == "paper" else None]
    ]


def over_combinations(group: str, seeds: Sequence[int], scale: Scale) -> list[RunSpec]:
    """Runs with the first seed; the seeds draw the combinations."""
    spec = spec_of(group, horizons(group, scale)[-1], seeds[0], scale)
    return [
        replace(spec, group=f"{group}-combinations", options={**spec.options, "seed": seed}, member=f"lock-{seed}")
        for seed in seeds[:10]
    ]


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    on_one_lock = [spec for group in GROUPS for spec in over_seeds(group, seeds, scale)]
    on_others = [spec for group in COMBINATIONS for spec in over_combinations(group, seeds, scale)]
    return [*on_one_lock, *on_others, *inadmissible.runs(scale, seeds)]


def label(group: str) -> str:
    name = group.removesuffix("-combinations")
    return GROUPS[name].label + (", over combinations" if name != group else "")


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """A section for each question; those without runs are left out."""
    mine = [r for r in runs if r.spec.group.removesuffix("-combinations") in GROUPS]
    others = [r for r in runs if r not in mine]
    if mine:
        rows = [{**row_of(r), "lock_seed": r.spec.options.get("seed", LockConfig.seed)} for r in mine]
        write_csv(out / "lock.csv", rows)
    groups = by_group(mine)
    sections = {
        "No options": no_options([r for r in runs if r.spec.group in NO_OPTIONS]),
        "Good mass": good_mass(groups.get("fail", []), out),
        "Comparison": comparison(
            {g: rs for g, rs in groups.items() if g.removesuffix("-combinations") in COMPARED}, out
        ),
        "Episodes against the horizon": scaling({g: rs for g, rs in groups.items() if g in COMPARED}, out),
        "Inadmissible data": inadmissible.report(others, out, scale) if others else "",
    }
    return "\n".join(f"## {title}\n\n{table}" for title, table in sections.items() if table)


def by_horizon(runs: list[Finished]) -> dict[tuple[str, int], list[Finished]]:
    found: dict[tuple[str, int], list[Finished]] = {}
    for run in runs:
        found.setdefault((run.spec.group, run.spec.horizon), []).append(run)
    return found


def no_options(runs: list[Finished]) -> str:
    """`hyrlo train foobar ENV`, with nothing but the horizon."""
    rows = []
    for (group, horizon), members in by_horizon(runs).items():
        success = [r.result["success_rate"] for r in members]
        rows.append(
            [
                f"{members[0].spec.env}{', `--improve sac`' if group == 'foobar-sac' else ''}, H = {horizon}",
                str(len(members)),
                spread(success),
                f"{min(success):.3f}",
                spread([r.result["episodes"] for r in members]),
                spread([r.result["wall_seconds"] for r in members]),
                str(sum(bool(r.result["warnings"]) for r in members)),
            ]
        )
    header = ["task", "seeds", "final success", "worst seed", "training episodes", "seconds", "runs with a warning"]
    return markdown(header, rows) if rows else ""


def good_mass(runs: list[Finished], out: Path) -> str:
    """The share of good states at the last step: of the forward policy, and of the very data it was given."""
    rows, table = [], []
    for (_, horizon), members in by_horizon(runs).items():
        lock = make("lock", horizon)
        data = [
            float(1 - latent_occupancy(lock.env, jnp.asarray(lock.behaviour_data(r.spec.seed).at(horizon)))[BAD])
            for r in members
        ]
        mass = [float(r.result["success_rate"]) for r in members]
        rows += [
            {**row_of(r), "good_mass": m, "data_good_mass": d} for r, m, d in zip(members, mass, data, strict=True)
        ]
        gaps = np.abs(np.subtract(mass, data))
        cells = [spread(data), spread(mass), f"{gaps.max():.3f}", f"{np.sum(gaps <= 0.05)} of {len(members)}"]
        table.append([f"H = {horizon}", str(len(members)), *cells, spread([r.result["episodes"] for r in members])])
    if not rows:
        return ""
    write_csv(out / "good-mass.csv", rows)
    return markdown(["", "seeds", "data", "forward policy", "largest gap", "within 0.05", "training episodes"], table)


def comparison(groups: dict[str, list[Finished]], out: Path) -> str:
    """At the longest horizon: success against episodes."""
    longest = max((r.spec.horizon for rs in groups.values() for r in rs), default=0)
    groups = {g: [r for r in rs if r.spec.horizon == longest] for g, rs in groups.items()}
    groups = {g: rs for g, rs in groups.items() if rs}
    title = f"combination lock, H = {longest}"
    curves = {label(g): [r.metrics for r in rs] for g, rs in groups.items() if g in GROUPS}
    if curves:
        run_plots.compare(out / "lock.png", curves, title)
    for name in ("foobar", "foobar-paper"):
        if name in groups:
            run_plots.curve(out / f"{name}.png", [r.metrics for r in groups[name]], f"{label(name)}, {title}")
    rows = []
    for group, members in groups.items():
        reached = [s for s in (r.solved_after() for r in members) if s is not None]
        success = [r.result["success_rate"] for r in members]
        rows.append(
            [
                label(group),
                str(len(members)),
                spread([r.result["episodes"] for r in members]),
                f"{spread(reached)}, {len(reached)} of {len(members)}" if reached else f"0 of {len(members)}",
                spread(success),
                f"{min(success):.3g}",
                spread([r.result["wall_seconds"] for r in members]),
            ]
        )
    header = [
        "algorithm",
        "runs",
        "training episodes",
        "episodes to success ≥ 0.9",
        "final success",
        "worst",
        "seconds",
    ]
    return f"H = {longest}\n\n{markdown(header, rows)}" if rows else ""


def scaling(groups: dict[str, list[Finished]], out: Path) -> str:
    """Episodes until success of at least 0.9."""
    every = sorted({r.spec.horizon for rs in groups.values() for r in rs})
    table, points = [], {}
    for group, members in groups.items():
        cells, line = [], {}
        for horizon in every:
            here = [r for r in members if r.spec.horizon == horizon]
            solved = [s for r in here if (s := r.solved_after()) is not None]
            budget = max((r.result["episodes"] for r in here), default=0)
            if not here:
                cells.append("")
            elif 2 * len(solved) < len(here):
                cells.append(f"unsolved after {budget:,} ({len(solved)} of {len(here)})")
            else:
                cells.append(f"{spread(solved)}, {len(solved)} of {len(here)}")
            line[horizon] = solved if here and 2 * len(solved) >= len(here) else []
        table.append([label(group), *cells])
        points[label(group)] = line
    if table:
        plots.scaling(out / "horizon-scaling.png", points, "episodes to success ≥ 0.9 on the lock")
    return markdown(["algorithm", *(f"H = {h}" for h in every)], table) if table else ""
