"""Several runs side by side: one table, and one picture of their curves against environment steps."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hyrlo.core.errors import RunError
from hyrlo.core.files import write_atomically
from hyrlo.runs.contents import identity, read_result
from hyrlo.runs.directory import read_config
from hyrlo.runs.figures import count_seeds, new_figure, quartiles, save
from hyrlo.runs.intervals import median_interval
from hyrlo.runs.metrics import read_lines
from hyrlo.runs.plots import held
from hyrlo.runs.seeds import seed_directories

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIRST = ("algo", "env", "horizon", "data.source", "roll_in", "config.preset")
"""What a label begins with, if it differs."""
INCIDENTAL = (
    "format",
    "seed",
    "versions",
    "code",
    "machine",
    "resumed_with",
    "command",
    "chosen",
    "actions",
    "data.fingerprint",
)
"""What two runs of the same kind may differ in, and what follows from the rest."""
LONGEST = 3
"""Settings that a label names besides the first ones."""
WIDE = 10
"""Where the longest run has this many times the steps of the shortest, steps are drawn on a log scale."""


@dataclass(frozen=True)
class RunGroup:
    """A run, or the seeds of one."""

    path: Path
    config: dict[str, Any]
    """That of the first seed."""
    seeds: list[int]
    results: list[dict[str, Any]]
    """Of the seeds that have finished."""
    curves: list[list[dict[str, Any]]]
    """Metrics of each seed that has any."""

    def over_seeds(self, name: str, scale: float = 1.0) -> dict[str, float] | None:
        """Median, quartiles and, from 3 seeds, a 95 % bootstrap interval of the median; None if it is not known."""
        values = [result.get(name) for result in self.results]
        if not values or None in values:
            return None
        numbers = np.array(values, float) * scale
        low, median, high = (float(x) for x in np.quantile(numbers, [0.25, 0.5, 0.75]))
        found = {"median": median, "q25": low, "q75": high}
        if len(numbers) >= 3:
            least, most = (
                (median, median) if low == high == numbers.min() == numbers.max() else median_interval(numbers.tolist())
            )
            found |= {"low95": float(least), "high95": float(most)}
        return found

    def warnings(self) -> list[str]:
        """What the runs said of themselves, each once."""
        unfinished = len(self.seeds) - len(self.results)
        own = [f"{unfinished} of {count_seeds(len(self.seeds))} not finished"] if unfinished else []
        said = Counter(warning["what"] for result in self.results for warning in result.get("warnings", []))
        return own + [f"{what} ({n} seeds)" if n > 1 else what for what, n in said.items()]


@dataclass(frozen=True)
class RunComparison:
    """Groups of runs by their labels; what `hyrlo.compare` returns."""

    groups: dict[str, RunGroup]

    @property
    def notes(self) -> list[str]:
        """What a reader should know before comparing."""
        notes = []
        for name, words in (("env", "environments"), ("horizon", "horizons")):
            found = dict.fromkeys(str(group.config[name]) for group in self.groups.values())
            if len(found) > 1:
                notes.append(f"these runs are of different {words} ({', '.join(found)}): returns do not compare")
        return notes

    def rows(self) -> list[dict[str, Any]]:
        """One line per group, for programs."""
        return [
            {
                "label": label,
                "path": str(group.path),
                **{name: group.config[name] for name in ("algo", "env", "horizon")},
                "seeds": group.seeds,
                "return": group.over_seeds("return_mean"),
                "success": group.over_seeds("success_rate"),
                "steps": group.over_seeds("steps"),
                "episodes": group.over_seeds("episodes"),
                "minutes": group.over_seeds("wall_seconds", 1 / 60),
                "warnings": group.warnings(),
            }
            for label, group in self.groups.items()
        ]

    def to_json(self, path: str | Path) -> None:
        write_atomically(Path(path), json.dumps({"notes": self.notes, "runs": self.rows()}, indent=2) + "\n")

    def plot(self, path: str | Path) -> None:
        """The curves of all groups against environment steps, as a png."""
        draw(Path(path), self)


def compare(runs: Sequence[str | Path]) -> RunComparison:
    """Read runs, or folders with the seeds of one, and name each by what sets it apart from the others."""
    paths = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if not paths:
        raise RunError("compare: give at least one run directory")
    twice = [str(path) for path, times in Counter(path.resolve() for path in paths).items() if times > 1]
    if twice:
        raise RunError(f"{twice[0]}: is given twice; give every run once")
    groups = [group for path in paths for group in _groups(path)]
    return RunComparison(dict(zip(labels([(g.path.name, g.config) for g in groups]), groups, strict=True)))


def _groups(path: Path) -> list[RunGroup]:
    """The run in a folder, or its seeds as one group, or the runs of a folder of runs."""
    if not path.is_dir():
        raise RunError(f"{path}: {'is a file' if path.exists() else 'does not exist'}; give a run directory")
    seeds = seed_directories(path)
    if seeds != [path] or (path / "config.json").exists():
        return [_group(path, seeds)]
    inner = sorted(one for one in path.iterdir() if (one / "config.json").exists() or seed_directories(one) != [one])
    if not inner:
        raise RunError(f"{path}: is not a run, it has no config.json; give a directory that `hyrlo train` has written")
    return [_group(one, seed_directories(one)) for one in inner]


def _group(path: Path, directories: list[Path]) -> RunGroup:
    configs = [read_config(directory) for directory in directories]
    results = [read_result(d) for d in directories if (d / "result.json").exists()]
    curves = [read_lines(d, identity(config)) for d, config in zip(directories, configs, strict=True)]
    return RunGroup(path, configs[0], [c["seed"] for c in configs], results, [curve for curve in curves if curve])


def labels(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A label for each run, from its name and its config: what differs among them, the algorithm first."""
    flat = [_flat(config) for _, config in runs]
    first = [name for name in FIRST if len({one.get(name) for one in flat}) > 1]
    found = [[_said(name, one[name]) for name in first if name in one] for one in flat]
    for same in _equal(found):  # what else sets those apart that have the same label so far
        others = [flat[i] for i in same]
        names = [n for n in dict.fromkeys(n for one in others for n in one) if len({one.get(n) for one in others}) > 1]
        for i in same:
            said = [_said(name, flat[i][name]) for name in names if name in flat[i]]
            found[i] += said[:LONGEST] + ["…"] * (len(said) > LONGEST)
    for same in _equal(found):
        for i in same:
            found[i].append(runs[i][0])
    joined = [", ".join(parts) or str(one["algo"]) for parts, one in zip(found, flat, strict=True)]
    times = Counter(joined)
    return [f"{label} ({i + 1})" if times[label] > 1 else label for i, label in enumerate(joined)]


