"""HDF5 files: arrays as in npz, D4RL's flat arrays with terminals and timeouts, and robomimic's demonstrations.

Members that lie in other files are refused, and sizes are compared with the file before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.data.arrays import as_float32, check_numeric
from hyrlo.data.bounds import Budget
from hyrlo.data.columns import ColumnOptions, names_in
from hyrlo.data.formats import OBSERVATIONS, TIMESTEPS, first_line, optional_modules
from hyrlo.data.nodes import own_member, read_numbers
from hyrlo.data.precision import check_precision
from hyrlo.data.rows import StateRows, dataset_of, numbered
from hyrlo.data.states import ObservationDataset

TERMINALS, TIMEOUTS = ("terminals", "terminations"), ("timeouts", "truncations")
"""Arrays that say where episodes end."""
DEMOS, DEMO_STATES, DEMO_ENDS = "data", "obs", "dones"
"""Names of robomimic's groups and arrays."""


class Demo(NamedTuple):
    """One demonstration of robomimic: its states by name, and whether it ended."""

    states: dict[str, np.ndarray]
    ended: bool
    left_out: list[str]


def read_hdf5(source: str, options: ColumnOptions, max_episodes: int | None, check_finite: bool) -> ObservationDataset:
    """The states of an HDF5 file; its layout is known by its names."""
    (h5py,) = optional_modules("hdf5", source, "h5py")
    path = Path(source)
    if not path.is_file():
        raise DataError(f"{source}: {'is a directory, not an HDF5 file' if path.is_dir() else 'no such file'}")
    try:
        with h5py.File(path, "r") as file:
            budget = Budget(source, path.stat().st_size)
            demos = _demos(file, source)
            rows = _of_demos(demos, options, max_episodes, budget) if demos else _of_arrays(file, options, budget)
    except DataError:
        raise
    except Exception as error:  # a damaged file makes HDF5 raise anything
        raise DataError(f"{source}: cannot be read as HDF5, it may be truncated ({first_line(error)})") from error
    if isinstance(rows, np.ndarray):
        return ObservationDataset.from_trajectories(rows[:max_episodes], source, check_finite)
    return dataset_of(rows.first_episodes(max_episodes, source), source, options.rate, check_finite)


def _of_arrays(file: Any, options: ColumnOptions, budget: Budget) -> StateRows | np.ndarray:
    """Rows of states with what says when they were; or trajectories `(N, H+1, *obs)`."""
    if options.ignore:
        raise DataError(f"{budget.source}: --ignore is for columns; name the arrays of the state with --observations")
    names = names_in(options.observations or OBSERVATIONS)
    arrays = [_array(file, name, budget, "--observations NAME") for name in names]
    when = options.time or options.timesteps or (TIMESTEPS if TIMESTEPS in file else None)
    times = None if when is None else _row_array(file, when, budget, len(arrays[0]))
    ends, cuts = (_flags_of(file, known, budget, len(arrays[0])) for known in (TERMINALS, TIMEOUTS))
    episodes = None
    if options.episode is not None:
        episodes = numbered(_row_array(file, options.episode, budget, len(arrays[0])))
    elif when is None and (ends is not None or cuts is not None):
        last = np.logical_or(*(np.zeros(len(arrays[0]), bool) if flags is None else flags for flags in (ends, cuts)))
        episodes = np.cumsum(last) - last
    if when is None and episodes is None:
        if len(arrays) == 1 and arrays[0].ndim >= 3:
            return arrays[0]
        raise DataError(
            f"{budget.source}: {names[0]} has shape {arrays[0].shape} and nothing says which step a row is (found "
            f"{', '.join(file)}); give --timesteps NAME, --episode NAME or --time NAME with `hyrlo data import`"
        )
    states, dimensions = _joined(dict(zip(names, arrays, strict=True)), budget.source)
    return StateRows(
        states, dimensions, lambda row: f"row {row}", None if options.time else times, times if options.time else None,
        episodes, None if episodes is None or ends is None else ends, when or "",
    )  # fmt: skip


def _array(file: Any, name: str, budget: Budget, option: str) -> np.ndarray:
    """The numbers of an array, whose name may be a path."""
    node, parts = file, name.strip("/").split("/")
    for part in parts:
        if not hasattr(node, "keys") or part not in node:
            found = ", ".join(node) if hasattr(node, "keys") else "an array"
            raise DataError(
                f"{budget.source}: has no array named {name} (found {found or 'nothing'}); give `hyrlo data import {option}`"
            )
        node = own_member(node, part, budget.source)
    if hasattr(node, "keys"):
        raise DataError(
            f"{budget.source}: {name} is a group of {', '.join(node)}; give `hyrlo data import {option}` as in "
            f"{name}/{next(iter(node), 'NAME')}"
        )
    values = read_numbers(node, budget)
    check_numeric(values, name, budget.source)
    if values.ndim == 0 or not len(values):
        raise DataError(f"{budget.source}: {name} holds no states")
    return values


