"""Learning curves of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hyrlo.runs.figures import count_seeds, integer_ticks, new_figure, quartiles, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "choose": "tab:grey",
    "forward": "tab:blue",
    "explore": "tab:purple",
    "plan": "tab:red",
    "backward": "tab:orange",
}


def curve(path: Path, runs: list[list[dict[str, Any]]], title: str) -> None:
    """Success (or return) against training episodes, phases labelled. Several runs: median and 25–75 %."""
    runs = [run for run in runs if run]
    if not runs:
        return
    shortest = min(len(run) for run in runs)
    runs = [run[:shortest] for run in runs]
    undefined = any(line["success_rate"] is None for run in runs for line in run)
    name = "return_mean" if undefined else "success_rate"
    figure, axes = new_figure(6.4, 3.6)
    _draw_phases(axes, runs, name)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    integer_ticks(axes, 6)
    axes.set_xlabel("training episodes")
    axes.set_ylabel(name.replace("_", " "))
    if name == "success_rate":
        axes.set_ylim(-0.03, 1.03)
    spread = f"; median and 25–75 % of {len(runs)} seeds" if len(runs) > 1 else ""
    axes.set_title(title + spread, fontsize=10)
    axes.legend(frameon=False, fontsize=8, title="phase")
    save(figure, path)


def _draw_phases(axes: Axes, runs: list[list[dict[str, Any]]], name: str) -> None:
    """The metric `name` in the colour of its phase. All runs have the same number of lines."""
    episodes = np.median([[line["episodes"] for line in run] for run in runs], axis=0)
    low, middle, high = quartiles([[line[name] for line in run] for run in runs])
    begin = 0.0
    for phase in dict.fromkeys(line["phase"] for line in runs[0]):
        rows = np.array([line["phase"] == phase for line in runs[0]])
        end = episodes[rows][-1]
        colour = COLOURS.get(phase, "tab:green")
        axes.axvspan(begin, end, color=colour, alpha=0.07, linewidth=0)
        axes.plot(episodes[rows], middle[rows], color=colour, label=phase, marker="o" if rows.sum() < 3 else None)
        axes.fill_between(episodes[rows], low[rows], high[rows], color=colour, alpha=0.25, linewidth=0)
        begin = end
    axes.set_xlim(0, 1.01 * begin)


def compare(path: Path, groups: dict[str, list[list[dict[str, Any]]]], title: str) -> None:
    """Success against training episodes (log scale) of several algorithms: median and 25–75 % over seeds.

    A run that has ended keeps its last value, so that seeds that stopped early still count.
    """
    figure, axes = new_figure(6.8, 4.0)
    for number, (label, runs) in enumerate(groups.items()):
        ends = [run[-1]["episodes"] for run in runs]
        grid = np.unique(np.concatenate([[line["episodes"] for line in run] for run in runs]))
        values = np.array([held(run, grid) for run in runs])
        low, middle, high = quartiles(values)
        colour = f"C{number}"
        axes.step(grid, middle, where="post", label=f"{label} ({count_seeds(len(runs))})", color=colour)
        axes.fill_between(grid, low, high, step="post", alpha=0.2, linewidth=0, color=colour)
        axes.plot(np.median(ends), middle[-1], marker="o", markersize=4, color=colour)
    axes.set_xscale("log")
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("training episodes")
    axes.set_ylabel("success rate")
    axes.set_title(f"{title}; median and 25–75 % over seeds, dots: end of training", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def held(
    run: list[dict[str, Any]], grid: np.ndarray, by: str = "episodes", value: str = "success_rate", before: float = 0.0
) -> np.ndarray:
    """The value of the latest evaluation at every point of the grid; `before` ahead of the first."""
    newest = np.searchsorted([line[by] for line in run], grid, side="right")
    return np.concatenate([[before], [line[value] for line in run]])[newest]
