"""Tables of states: a column of timesteps, and one for each dimension of the state. CSV and parquet."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from jaxtyping import Float

from hyrlo.core.errors import DataError
from hyrlo.core.memory import readable, require_memory
from hyrlo.data.arrays import as_float32
from hyrlo.data.bounds import COPY, check_size, most_expanded
from hyrlo.data.formats import OBSERVATIONS, first_line, optional_modules
from hyrlo.data.precision import EXACT, check_precision
from hyrlo.data.states import ObservationDataset

UNUSUAL = re.compile(r"[^\x00-\x7f]|_|\d{16}")
"""What Python reads as a number but no other program does, such as 1_5; and whole numbers that may lose digits."""
LONGEST, LONGEST_NUMBER, LONGEST_SHOWN = 2**24, 400, 60
"""Characters of a line; digits of a number that is finite; characters of a value that a message shows."""
CHECKED_ROWS = 2**16
"""The free memory is looked at after this many rows."""


def read_table(source: str, observations: str, timesteps: str, check_finite: bool) -> ObservationDataset:
    """The states of a table `*.csv`, `*.csv.gz` or `*.parquet`."""
    if not Path(source).is_file():
        raise DataError(f"{source}: {'is a directory, not a table' if Path(source).is_dir() else 'no such file'}")
    read = _read_parquet if source.lower().endswith(".parquet") else _read_csv
    return read(source, observations, timesteps, check_finite)


def _columns(source: str, found: Sequence[str], observations: str, timesteps: str) -> list[str]:
    """The columns to read, that of the timesteps first."""
    for name, times in Counter(found).items():
        if times > 1:
            raise DataError(f"{source}: has {times} columns named {name}; give each a name of its own")
    wanted = [name for name in found if name != timesteps]
    if observations != OBSERVATIONS:
        wanted = [name.strip() for name in observations.split(",")]
    for name in (timesteps, *wanted):
        if name not in found:
            option = "--timesteps NAME" if name == timesteps else "--observations NAME,NAME,…"
            raise DataError(
                f"{source}: has no column named {name} (found {', '.join(found) or 'nothing'}); "
                f"rename it, or use `hyrlo data import {option}`"
            )
    if not wanted:
        raise DataError(f"{source}: has no column but {timesteps}; give one for each dimension of the state")
    return [timesteps, *wanted]


def _not_a_number(source: str, place: str, column: str, value: object) -> DataError:
    shown = repr(value) if len(repr(value)) <= LONGEST_SHOWN else f"{repr(value)[:LONGEST_SHOWN]} …"
    return DataError(
        f"{source}: {place}, column {column} is {shown}, which is not a number; fix it, or choose the columns of "
        "the state with `hyrlo data import --observations NAME,NAME,…`"
    )


def _from_table(
    source: str,
    columns: Sequence[str],
    values: Float[np.ndarray, "rows columns"],
    place: Callable[[int], str],
    check_finite: bool,
) -> ObservationDataset:
    """From the columns to read, timesteps first; `place` says where a row is in the file."""
    if len(values) == 0:
        raise DataError(f"{source}: holds no states")
    check_precision(values[:, 1:], source, [f"column {name}" for name in columns[1:]])
    timesteps, states = values[:, 0], as_float32(values[:, 1:], OBSERVATIONS, source)
    whole = (timesteps >= 0) & (timesteps == np.floor(timesteps)) & (timesteps < 2**53)
    if not whole.all():
        row = int(np.argmin(whole))
        raise DataError(
            f"{source}: {place(row)}, column {columns[0]} is {timesteps[row]:g}; timesteps are whole numbers from 0"
        )
    if check_finite and not np.isfinite(states).all():
        row, column = np.argwhere(~np.isfinite(states))[0]
        raise DataError(
            f"{source}: {place(row)}, column {columns[column + 1]} is {states[row, column]}; "
            "remove or fix non-finite values"
        )
    return ObservationDataset.from_unpaired(states, timesteps.astype(np.int64), source, check_finite)


def _read_csv(source: str, observations: str, timesteps: str, check_finite: bool) -> ObservationDataset:
    opened: Any = gzip.open if source.lower().endswith(".gz") else open
    try:
        with opened(source, "rt", encoding="utf-8-sig", newline="") as file:
            columns, values, lines = _parse_csv(source, _lines(source, file), observations, timesteps)
    except (UnicodeDecodeError, csv.Error, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source}: cannot be read as CSV, it may be truncated ({first_line(error)})") from error
    return _from_table(source, columns, values, lambda row: f"line {lines[row]}", check_finite)


def _lines(source: str, file: TextIO) -> Iterator[str]:
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


def _parse_csv(
    source: str, file: Iterator[str], observations: str, timesteps: str
) -> tuple[list[str], Float[np.ndarray, "rows columns"], Sequence[int]]:
    """The names of the columns to read, their values, and the line of each row."""
    rows = csv.reader(file)
    header = [name.strip() for name in next(filter(None, rows), [])]
    if not header:
        raise DataError(f"{source}: is empty; the first line names the columns, one of them {timesteps}")
    columns = _columns(source, header, observations, timesteps)
    pick = itemgetter(*(header.index(name) for name in columns))
    values, lines = array("d"), array("q")
    for row in filter(None, rows):
        if len(row) != len(header):
            raise DataError(
                f"{source}: line {rows.line_num} has {len(row)} values but the header names {len(header)} columns; "
                "give every row one value a column"
            )
        cells = pick(row)
        try:
            if UNUSUAL.search(" ".join(cells)):
                _check_cells(source, rows.line_num, columns, cells)
            values.extend(map(float, cells))
        except ValueError:
            column, value = next(cell for cell in zip(columns, cells, strict=True) if not _is_number(cell[1]))
            raise _not_a_number(source, f"line {rows.line_num}", column, value) from None
        lines.append(rows.line_num)
        if len(lines) % CHECKED_ROWS == 0:
            require_memory(len(values) * COPY, f"{source}: its first {len(lines):,} rows", "give fewer rows", DataError)
    return columns, np.asarray(values).reshape(-1, len(columns)), lines


def _check_cells(source: str, line: int, columns: Sequence[str], cells: Sequence[str]) -> None:
    """Reject what only Python takes for a number (ValueError), and whole numbers that are too large to be kept."""
    for column, text in zip(columns, cells, strict=True):
        if not _is_number(text):
            raise ValueError
        whole = text.strip().lstrip("+-")
        if whole.isdigit() and len(whole) < LONGEST_NUMBER and float(whole) != int(whole):
            raise _too_large(source, f"line {line}", column, text)


def _too_large(source: str, place: str, column: str, value: object) -> DataError:
    return DataError(
        f"{source}: {place}, column {column} is {value}; whole numbers beyond 2^53 lose digits: subtract an offset"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text


def _read_parquet(source: str, observations: str, timesteps: str, check_finite: bool) -> ObservationDataset:
    arrow, parquet = optional_modules("parquet", source, "pyarrow", "pyarrow.parquet")
    try:
        with parquet.ParquetFile(source) as file:
            columns = _columns(source, file.schema_arrow.names, observations, timesteps)
            _check_types(source, columns, file, arrow.types)
            _check_rows(source, columns, file.metadata.num_rows)
            table = file.read(columns=columns)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: cannot be read as parquet, it may be truncated ({first_line(error)})") from error
    for name in columns[1:]:
        if arrow.types.is_integer(table[name].type):
            _check_whole(source, name, table[name].to_numpy())
    values = np.column_stack([table[name].cast(arrow.float64(), safe=False).to_numpy() for name in columns])
    return _from_table(source, columns, values, lambda row: f"row {row}", check_finite)


def _check_types(source: str, columns: Sequence[str], file: Any, types: Any) -> None:
    kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    for name in columns:
        number = file.schema_arrow.field(name).type
        if not any(is_kind(number) for is_kind in kinds) or (name == columns[0] and types.is_boolean(number)):
            first = next(file.iter_batches(batch_size=1, columns=[name]), None)
            raise _not_a_number(source, "row 0", name, first[0][0].as_py() if first else None)


def _check_rows(source: str, columns: Sequence[str], rows: int) -> None:
    count = rows * len(columns)
    check_size(count * np.dtype(np.float64).itemsize, 2 * count, Path(source).stat().st_size, source, "its columns")


def _check_whole(source: str, name: str, values: np.ndarray) -> None:
    large = (values > EXACT) | (values < -EXACT)
    if large.any():
        row = int(np.argmax(large))
        raise _too_large(source, f"row {row}", name, values[row])
