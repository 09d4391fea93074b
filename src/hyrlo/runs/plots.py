"""Pictures of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from hyrlo.core.files import atomic_file

COLOURS = {"forward": "tab:blue", "explore": "tab:purple", "backward": "tab:orange"}


def curve(path: Path, runs: list[list[dict[str, Any]]], title: str) -> None:
    """Success (or return) against training episodes, phases labelled; several runs as median and 25–75 %."""
    runs = [run for run in runs if run]
    if not runs:
        return
    shortest = min(len(run) for run in runs)
    lines = runs[0][:shortest]
    undefined = any(line["success_rate"] is None for run in runs for line in run[:shortest])
    name = "return_mean" if undefined else "success_rate"
    episodes = np.median([[line["episodes"] for line in run[:shortest]] for run in runs], axis=0)
    values = np.array([[line[name] for line in run[:shortest]] for run in runs])
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    begin = 0.0
    for phase in dict.fromkeys(line["phase"] for line in lines):
        rows = np.array([line["phase"] == phase for line in lines])
        end = episodes[rows][-1]
        colour = COLOURS.get(phase, "tab:green")
        axes.axvspan(begin, end, color=colour, alpha=0.07, linewidth=0)
        axes.text((begin + end) / 2, 1.02, phase, ha="center", color=colour, transform=axes.get_xaxis_transform())
        axes.plot(episodes[rows], middle[rows], color=colour, marker="." if rows.sum() < 3 else None)
        axes.fill_between(episodes[rows], low[rows], high[rows], color=colour, alpha=0.25, linewidth=0)
        begin = end
    axes.set_xlim(0, 1.01 * begin)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("training episodes")
    axes.set_ylabel(name.replace("_", " "))
    if name == "success_rate":
        axes.set_ylim(-0.03, 1.03)
    spread = f"; median and 25–75 % of {len(runs)} seeds" if len(runs) > 1 else ""
    axes.set_title(title + spread, fontsize=10, pad=18)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def compare(path: Path, groups: dict[str, list[list[dict[str, Any]]]], title: str) -> None:
    """Success against training episodes (log scale) of several algorithms: median and 25–75 % over seeds.

    A run that has ended keeps its last value, so that seeds that stopped early still count.
    """
    figure, axes = plt.subplots(figsize=(6.8, 4.0), layout="constrained")
    for number, (label, runs) in enumerate(groups.items()):
        ends = [run[-1]["episodes"] for run in runs]
        grid = np.unique(np.concatenate([[line["episodes"] for line in run] for run in runs]))
        values = np.array([_held(run, grid) for run in runs])
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
        colour = f"C{number}"
        axes.step(grid, middle, where="post", label=f"{label} ({_seeds(len(runs))})", color=colour)
        axes.fill_between(grid, low, high, step="post", alpha=0.2, linewidth=0, color=colour)
        axes.plot(np.median(ends), middle[-1], marker="o", markersize=4, color=colour)
    axes.set_xscale("log")
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("training episodes")
    axes.set_ylabel("success rate")
    axes.set_title(f"{title}; median and 25–75 % over seeds, dots: end of training", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def returns(path: Path, groups: dict[str, list[list[dict[str, Any]]]], behaviour: float, title: str) -> None:
    """Return against environment steps, and the behaviour's return as a line."""
    _against_steps(path, groups, "return_mean", ("behaviour that made the logs", behaviour), title)


def successes(path: Path, groups: dict[str, list[list[dict[str, Any]]]], data: float, title: str) -> None:
    """Success against environment steps, and that of the data as a line."""
    _against_steps(path, groups, "success_rate", ("data", data), title)


