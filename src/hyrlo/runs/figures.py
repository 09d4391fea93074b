"""Figures without pyplot: no global backend is touched, and matplotlib is loaded when the first figure is made."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hyrlo.core.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one panel; sizes in inches."""
    figure, [axes] = new_panels(width, height, 1)
    return figure, axes


def new_panels(width: float, height: float, panels: int) -> tuple[Figure, list[Axes]]:
    """A figure of several panels side by side."""
    return new_grid(1, panels, width / panels, height)


def new_grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of panels of this size, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, every


def integer_ticks(axes: Axes, most: int | None = None) -> None:
    """Ticks of the x axis at whole numbers, `most` at most."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(most or "auto", integer=True))


def quartiles(values: np.ndarray | list[list[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """25 %, 50 % and 75 % quantiles over the first axis."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    return low, middle, high


def count_seeds(n: int) -> str:
    return f"{n} seed{'s' * (n > 1)}"


def png(figure: Figure, dpi: int = 150) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=dpi)
    return target.getvalue()


def save(figure: Figure, path: Path) -> None:
    write_atomically(path, png(figure))
