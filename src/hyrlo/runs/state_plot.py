"""A picture of state data: each dimension over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hyrlo.data.describe import describe_dimensions, quantiles_over_time
from hyrlo.data.states import ObservationDataset
from hyrlo.runs.figures import integer_ticks, new_grid, save

PANELS = 24
"""Dimensions that are shown."""
COLUMNS = 4


def plot_states(path: Path, data: ObservationDataset, title: str) -> None:
    """Median, 25–75 % and 5–95 % of each dimension that is not constant, over the timesteps."""
    dimensions = describe_dimensions(data)
    varying = [i for i, dimension in enumerate(dimensions) if not dimension.constant] or list(range(len(dimensions)))
    shown, quantiles = varying[:PANELS], quantiles_over_time(data)
    columns = min(COLUMNS, len(shown))
    figure, panels = new_grid(-(-len(shown) // columns), columns, 2.4, 1.6)
    steps = np.arange(data.horizon + 1)
    for axes, i in zip(panels, shown, strict=False):
        least, low, middle, high, most = quantiles[:, :, i]
        axes.fill_between(steps, least, most, color="tab:blue", alpha=0.15, linewidth=0)
        axes.fill_between(steps, low, high, color="tab:blue", alpha=0.3, linewidth=0)
        axes.plot(steps, middle, color="tab:blue")
        axes.set_title(dimensions[i].name, fontsize=8, parse_math=False)
        axes.tick_params(labelsize=7)
        integer_ticks(axes, 5)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    more = f", {len(shown)} of {len(dimensions)} dimensions" if len(shown) < len(dimensions) else ""
    figure.suptitle(f"{title}{more}: median, 25–75 % and 5–95 % at each timestep", fontsize=9, parse_math=False)
    save(figure, path)