def _against_steps(
    path: Path, groups: dict[str, list[list[dict[str, Any]]]], value: str, level: tuple[str, float], title: str
) -> None:
    """Median and 25–75 % over seeds."""
    figure, axes = plt.subplots(figsize=(6.8, 4.0), layout="constrained")
    longest = 0
    for number, (label, runs) in enumerate(groups.items()):
        grid = np.unique(np.concatenate([[line["steps"] for line in run] for run in runs]))
        values = np.array([_held(run, grid, "steps", value, run[0][value]) for run in runs])
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
        axes.plot(grid, middle, label=f"{label} ({_seeds(len(runs))})", color=f"C{number}")
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
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def estimators(path: Path, rows: list[dict[str, Any]]) -> None:
    """Left: squared MMD per step; right: effective sample size. One line a seed."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
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
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize=8)
    _save(figure, path)


def match_per_step(path: Path, rows: list[dict[str, Any]]) -> None:
    """Left: squared MMD of roll-ins to the data; right: Jensen–Shannon divergence, where it was estimated."""
    figure, pair = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
    kinds = {"mmd2": ("floor", "squared MMD to states not seen"), "js": ("js_floor", "Jensen–Shannon divergence, nats")}
    for axes, (kind, (floor, name)) in zip(pair, kinds.items(), strict=True):
        known = [row for row in rows if row[kind] != ""]
        for number, group in enumerate(dict.fromkeys(row["group"] for row in known)):
            of_seeds = _by_seed([row for row in known if row["group"] == group], kind)
            low, middle, high = np.quantile(of_seeds, [0.25, 0.5, 0.75], axis=0)
            steps = 1 + np.arange(len(middle))
            axes.plot(steps, middle, color=f"C{number}", label=f"{group} ({_seeds(len(of_seeds))})")
            axes.fill_between(steps, low, high, color=f"C{number}", alpha=0.2, linewidth=0)
            if number == 0:
                data = np.median(_by_seed([row for row in known if row["group"] == group], floor), axis=0)
                axes.plot(steps, data, color="grey", linestyle=":", label="data against data")
        axes.set_xlabel("step")
        axes.set_ylabel(name)
        axes.spines[["top", "right"]].set_visible(False)
    pair[0].set_yscale("log")
    named = pair[0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    _save(figure, path)


def _seeds(n: int) -> str:
    return f"{n} seed{'s' * (n > 1)}"


def _by_seed(rows: list[dict[str, Any]], kind: str) -> list[list[float]]:
    return [[row[kind] for row in rows if row["seed"] == seed] for seed in dict.fromkeys(row["seed"] for row in rows)]


def _held(
    run: list[dict[str, Any]], grid: np.ndarray, by: str = "episodes", value: str = "success_rate", before: float = 0.0
) -> np.ndarray:
    """The value at every point of the grid: that of the newest evaluation, `before` it the first."""
    newest = np.searchsorted([line[by] for line in run], grid, side="right")
    return np.concatenate([[before], [line[value] for line in run]])[newest]


def scaling(path: Path, groups: dict[str, dict[int, list[int]]], title: str) -> None:
    """Episodes against the horizon, both on log scales: median and 25–75 %; horizons without values are left out."""
    figure, axes = plt.subplots(figsize=(5.6, 4.0), layout="constrained")
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
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=150)
    plt.close(figure)


def stationary_cpi(path: Path, rows: list[dict[str, Any]], runs: list[list[dict[str, Any]]], roll_in: float) -> None:
    """Left: CPI-trace's updates as a share of the bound; right: return of CPI-trace with networks."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
    for number, step in enumerate(dict.fromkeys(row["step"] for row in rows)):
        mine = [row for row in rows if row["step"] == step]
        places = [row["gamma"] + 0.02 * (number - 1) for row in mine]
        left.plot(places, [row["updates"] for row in mine], ".", color=f"C{number}", alpha=0.6, label=step)
    gammas = sorted({row["gamma"] for row in rows})
    for bound, style, label in (
        ("most_updates", "-", "8γ/ε², values as averages"),
        ("most_updates_plain_sums", ":", "8γ/ε², values as sums"),
    ):
        most = [next(row[bound] for row in rows if row["gamma"] == gamma) for gamma in gammas]
        left.plot(gammas, most, color="black", linestyle=style, label=label)
    left.set_yscale("symlog", linthresh=10)
    left.set_xlabel("γ")
    left.set_ylabel("updates until CPI-trace stops")
    left.legend(frameon=False, fontsize=8)
    for number, run in enumerate(runs):
        right.plot([m["episodes"] for m in run], [m["return_mean"] for m in run], color="tab:orange",
                   label=None if number else "CPI-trace, a line a seed")  # fmt: skip
    right.axhline(roll_in, color="grey", linestyle="--", linewidth=1, label="roll-in")
    right.set_xlabel("training episodes")
    right.set_ylabel("return, CartPole")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def stationary_forward(path: Path, rows: list[dict[str, Any]], chains: list[dict[str, float]]) -> None:
    """Left: Inter-FAIL's IPM against its bound; right: the two chains, where the paper's bound fails."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
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
        axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)
