"""Tables as text: CSV, TSV, and the same with semicolons or other delimiters."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.core.memory import require_memory
from hyrlo.data.arrow import read_text_fast
from hyrlo.data.bounds import COPY
from hyrlo.data.cells import Cells, Choose, Labeller, bounded_lines, not_a_number, opened_text, too_large
from hyrlo.data.columns import Roles
from hyrlo.data.formats import first_line

UNUSUAL = re.compile(r"[^\x00-\x7f]|_|\d{16}")
"""What Python reads as a number but no other program does, such as 1_5; and whole numbers that may lose digits."""
LONGEST_NUMBER = 400
"""Digits of a number that is finite."""
CHECKED_ROWS = 2**16
"""The free memory is looked at after this many rows."""
DELIMITERS = ",;\t|"


class Head(NamedTuple):
    """What the first line says."""

    columns: list[str]
    delimiter: str
    lines: int
    """Up to and with the names of the columns."""


def read_text(source: str, choose: Choose) -> Cells:
    """The columns that `choose` chooses. pyarrow reads them, if it is there and finds nothing but ordinary numbers."""
    with opened_text(source, "CSV") as file:
        try:
            head, rows = _head(source, bounded_lines(source, file))
            roles = choose(head.columns)
            fast = read_text_fast(source, head.columns, head.delimiter, head.lines, roles)
            return fast or _read_rows(source, head, rows, roles)
        except csv.Error as error:
            raise DataError(f"{source}: cannot be read as CSV, it may be truncated ({first_line(error)})") from error


def _head(source: str, lines: Iterator[str]) -> tuple[Head, csv.Reader]:  # type: ignore[name-defined]
    """The names of the columns, and the rows below them."""
    before: list[str] = []
    for line in lines:
        before.append(line)
        if line.strip():
            break
    delimiter = delimiter_of(before[-1] if before else "")
    rows = csv.reader(chain(before, lines), delimiter=delimiter)
    header = [name.strip() for name in next(filter(None, rows), [])]
    if not header:
        raise DataError(
            f"{source}: is empty; the first line names the columns, such as timesteps and one for each dimension"
        )
    return Head([name or "unnamed" for name in header], delimiter, rows.line_num), rows


def delimiter_of(header: str) -> str:
    """The delimiter that is most frequent between the names of the columns."""
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=unquoted.count)


def _read_rows(source: str, head: Head, rows: csv.Reader, roles: Roles) -> Cells:  # type: ignore[name-defined]
    numbers, labels = roles.numbers, roles.labels
    places, label_places = ([head.columns.index(name) for name in names] for names in (numbers, labels))
    values, lines = array("d"), array("q")
    labellers = {name: Labeller() for name in labels}
    for row in filter(None, rows):
        if len(row) != len(head.columns):
            raise DataError(
                f"{source}: line {rows.line_num} has {len(row)} values but the header names {len(head.columns)} columns; "
                "give every row one value a column"
            )
        cells = [row[place] for place in places]
        try:
            if UNUSUAL.search(" ".join(cells)):
                _check_cells(source, rows.line_num, numbers, cells)
            values.extend(map(float, cells))
        except ValueError:
            column, value = next(cell for cell in zip(numbers, cells, strict=True) if not _is_number(cell[1]))
            raise not_a_number(source, f"line {rows.line_num}", column, value) from None
        for name, place in zip(labels, label_places, strict=True):
            labellers[name].add(row[place].strip())
        lines.append(rows.line_num)
        if len(lines) % CHECKED_ROWS == 0:
            require_memory(len(values) * COPY, f"{source}: its first {len(lines):,} rows", "give fewer rows", DataError)
    table = np.asarray(values).reshape(-1, len(numbers))
    return Cells(
        roles,
        dict(zip(numbers, table.T, strict=True)),
        {name: labeller.labels() for name, labeller in labellers.items()},
        lambda row: f"line {lines[row]}",
    )


def _check_cells(source: str, line: int, columns: Sequence[str], cells: Sequence[str]) -> None:
    """Reject what only Python takes for a number (ValueError), and whole numbers that are too large to be kept."""
    for column, text in zip(columns, cells, strict=True):
        if not _is_number(text):
            raise ValueError
        whole = text.strip().lstrip("+-")
        if whole.isdigit() and len(whole) < LONGEST_NUMBER and float(whole) != int(whole):
            raise too_large(source, f"line {line}", column, text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text
