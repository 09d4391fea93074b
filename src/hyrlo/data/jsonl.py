"""Tables of JSON lines: each line is an object of numbers, lists of numbers, and objects of these."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.core.memory import require_memory
from hyrlo.data.bounds import COPY
from hyrlo.data.cells import Cells, Choose, Labeller, bounded_lines, not_a_number, opened_text, too_large
from hyrlo.data.precision import EXACT

CHECKED_ROWS = 2**16
"""The free memory is looked at after this many rows."""


def read_json_lines(source: str, choose: Choose) -> Cells:
    """The columns that `choose` chooses of those in the first line. `{"a": {"b": 1}}` has a column `a.b`."""
    with opened_text(source, "JSON lines") as file:
        rows = _rows(source, enumerate(bounded_lines(source, file), 1))
        number, first = next(rows, (0, {}))
        if not first:
            raise DataError(f'{source}: is empty; each line is an object such as {{"timesteps": 0, "x": [0.1, 0.2]}}')
        roles = choose(list(first))
        columns = {name: array("d") for name in roles.numbers}
        labellers, lines = {name: Labeller() for name in roles.labels}, array("q")
        widths: dict[str, int] = {}
        while number:
            for name, values in columns.items():
                cell = _cell(source, number, first, name)
                values.extend(_numbers(source, number, name, cell, widths))
            for name, labeller in labellers.items():
                labeller.add(str(_cell(source, number, first, name)))
            lines.append(number)
            if len(lines) % CHECKED_ROWS == 0:
                count = sum(map(len, columns.values()))
                require_memory(count * COPY, f"{source}: its first {len(lines):,} rows", "give fewer rows", DataError)
            number, first = next(rows, (0, {}))
    shapes = {name: (len(lines), width) if (width := widths[name]) else (len(lines),) for name in columns}
    numbers = {name: np.asarray(values).reshape(shapes[name]) for name, values in columns.items()}
    labels = {name: labeller.labels() for name, labeller in labellers.items()}
    return Cells(roles, numbers, labels, lambda row: f"line {lines[row]}")


def _rows(source: str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each line and its values by name."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise DataError(f"{source}: line {number} is not a JSON object; it may be truncated: fix or remove it")
        yield number, dict(_flat(row))


def _flat(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _cell(source: str, line: int, row: dict[str, Any], name: str) -> Any:
    if name not in row:
        raise DataError(f"{source}: line {line} has no {name}; give it in every line, or use --ignore {name}")
    return row[name]


def _numbers(source: str, line: int, name: str, cell: Any, widths: dict[str, int]) -> list[float]:
    """The numbers of a cell, as many as in the first line; `widths` is 0 for a single number."""
    values = _flat_list(cell) if isinstance(cell, list) else [cell]
    width = len(values) if isinstance(cell, list) else 0
    if width != widths.setdefault(name, width) or not values:
        raise DataError(
            f"{source}: line {line}, column {name} has {width or 'no list of'} values, the first line has "
            f"{widths[name] or 'a single one'}; give every line as many"
        )
    for value in values:
        if not isinstance(value, int | float):
            raise not_a_number(source, f"line {line}", name, value)
        if isinstance(value, int) and abs(value) > EXACT:
            raise too_large(source, f"line {line}", name, value)
    return values


def _flat_list(values: list[Any]) -> list[Any]:
    if not any(isinstance(value, list) for value in values):
        return values
    return [one for value in values for one in (_flat_list(value) if isinstance(value, list) else [value])]
