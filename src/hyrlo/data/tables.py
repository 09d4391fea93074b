"""Tables of states: a row is one state. CSV and other text, JSON lines, parquet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from hyrlo.core.errors import DataError
from hyrlo.data.arrays import as_float32
from hyrlo.data.cells import Cells, Choose, Labels
from hyrlo.data.columns import ColumnOptions, Roles, check_states, choose
from hyrlo.data.formats import JSON_LINES, OBSERVATIONS, TEXTS, has_suffix, is_lerobot
from hyrlo.data.jsonl import read_json_lines
from hyrlo.data.parquet import read_parquet
from hyrlo.data.precision import check_precision
from hyrlo.data.rows import StateRows, dataset_of
from hyrlo.data.states import ObservationDataset
from hyrlo.data.text import read_text

BLOCK = 2**14
"""Rows that are converted at a time."""
TRUE, FALSE = ("true", "1", "1.0"), ("false", "0", "0.0", "")


def read_table(source: str, options: ColumnOptions, max_episodes: int | None, check_finite: bool) -> ObservationDataset:
    """The states of a table, or of the tables in the folder of a LeRobot data set."""
    if not Path(source).is_file() and not is_lerobot(source):
        raise DataError(f"{source}: {'is a directory, not a table' if Path(source).is_dir() else 'no such file'}")
    cells = _reader(source)(source, partial(choose, source, options))
    rows = _state_rows(source, cells).first_episodes(max_episodes, source)
    return dataset_of(rows, source, options.rate, check_finite)


def _reader(source: str) -> Callable[[str, Choose], Cells]:
    if has_suffix(source, TEXTS):
        return read_text
    return read_json_lines if has_suffix(source, JSON_LINES) else read_parquet


def _state_rows(source: str, cells: Cells) -> StateRows:
    roles, numbers = cells.roles, cells.numbers
    when = roles.timesteps or roles.seconds
    if not len(next(iter(numbers.values()))):
        raise DataError(f"{source}: holds no states")
    timesteps = numbers[roles.timesteps] if roles.timesteps else None
    check_states(source, roles, numbers, timesteps)
    names, states = _states(source, roles.states, numbers)
    return StateRows(
        states, names, cells.place, timesteps,
        numbers[roles.seconds] if roles.seconds else None,
        cells.labels[roles.episode].codes if roles.episode else None,
        _flags(source, roles.ended, cells.labels[roles.ended], cells.place) if roles.ended else None,
        when or "", tuple(_notes(roles)),
    )  # fmt: skip


def _states(
    source: str, chosen: list[str], numbers: dict[str, np.ndarray]
) -> tuple[tuple[str, ...], Float[np.ndarray, "rows obs"]]:
    """The names of the dimensions, and the states."""
    columns: dict[str, np.ndarray] = {}
    for name in chosen:
        values = numbers[name]
        columns |= {name: values} if values.ndim == 1 else {f"{name}[{i}]": part for i, part in enumerate(values.T)}
    rows = len(next(iter(columns.values())))
    for name, values in columns.items():
        check_precision(values[:, None], source, [f"column {name}"])
    states = np.empty((rows, len(columns)), np.float32)
    for begin in range(0, rows, BLOCK):  # of a size that stays in the processor's cache
        for i, values in enumerate(columns.values()):
            states[begin : begin + BLOCK, i] = as_float32(values[begin : begin + BLOCK], OBSERVATIONS, source)
    return tuple(columns), states


def _flags(source: str, name: str, labels: Labels, place: Callable[[int], str]) -> np.ndarray:
    for code, text in enumerate(labels.texts):
        if text.lower() not in (*TRUE, *FALSE):
            row = int(np.argmax(labels.codes == code))
            raise DataError(
                f"{source}: {place(row)}, column {name} is {text!r}; ends of episodes are true or false: fix it, or give "
                f"--ignore {name}"
            )
    return np.array([text.lower() in TRUE for text in labels.texts])[labels.codes]


def _notes(roles: Roles) -> list[str]:
    """How the columns were understood, in words."""
    notes = []
    if roles.episode:
        steps = f"timesteps are {roles.timesteps}" if roles.timesteps else "timesteps are the order of its rows"
        ends = f", ends are {roles.ended}" if roles.ended else ""
        notes.append(
            f"episodes are {roles.episode}, {steps if not roles.seconds else f'times are {roles.seconds}'}{ends}"
        )
    elif roles.seconds:
        notes.append(f"times are {roles.seconds}")
    if roles.left_out:
        notes.append(f"left out: {', '.join(roles.left_out)}")
    return notes
