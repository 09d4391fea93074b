"""The paper's theorems and propositions on finite MDPs, where everything can be computed exactly.

(a) the inequalities on random MDPs, (b) samples against the number of states, (c) the hardness constructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyrlo.diagnostics.coverage import coverage
from hyrlo.distances.value import ipm, value_witnesses
from hyrlo.experiments import theory_plots as plots
from hyrlo.experiments.recipes import Scale
from hyrlo.experiments.runner import markdown, say, write_csv
from hyrlo.experiments.theory_guarantees import (
    KINDS,
    SLACKS,
    TOLERANCE,
    Case,
    fit_error,
    fixed_action_example,
    one_sided_example,
    range_example,
    study,
)
from hyrlo.experiments.theory_hardness import check_tree, check_tv, reset_episodes
from hyrlo.experiments.theory_states import KINDS as STATE_KINDS
from hyrlo.experiments.theory_states import TARGETS, needed, samples_needed
from hyrlo.runs.intervals import spread
from hyrlo.runs.progress import Progress
from hyrlo.theory.finite import Table, uniform_policy
from hyrlo.theory.finite_fail import exact_returns, exactly, finite_psdp, smallest_ipm, witness_classes
from hyrlo.theory.hardness import hard_tree, search_is_blind

SEEDS = {"smoke": 1, "quick": 5, "paper": 10}
"""Seeds of the study of samples against states; the number of random MDPs is fixed by the scale."""
MDPS = {"smoke": 4, "quick": 200, "paper": 500}
ROUNDS = {"smoke": 100, "quick": 300, "paper": 300}
BACKWARD_SAMPLES = 2
"""Few enough that the fit is often wrong: the guarantees, which include its error, must still hold."""
STATES = {"smoke": [4, 8], "quick": [8, 32, 128, 512], "paper": [8, 16, 32, 64, 128, 256, 512, 1024]}
MOST_SAMPLES = {"smoke": 64, "quick": 2**15, "paper": 2**16}
STATE_ROUNDS = {"smoke": 30, "quick": 150, "paper": 150}
HORIZONS = {"smoke": [3, 4], "quick": [3, 4, 6, 8], "paper": [3, 4, 6, 8, 10]}
Rows = list[dict[str, Any]]


def compute(scale: Scale, seeds: int, out: Path) -> str:
    """Compute everything; CSV and pictures go to `out`, the tables are returned in Markdown."""
    guarantees = random_mdps(MDPS[scale], ROUNDS[scale])
    write_csv(out / "theory-guarantees.csv", guarantees)
    against_states = over_states(STATES[scale], seeds, MOST_SAMPLES[scale], STATE_ROUNDS[scale])
    write_csv(out / "theory-states.csv", against_states)
    panels = {target: needed(against_states, target) for target in TARGETS}
    plots.states(out / "theory-states.png", panels, TARGETS)
    say("hardness constructions")
    hardness = [*(row for h in HORIZONS[scale] for row in check_tree(h)), *check_tv()]
    write_csv(out / "theory-hardness.csv", hardness)
    plots.tree(out / "hard-tree.png", hard_tree(4))
    plots.tv(out / "hard-tv.png")
    episodes = [
        {"horizon": h, "trace": search_is_blind(h, 2), "reset": reset_episodes(hard_tree(h))[0]}
        for h in HORIZONS[scale]
    ]
    plots.search(out / "hard-tree-episodes.png", episodes)
    parts = [
        "Violations of each inequality / cases in which it was checked (least slack):\n",
        violations(guarantees),
        "\nSmall examples:\n",
        examples(),
        "\nSamples a step and pass, median (25 %, 75 %):\n",
        sample_table(panels),
        "\nHardness:\n",
        markdown(
            ["construction", "statement", "paper", "computed", "holds as in the paper"],
            [
                [r["construction"], r["statement"], str(r["paper"]), f"{r['computed']:.4g}", _yes(r["holds"])]
                for r in hardness
            ],
        ),
    ]
    return "".join(parts)


def random_mdps(number: int, rounds: int) -> Rows:
    """Checks on `number` MDPs with admissible data and as many without."""
    rows: Rows = []
    with Progress().phase("random MDPs", 2 * number, 0) as bar:
        for seed in range(number):
            for admissible in (True, False):
                rows += [_rounded(row) for row in study(seed, admissible, rounds, BACKWARD_SAMPLES)]
                failed = sum(_failed(row, name) for row in rows for name in SLACKS)
                bar.note(f"{failed} violations so far")
    return rows


def over_states(sizes: Sequence[int], seeds: int, most: int, rounds: int) -> Rows:
    rows: Rows = []
    with Progress().phase("states", len(sizes) * seeds * len(STATE_KINDS), 0) as bar:
        for states in sizes:
            for seed in range(seeds):
                for kind in STATE_KINDS:
                    rows += samples_needed(states, kind, seed, most, rounds)
                    bar.note(f"{kind} witnesses, {states} states: {rows[-1]['samples']:,} samples")
    return rows


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}


def _failed(row: dict[str, Any], name: str) -> bool:
    return row[name] != "" and row[name] < -TOLERANCE


def violations(rows: Rows) -> str:
    """Violations of each inequality, for every witness class and forward pass."""
    groups = [(kind, solver) for kind in KINDS for solver in ("game", "exact")]
    table = []
    for name, text in SLACKS.items():
        line = [text]
        for kind, solver in groups:
            mine = [r for r in rows if (r["witnesses"], r["forward"]) == (kind, solver) and r[name] != ""]
            if name.startswith("slack_forward"):
                mine = [r for r in mine if r["backward"] == "exact"]  # the forward pass is the same for both
            failed = sum(_failed(r, name) for r in mine)
            line.append(f"{failed} / {len(mine)} ({min(r[name] for r in mine):.2g})" if mine else "")
        table.append(line)
    short = ["(no claim) V^b is below the best policy that the data cover"]
    for kind, solver in groups:
        mine = [r for r in rows if (r["witnesses"], r["forward"]) == (kind, solver)]
        short.append(f"{sum(r['value'] < r['best_covered'] - TOLERANCE for r in mine)} / {len(mine)}")
    return markdown(["", *(f"{kind}; {solver} forward" for kind, solver in groups)], [*table, short])


def examples() -> str:
    """The two counterexamples: an IPM (or u) of 0 and a perfect fit, and yet a gap to π*."""
    case, roll_in = fixed_action_example()
    rows = [_example("Eq. 1 with one action a′; IPM 0", case, roll_in)]
    case = one_sided_example()
    one_sided = witness_classes(case.mdp, case.values, value_witnesses, case.behaviour, signed=False)
    roll_in = uniform_policy(case.mdp)
    u, roll_in[0] = smallest_ipm(exactly(case.mdp)(0, roll_in), case.offline[1], one_sided[1])
    rows.append(_example(f"Algorithm 4 without absolute value; u = {u:.3g}", case, roll_in))
    table = markdown(["", "IPM of Eq. 1 at step 1", "fit error", "C_cov(π*)", "V* − V^b"], rows)
    reached, bound = range_example()
    return f"{table}\nWitnesses up to H: IPM at step 1 after one round {reached:.3g}, bound h·A/√T = {bound:.3g}\n"


def _example(name: str, case: Case, roll_in: Table) -> list[str]:
    mdp, occupancy = case.mdp, case.mdp.occupancy(roll_in)
    backward, learned = finite_psdp(exact_returns(mdp, occupancy), case.values, uniform_policy(mdp), worst=case.offline)
    witnesses = witness_classes(mdp, case.values, value_witnesses, case.behaviour)
    numbers = (
        ipm(witnesses[1], occupancy[1], case.offline[1]),
        fit_error(mdp, occupancy, backward, learned),
        coverage(mdp, mdp.optimal_policy(), case.offline[:-1]),
        mdp.optimal_value() - mdp.value(backward),
    )
    return [name, *(f"{number:.3g}" for number in numbers)]


def sample_table(panels: dict[str, dict[str, dict[int, list[float]]]]) -> str:
    sizes = sorted(next(iter(panels["ipm"].values())))
    rows = []
    for target, kinds in panels.items():
        for kind, points in kinds.items():
            rows.append([f"{kind} witnesses, {target} ≤ {TARGETS[target]:g}", *(_spread(points[s]) for s in sizes)])
    return markdown(["", *(f"S = {s}" for s in sizes)], rows)


def _spread(values: list[float]) -> str:
    return (
        spread(values) if np.isfinite(values).all() else f"{sum(np.isinf(values))} of {len(values)} seeds not reached"
    )


def _yes(holds: bool | None) -> str:
    return "" if holds is None else "yes" if holds else "**no**"
