"""Figures of the experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hyrlo.runs.figures import count_seeds, new_figure, new_panels, quartiles, save
from hyrlo.runs.plots import held

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def returns(path: Path, groups: dict[str, list[list[dict[str, Any]]]], behaviour: float, title: str) -> None:
    """Return against environment steps, and the behaviour's return as a line."""
    _against_steps(path, groups, "return_mean", ("behaviour that made the logs", behaviour), title)


def successes(path: Path, groups: dict[str, list[list[dict[str, Any]]]], data: float, title: str) -> None:
    """Success against environment steps, and the success of the data as a line."""
    _against_steps(path, groups, "success_rate", ("data", data), title)


def _against_steps(
    path: Path, groups: dict[str, list[list[dict[str, Any]]]], value: str, level: tuple[str, float], title: str
) -> None:
    """Median and 25–75 % over seeds."""
    figure, axes = new_figure(6.8, 4.0)
    longest = 0
    for number, (label, runs) in enumerate(groups.items()):
        grid = np.unique(np.concatenate([[line["steps"] for line in run] for run in runs]))
        values = np.array([held(run, grid, "steps", value, run[0][value]) for run in runs])
        low, middle, high = quartiles(values)
        axes.plot(grid, middle, label=f"{label} ({count_seeds(len(runs))})", color=f"C{number}")
        axes.fill_between(grid, low, high, alpha=0.2, linewidth=0, color=f"C{number}")
        switches = [line["steps"] for run in runs for line in run if line["phase"] == "forward"]
        if switches:
            axes.axvspan(0, max(switches), color=f"C{number}", alpha=0.05, linewidth=0)
            longest = max(longest, *switches)
    if longest:
        axes.text(longest / 2, 1.01, "forward", ha="center", transform=axes.get_xaxis_transform(), fontsize=8)
    axes.axhline(level[1], color="grey", linestyle="--", linewidth=1, label=level[0])
    axes.set_xlabel("environment steps")
    axes.set_ylabel({"return_mean": "return", "success_rate": "success rate"}[value])
    axes.set_title(f"{title}; median and 25–75 % over seeds", fontsize=9, pad=14)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)  # curves fill the axes
    save(figure, path)


def estimators(path: Path, rows: list[dict[str, Any]]) -> None:
    """Left: squared MMD per step; right: effective sample size. One line per seed."""
    figure, (left, right) = new_panels(8.4, 3.6, 2)
    kinds = list(dict.fromkeys(row["estimator"] for row in rows))
    for number, kind in enumerate(kinds):
        for seed in dict.fromkeys(row["seed"] for row in rows if row["estimator"] == kind):
            mine = [row for row in rows if row["estimator"] == kind and row["seed"] == seed]
            steps = [row["step"] + 1 for row in mine]
            label = kind if seed == mine[0]["seed"] == rows[0]["seed"] else None
            left.plot(steps, [row["mmd2"] for row in mine], color=f"C{number}", label=label, alpha=0.8)
            right.plot(steps, [row["effective_sample_size"] for row in mine], color=f"C{number}", alpha=0.8)
            if number == 0:
                floor = "logs against logs" if label else None
                left.plot(steps, [row["floor"] for row in mine], color="grey", linestyle=":", label=floor)
    left.set_yscale("log")
    right.set_yscale("log")
    for axes, name in ((left, "squared MMD to logs not seen"), (right, "effective sample size, share")):
        axes.set_xlabel("step")
        axes.set_ylabel(name)
    left.legend(frameon=False, fontsize=8)
    save(figure, path)


