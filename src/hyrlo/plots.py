"""Pictures of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from hyrlo.files import atomic_file

COLOURS = {"forward": "tab:blue", "backward": "tab:orange"}


def curve(path: Path, runs: list[list[dict[str, Any]]], title: str) -> None:
    """Success (or return) against training episodes, phases labelled; several runs as median and 25–75 %."""
    runs = [run for run in runs if run]
    if not runs:
        return
    shortest = min(len(run) for run in runs)
    lines = runs[0][:shortest]
    name = "return_mean" if lines[0]["success_rate"] is None else "success_rate"
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
    axes.set_xlim(0, begin)
    axes.set_xlabel("training episodes")
    axes.set_ylabel(name.replace("_", " "))
    if name == "success_rate":
        axes.set_ylim(-0.03, 1.03)
    spread = f"; median and 25–75 % of {len(runs)} seeds" if len(runs) > 1 else ""
    axes.set_title(title + spread, fontsize=10, pad=18)
    axes.spines[["top", "right"]].set_visible(False)
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=150)
    plt.close(figure)
