"""Figures of the theory experiment: the two constructions as graphs, samples against states, episodes against the horizon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hyrlo.runs.figures import new_figure, new_panels, save
from hyrlo.theory.hardness import TV_NEXT, TV_OFFLINE, HardTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEST, OTHER, PLAIN = "tab:blue", "tab:orange", "lightgrey"


def tree(path: Path, hard: HardTree) -> None:
    """Nodes of every step from left to right; the optimal path and its data blue, the other data orange."""
    horizon = hard.mdp.horizon
    figure, axes = new_figure(6.8, 4.2)
    levels = _levels(hard)
    height = {node: (i + 0.5) / len(level) for level in levels for i, node in enumerate(level)}
    for h in range(horizon):
        _draw_edges(axes, hard, h, levels[h], height)
    for h, level in enumerate(levels):
        colours = [BEST if n == hard.best[h] else OTHER if n == hard.other[h] else PLAIN for n in level]
        axes.scatter([h] * len(level), [height[n] for n in level], c=colours, s=70, zorder=2, edgecolors="grey")
    for h in range(1, horizon + 1):
        axes.annotate("½", (h, height[int(hard.other[h])]), (7, 4), textcoords="offset points", color=OTHER)
        axes.annotate("½", (h, height[int(hard.best[h])]), (7, 4), textcoords="offset points", color=BEST)
    end = (horizon, height[int(hard.best[-1])])
    axes.annotate("pays 1", end, (22, -4), textcoords="offset points", color=BEST, fontsize=9)
    axes.set_xlim(-0.2, horizon + 0.6)
    axes.set_xticks(range(horizon + 1), [f"$s_{h}$" for h in range(horizon + 1)])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    title = "Tree: offline states of each step half on the optimal path (blue), half elsewhere (orange)"
    axes.set_title(title, fontsize=9)
    save(figure, path)


def _levels(hard: HardTree) -> list[list[int]]:
    """Nodes of every step, children of one node beside each other."""
    levels = [[0]]
    for h in range(hard.mdp.horizon):
        levels.append([int(child) for node in levels[-1] for child in hard.mdp.successors[h, node, :, 0]])
    return levels


def _draw_edges(axes: Axes, hard: HardTree, h: int, level: list[int], height: dict[int, float]) -> None:
    for node in level:
        for action, child in enumerate(hard.mdp.successors[h, node, :, 0]):
            ends = [height[node], height[int(child)]]
            on_path = node == hard.best[h] and child == hard.best[h + 1]
            colour, width = (BEST, 2.0) if on_path else ("grey", 0.7)
            axes.plot([h, h + 1], ends, zorder=1, color=colour, linewidth=width)
            if h == 0:
                axes.text(0.5, sum(ends) / 2, f"$a_{action + 1}$", ha="center", va="bottom", fontsize=9)


def tv(path: Path) -> None:
    """The one step, its probabilities, and the offline distribution."""
    figure, axes = new_figure(5.8, 3.4)
    places = {"$s_0$": (0.0, 1.0), "$s_1$": (1.6, 2.0), "$s_2$": (1.6, 1.0), "$s_3$": (1.6, 0.0)}
    for action, colour in enumerate((BEST, OTHER)):
        for following, (probability, bend) in enumerate(zip(TV_NEXT[action], (0.0, 0.18, 0.0), strict=True)):
            if probability:
                end = places[f"$s_{following + 1}$"]
                curve = bend if action == 0 else -bend
                arrow = {
                    "arrowstyle": "-|>",
                    "color": colour,
                    "connectionstyle": f"arc3,rad={-curve}",
                    "shrinkA": 14,
                    "shrinkB": 14,
                }
                axes.annotate("", end, places["$s_0$"], arrowprops=arrow)
                x, y = 0.62 * end[0], 1 + 0.62 * (end[1] - 1) + 0.95 * curve
                axes.text(x, y, f"{probability:g}", color=colour, fontsize=9, ha="center", backgroundcolor="white")
    for name, (x, y) in places.items():
        axes.scatter([x], [y], s=620, color="tab:red" if name == "$s_3$" else PLAIN, edgecolors="grey", zorder=3)
        axes.text(x, y, name, ha="center", va="center", zorder=4)
    for following, mass in enumerate(TV_OFFLINE):
        axes.text(1.95, 2.0 - following, f"offline {mass:g}", va="center", fontsize=9)
    axes.text(2.62, 0.0, "$a_2$ pays 1", va="center", fontsize=9, color="tab:red")
    axes.text(0.0, 1.75, "$a_1$", color=BEST)
    axes.text(0.0, 0.2, "$a_2$", color=OTHER)
    axes.set_xlim(-0.3, 3.3)
    axes.set_ylim(-0.35, 2.35)
    axes.axis("off")
    save(figure, path)


def states(path: Path, panels: dict[str, dict[str, dict[int, list[float]]]], targets: dict[str, float]) -> None:
    """Samples needed against the number of states, both on log scales: median and 25–75 %."""
    figure, every = new_panels(9.0, 3.8, len(panels))
    labels = {"value": "value witnesses (Eq. 1)", "tv": "all bounded functions (TV)"}
    for axes, (target, kinds) in zip(every, panels.items(), strict=True):
        for number, (kind, points) in enumerate(kinds.items()):
            sizes = sorted(points)
            quantiles = np.quantile([points[s] for s in sizes], [0.25, 0.5, 0.75], axis=1, method="nearest")
            low, middle, high = np.where(np.isfinite(quantiles), quantiles, np.nan)  # not reached: no point
            axes.plot(sizes, middle, marker="o", color=f"C{number}", label=labels[kind])
            axes.fill_between(sizes, low, high, color=f"C{number}", alpha=0.2, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xlim(min(sizes) / 1.2, max(sizes) * 1.2)
        if any(np.isfinite(line.get_ydata()).any() for line in axes.lines):
            axes.set_yscale("log", base=2)
        axes.set_xlabel("states a step")
        axes.set_ylabel("samples a step and pass")
        name = "exact Eq. 1 IPM" if target == "ipm" else "V* − V"
        axes.set_title(f"until {name} ≤ {targets[target]:g}", fontsize=10)
    every[0].legend(frameon=False, fontsize=8)
    save(figure, path)


def search(path: Path, rows: list[dict[str, Any]]) -> None:
    """Episodes against the horizon: blind search with a trace model, PSDP with a reset model."""
    figure, axes = new_figure(5.2, 3.6)
    horizons = [row["horizon"] for row in rows]
    axes.plot(
        horizons,
        [row["trace"] for row in rows],
        marker="o",
        color=OTHER,
        label="trace model: to match $D_H$ (expected)",
    )
    axes.plot(
        horizons, [row["reset"] for row in rows], marker="o", color=BEST, label="reset model: PSDP to the optimum"
    )
    axes.set_yscale("log", base=2)
    axes.set_xlabel("horizon")
    axes.set_ylabel("episodes")
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)