def _row_array(file: Any, name: str, budget: Budget, rows: int) -> np.ndarray:
    """One number for each row."""
    values = _array(file, name, budget, "--timesteps NAME, --episode NAME or --time NAME")
    if values.size != rows:
        raise DataError(
            f"{budget.source}: {name} has shape {values.shape}, but there are {rows:,} rows; give one for each"
        )
    return values.ravel()


def _flags_of(file: Any, known: tuple[str, ...], budget: Budget, rows: int) -> np.ndarray | None:
    name = next((name for name in known if name in file), None)
    return None if name is None else _row_array(file, name, budget, rows) != 0


def _joined(arrays: dict[str, np.ndarray], source: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Arrays of as many rows side by side, as float32; and the names of the dimensions."""
    columns, names = [], []
    rows = len(next(iter(arrays.values())))
    for name, values in arrays.items():
        if len(values) != rows:
            raise DataError(
                f"{source}: {name} has {len(values):,} rows, {next(iter(arrays))} has {rows:,}; give as many"
            )
        flat = values.reshape(rows, -1)
        check_precision(flat, source, [f"{name}[{i}]" for i in range(flat.shape[1])])
        columns.append(as_float32(flat, name, source))
        names += [name] if values.ndim == 1 else [f"{name}[{i}]" for i in range(flat.shape[1])]
    return np.concatenate(columns, axis=1), tuple(names)


def _demos(file: Any, source: str) -> list[Any]:
    """The groups of demonstrations in the order of their numbers, if this is robomimic's layout."""
    if DEMOS not in file or not hasattr(data := own_member(file, DEMOS, source), "keys"):
        return []
    names = [name for name in data if re.fullmatch(r"\w*_\d+", name, re.ASCII)]
    demos = [own_member(data, name, source) for name in sorted(names, key=lambda name: int(name.rsplit("_", 1)[1]))]
    return [demo for demo in demos if hasattr(demo, "keys") and DEMO_STATES in demo]


def _of_demos(demos: list[Any], options: ColumnOptions, max_episodes: int | None, budget: Budget) -> StateRows:
    if others := [name for name in options.given() if name not in ("--observations", "--ignore")]:
        raise DataError(
            f"{budget.source}: robomimic's layout says itself when a state was; leave out {', '.join(others)}"
        )
    read = list(_read_demos(demos[:max_episodes], options, budget))
    names = list(read[0].states)
    parts = {name: np.concatenate([demo.states[name] for demo in read]) for name in names}
    states, dimensions = _joined(parts, budget.source)
    lengths = [len(demo.states[names[0]]) for demo in read]
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    known = any(DEMO_ENDS in demo for demo in demos)
    ended = np.repeat([demo.ended for demo in read], lengths) if known else None
    places = [demo.name for demo in demos]  # the file will be closed
    notes = [f"left out: {', '.join(read[0].left_out)}"] if read[0].left_out else []
    return StateRows(
        states, dimensions, lambda row: f"{places[episodes[row]]}, row {row - sum(lengths[: episodes[row]])}",
        timesteps=None, episodes=episodes, ended=ended, notes=tuple(notes),
    )  # fmt: skip


def _read_demos(demos: list[Any], options: ColumnOptions, budget: Budget) -> Iterator[Demo]:
    """The demonstrations; without names, those of their observations that are vectors, in alphabetical order."""
    wanted = None if options.observations is None else names_in(options.observations)
    for demo in demos:
        group = own_member(demo, DEMO_STATES, budget.source)
        nodes = {name: own_member(group, name, budget.source) for name in sorted(group)}
        vectors = [name for name, node in nodes.items() if getattr(node, "ndim", 9) <= 2 and node.dtype.kind in "fiub"]
        if wanted is None:
            wanted = [name for name in vectors if name not in options.ignore]
        for name in wanted or ["obs"]:
            if name not in vectors:
                raise DataError(
                    f"{budget.source}: {demo.name} has no vectors named {name} (found {', '.join(vectors) or 'nothing'}); "
                    "give `hyrlo data import --observations NAME,NAME,…`"
                )
        states = {name: read_numbers(nodes[name], budget) for name in wanted}
        if any(len(values) != len(states[wanted[0]]) or not len(values) for values in states.values()):
            raise DataError(
                f"{budget.source}: {demo.name} has observations of different lengths, or none; leave it out"
            )
        ends = read_numbers(own_member(demo, DEMO_ENDS, budget.source), budget) if DEMO_ENDS in demo else np.zeros(1)
        yield Demo(states, bool((ends != 0).any()), [name for name in nodes if name not in wanted])
