"""Columns by pyarrow: of text tables, where every cell is an ordinary number; and of parquet (`parquet.py`)."""

from __future__ import annotations

import importlib
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.core.memory import free_memory, require_memory
from hyrlo.data.bounds import COPY
from hyrlo.data.cells import Cells, Labels
from hyrlo.data.columns import Roles
from hyrlo.data.precision import EXACT

BLOCK, HEAD = 2**23, 2**20
"""Bytes of text that are parsed at a time, and that tell the length of a line."""
THREADS = 2**29
"""Bytes without which pyarrow may not be able to start its threads; it ends the process then."""


def read_text_fast(source: str, columns: Sequence[str], delimiter: str, skip: int, roles: Roles) -> Cells | None:
    """The columns below the first `skip` lines; None where pyarrow is missing, or might not read what Python reads.

    pyarrow refuses an empty cell and any number that is not plain ASCII. What it accepts but rounds or reads as non-finite
    is left to the slower reader, which says in which line it is.
    """
    try:
        arrow, text = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.csv")
    except ImportError:
        return None
    if source.lower().endswith(".gz") or _has_quotes(source, skip) or free_memory() < THREADS:
        return None
    types = {name: arrow.string() for name in roles.labels} | {name: arrow.float64() for name in roles.numbers}
    if len(types) < len(roles.labels) + len(roles.numbers):  # a column that is a number and a label
        return None
    _check_memory(source, len(types))
    try:
        table = text.read_csv(
            arrow.memory_map(source),  # a quarter faster than the file
            read_options=text.ReadOptions(column_names=list(columns), skip_rows=skip, block_size=BLOCK),
            parse_options=text.ParseOptions(delimiter=delimiter),
            convert_options=text.ConvertOptions(column_types=types, include_columns=list(types), null_values=[]),
        )
    except (arrow.ArrowException, ValueError):
        return None
    numbers = {name: table[name].to_numpy() for name in roles.numbers}
    if not all(values.size and values.min() > -EXACT and values.max() < EXACT for values in numbers.values()):
        return None  # rows without numbers, nan, infinity, or a whole number that may have lost digits
    labels = {name: labels_of(table[name], strip=True) for name in roles.labels}
    return Cells(roles, numbers, labels, lambda row: f"line {_line_of(source, skip, row)}")


def _check_memory(source: str, columns: int) -> None:
    """Reject a file that would not fit into memory, by the length of its first lines."""
    with open(source, "rb") as file:
        head = file.read(HEAD)
    rows = Path(source).stat().st_size * (head.count(b"\n") + 1) // max(len(head), 1)
    size = rows * columns * np.dtype(np.float64).itemsize
    require_memory(size + COPY * rows * columns, f"{source}: about {rows:,} rows", "give fewer rows", DataError)


def _has_quotes(source: str, skip: int) -> bool:
    with open(source, "rb") as file:
        for _ in range(skip):
            file.readline()
        if Path(source).stat().st_size == 0:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b'"', file.tell()) >= 0


def _line_of(source: str, skip: int, row: int) -> int:
    """The line of a row; blank lines are no rows."""
    with open(source, encoding="utf-8-sig") as file:
        filled = (number for number, line in enumerate(file, 1) if number > skip and line.strip("\n"))
        return next(number for count, number in enumerate(filled) if count == row)


def labels_of(column: Any, strip: bool = False) -> Labels:
    """The labels of a column of any type."""
    encoded = column.combine_chunks().dictionary_encode()
    if hasattr(encoded, "chunks"):
        encoded = encoded.combine_chunks()
    if encoded.null_count:
        encoded = column.cast("string").fill_null("").combine_chunks().dictionary_encode()
    texts = [str(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if not strip or all(text == text.strip() for text in texts):
        return Labels(codes, texts)
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(text.strip(), len(known)) for text in texts])
    return Labels(numbers[codes], list(known))
