"""What the readers of tables share: the columns they read, and how they refuse a cell."""

from __future__ import annotations

import gzip
import re
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from jaxtyping import Int

from hyrlo.core.errors import DataError
from hyrlo.core.memory import readable
from hyrlo.data.bounds import check_size, most_expanded
from hyrlo.data.columns import Roles
from hyrlo.data.formats import first_line

LONGEST, LONGEST_SHOWN = 2**24, 60
"""Characters of a line, and of a value that a message shows."""
Choose = Callable[..., Roles]
"""The roles of the columns that were found; a second argument names those that hold no numbers."""


class Labels(NamedTuple):
    """A column of anything: the different values in the order of their first appearance, and which of them each row has."""

    codes: Int[np.ndarray, " rows"]
    texts: list[str]


class Labeller:
    """Collects the labels of a column, row by row."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.codes = array("q")

    def add(self, text: str) -> None:
        self.codes.append(self.known.setdefault(text, len(self.known)))

    def labels(self) -> Labels:
        return Labels(np.array(self.codes, np.int64), list(self.known))


class Cells(NamedTuple):
    """What was read of a table: numbers by column, `(rows,)` or `(rows, k)`, and labels by column."""

    roles: Roles
    numbers: dict[str, np.ndarray]
    labels: dict[str, Labels]
    place: Callable[[int], str]


def not_a_number(source: str, place: str, column: str, value: object) -> DataError:
    shown = repr(value) if len(repr(value)) <= LONGEST_SHOWN else f"{repr(value)[:LONGEST_SHOWN]} …"
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*", value, re.ASCII):
        return DataError(
            f"{source}: {place}, column {column} is {shown}, which is not a number: decimal commas are not read; write "
            "points, as in 0.5"
        )
    return DataError(
        f"{source}: {place}, column {column} is {shown}, which is not a number; fix it, or choose the columns of the state "
        "with `hyrlo data import --observations NAME,NAME,…` or --ignore NAME"
    )


def too_large(source: str, place: str, column: str, value: object) -> DataError:
    return DataError(
        f"{source}: {place}, column {column} is {value}; whole numbers beyond 2^53 lose digits: subtract an offset"
    )


@contextmanager
def opened_text(source: str, kind: str) -> Iterator[TextIO]:
    """The open file, unpacked if its name ends with .gz; whatever goes wrong while it is read is a DataError."""
    opened: Any = gzip.open if source.lower().endswith(".gz") else open
    try:
        with opened(source, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source}: cannot be read as {kind}, it may be truncated ({first_line(error)})") from error


def bounded_lines(source: str, file: TextIO) -> Iterator[str]:
    """The lines of a text, as long as their number and length are in proportion to the file."""
    stored = Path(source).stat().st_size
    most, read = most_expanded(stored), 0
    while line := file.readline(LONGEST):
        read += len(line)
        if len(line) == LONGEST:
            raise DataError(f"{source}: has a line of more than {readable(LONGEST)}; end every row with a line break")
        if read > most:
            check_size(read, 0, stored, source, "its text")
        yield line