def match_per_step(path: Path, rows: list[dict[str, Any]]) -> None:
    """Squared MMD of roll-ins to data that they have not seen, a panel for each task: median and 25–75 % over seeds."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure, panels = new_panels(4.2 * len(tasks), 3.6, len(tasks))
    for axes, task in zip(panels, tasks, strict=True):
        known = [row for row in rows if row["task"] == task]
        for number, method in enumerate(dict.fromkeys(row["method"] for row in known)):
            mine = [row for row in known if row["method"] == method]
            of_seeds = _by_seed(mine, "mmd2")
            low, middle, high = quartiles(of_seeds)
            steps = 1 + np.arange(len(middle))
            label, style = f"{method} ({count_seeds(len(of_seeds))})", "--" if number else "-"  # they may be equal
            axes.plot(steps, middle, color=f"C{number}", linestyle=style, label=label)
            axes.fill_between(steps, low, high, color=f"C{number}", alpha=0.2, linewidth=0)
            if number == 0:
                floor = np.median(_by_seed(mine, "floor"), axis=0)
                axes.plot(steps, floor, color="grey", linestyle=":", label="data against data")
        axes.set_yscale("log")
        axes.set_title(task, fontsize=9)
        axes.set_xlabel("step")
        axes.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("squared MMD to states not seen")
    save(figure, path)


def _by_seed(rows: list[dict[str, Any]], kind: str) -> list[list[float]]:
    return [[row[kind] for row in rows if row["seed"] == seed] for seed in dict.fromkeys(row["seed"] for row in rows)]


def scaling(path: Path, groups: dict[str, dict[int, list[int]]], title: str) -> None:
    """Episodes against the horizon, both on log scales: median and 25–75 %; horizons without values are left out."""
    figure, axes = new_figure(5.6, 4.0)
    for number, (label, points) in enumerate(groups.items()):
        known = {h: np.quantile(v, [0.25, 0.5, 0.75]) for h, v in points.items() if v}
        if known:
            low, middle, high = np.array(list(known.values())).T
            bars = [middle - low, high - middle]
            axes.errorbar(list(known), middle, yerr=bars, marker="o", capsize=3, color=f"C{number}", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    horizons = sorted({h for points in groups.values() for h in points})
    axes.set_xticks(horizons, [str(h) for h in horizons])
    axes.minorticks_off()
    axes.set_xlabel("horizon")
    axes.set_ylabel("training episodes")
    axes.set_title(title, fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def stationary_cpi(path: Path, rows: list[dict[str, Any]], runs: list[list[dict[str, Any]]], roll_in: float) -> None:
    """Left: updates of CPI-trace and their bound; right: return of CPI-trace with networks."""
    figure, (left, right) = new_panels(9.0, 3.8, 2)
    _cpi_updates(left, rows)
    for number, run in enumerate(runs):
        label = None if number else "CPI-trace, a line a seed"
        right.plot([m["episodes"] for m in run], [m["return_mean"] for m in run], color="tab:orange", label=label)
    right.axhline(roll_in, color="grey", linestyle="--", linewidth=1, label="roll-in")
    right.set_xlabel("training episodes")
    right.set_ylabel("return, CartPole")
    right.legend(frameon=False, fontsize=8)
    save(figure, path)


def _cpi_updates(axes: Axes, rows: list[dict[str, Any]]) -> None:
    for number, step in enumerate(dict.fromkeys(row["step"] for row in rows)):
        mine = [row for row in rows if row["step"] == step]
        places = [row["gamma"] + 0.02 * (number - 1) for row in mine]
        axes.plot(places, [row["updates"] for row in mine], ".", color=f"C{number}", alpha=0.6, label=step)
    gammas = sorted({row["gamma"] for row in rows})
    for bound, style, label in (
        ("most_updates", "-", "8γ/ε², values as averages"),
        ("most_updates_plain_sums", ":", "8γ/ε², values as sums"),
    ):
        most = [next(row[bound] for row in rows if row["gamma"] == gamma) for gamma in gammas]
        axes.plot(gammas, most, color="black", linestyle=style, label=label)
    axes.set_yscale("symlog", linthresh=10)
    axes.set_xlabel("γ")
    axes.set_ylabel("updates until CPI-trace stops")
    axes.legend(frameon=False, fontsize=8)


def stationary_forward(path: Path, rows: list[dict[str, Any]], chains: list[dict[str, float]]) -> None:
    """Left: Inter-FAIL's IPM against its bound; right: the two chains, where the paper's bound fails."""
    figure, (left, right) = new_panels(9.0, 3.8, 2)
    for number, kind in enumerate(dict.fromkeys(row["class"] for row in rows)):
        mine = [row for row in rows if row["class"] == kind]
        left.plot([row["bound"] for row in mine], [row["ipm"] for row in mine], ".", color=f"C{number}", label=kind)
    ends = np.array([min(row["ipm"] for row in rows), max(row["bound"] for row in rows)])
    left.plot(ends, ends, color="black", linewidth=1, label="IPM = bound")
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("(ε + ε_be) / (1 − γ)")
    left.set_ylabel("IPM of the learned policy")
    gammas = [row["gamma"] for row in chains]
    for key, style, label in (
        ("ipm", "o-", "IPM"),
        ("bound", "--", "(ε + ε_be) / (1 − γ)"),
        ("bound_twice", ":", "γ (ε + 2 ε_be) / (1 − γ)"),
    ):
        right.plot(gammas, [row[key] for row in chains], style, label=label)
    right.set_xlabel("γ")
    right.set_ylabel("the two chains")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    save(figure, path)