def _equal(found: Sequence[Sequence[str]]) -> list[list[int]]:
    """Groups of more than one run with the same label."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, parts in enumerate(found):
        groups.setdefault(tuple(parts), []).append(i)
    return [same for same in groups.values() if len(same) > 1]


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Settings by dotted names; values that can be compared."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        path = f"{prefix}{name}"
        if path in INCIDENTAL:
            continue
        found |= (
            _flat(value, f"{path}.")
            if isinstance(value, dict)
            else {path: str(value) if isinstance(value, list) else value}
        )
    return found


def _said(name: str, value: Any) -> str:
    if name in ("algo", "env"):
        return str(value)
    if name == "data.source":
        return f"data={Path(str(value)).name}"
    short = name.removeprefix("config.").removeprefix("env_options.").removesuffix(".type")
    return f"{short}={f'{value:g}' if isinstance(value, float) else value}"


def draw(path: Path, comparison: RunComparison) -> None:
    """Success (or return, where some runs have no success rate) against steps: median and 25–75 % over seeds."""
    curves = [line for group in comparison.groups.values() for run in group.curves for line in run]
    if not curves:
        raise RunError(f"{path}: none of these runs has a curve yet; wait for their first step")
    value = "return_mean" if any(line["success_rate"] is None for line in curves) else "success_rate"
    figure, axes = new_figure(7.2, 4.2)
    ends = [
        _draw_group(axes, f"C{i}", label, group, value) for i, (label, group) in enumerate(comparison.groups.items())
    ]
    known = [end for end in ends if end]
    if max(known) > WIDE * min(known):
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("environment steps")
    axes.set_ylabel(value.removesuffix("_mean").replace("_", " "))
    if value == "success_rate":
        axes.set_ylim(-0.03, 1.03)
    several = any(len(group.seeds) > 1 for group in comparison.groups.values())
    axes.set_title(f"{'median and 25–75 % over seeds; ' if several else ''}dots: the final policy", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def _draw_group(axes: Axes, colour: str, label: str, group: RunGroup, value: str) -> float:
    """Draws a group; returns the steps of its longest run."""
    if not group.curves:
        return 0.0
    grid = np.unique(np.concatenate([[line["steps"] for line in run] for run in group.curves]))
    values = np.array([held(run, grid, by="steps", value=value, before=run[0][value]) for run in group.curves])
    low, middle, high = quartiles(values)
    named = label if len(group.seeds) == 1 else f"{label} ({count_seeds(len(group.seeds))})"
    axes.step(grid, middle, where="post", color=colour, label=named)
    axes.fill_between(grid, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
    steps, final = group.over_seeds("steps"), group.over_seeds(value)
    if steps and final:
        axes.plot(steps["median"], final["median"], marker="o", markersize=5, color=colour)
    longest = max(float(grid[-1]), steps["median"] if steps else 0.0)
    return longest if math.isfinite(longest) else 0.0
