"""Parquet files, and the folders of LeRobot data sets that hold them. A column may be a list of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.data.arrow import labels_of
from hyrlo.data.bounds import check_size
from hyrlo.data.cells import Cells, Choose, not_a_number, too_large
from hyrlo.data.columns import Roles
from hyrlo.data.formats import PARQUET, first_line, has_suffix, optional_modules
from hyrlo.data.precision import EXACT


def read_parquet(source: str, choose: Choose) -> Cells:
    """The columns that `choose` chooses, of one file or of all below the folder `data`."""
    arrow, parquet = optional_modules("parquet", source, "pyarrow", "pyarrow.parquet")
    paths = (
        [source]
        if has_suffix(source, PARQUET)
        else sorted(str(path) for path in Path(source).glob("data/**/*.parquet"))
    )
    if not paths:
        raise DataError(f"{source}: holds no parquet files below {Path(source) / 'data'}")
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(parquet.ParquetFile(path)) for path in paths]
            schema = files[0].schema_arrow
            kinds = {name: schema.field(name).type for name in set(schema.names) if schema.names.count(name) == 1}
            roles = choose(schema.names, [name for name, kind in kinds.items() if not _is_number(kind, arrow.types)])
            _check_types(source, roles, files[0], arrow.types)
            _check_counts(source, roles, files, paths)
            wanted = [*roles.numbers, *roles.labels]
            table = arrow.concat_tables([file.read(columns=wanted) for file in files], promote_options="permissive")
            ends = np.cumsum([file.metadata.num_rows for file in files])
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: cannot be read as parquet, it may be truncated ({first_line(error)})") from error

    def place(row: int) -> str:
        if len(paths) == 1:
            return f"row {row}"
        number = int(np.searchsorted(ends, row, side="right"))
        return f"{Path(paths[number]).relative_to(source)}, row {row - (int(ends[number - 1]) if number else 0)}"

    numbers = {name: _numbers(source, name, table[name], place, arrow) for name in roles.numbers}
    return Cells(roles, numbers, {name: labels_of(table[name]) for name in roles.labels}, place)


def _is_list(kind: Any, types: Any) -> bool:
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_number(kind: Any, types: Any) -> bool:
    """Whether a column holds numbers or lists of them."""
    if _is_list(kind, types):
        return _is_number(kind.value_type, types)
    return any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean))


def _check_types(source: str, roles: Roles, file: Any, types: Any) -> None:
    for name in roles.numbers:
        kind = file.schema_arrow.field(name).type
        when = name in (roles.timesteps, roles.seconds)
        if not _is_number(kind, types) or (when and (types.is_boolean(kind) or _is_list(kind, types))):
            first = next(file.iter_batches(batch_size=1, columns=[name]), None)
            raise not_a_number(source, "row 0", name, first[0][0].as_py() if first else None)


def _check_counts(source: str, roles: Roles, files: Sequence[Any], paths: Sequence[str]) -> None:
    """The numbers that the files declare, those in lists included."""
    wanted, count = [*roles.numbers, *roles.labels], 0
    for file in files:
        for group in range(file.metadata.num_row_groups):
            row_group = file.metadata.row_group(group)
            leaves = [row_group.column(i) for i in range(row_group.num_columns)]
            count += sum(
                max(leaf.num_values, row_group.num_rows)
                for leaf in leaves
                if any(leaf.path_in_schema == name or leaf.path_in_schema.startswith(f"{name}.") for name in wanted)
            )
    stored = sum(Path(path).stat().st_size for path in paths)
    check_size(count * np.dtype(np.float64).itemsize, 2 * count, stored, source, "its columns")


def _numbers(source: str, name: str, column: Any, place: Any, arrow: Any) -> np.ndarray:
    """`(rows,)`, or `(rows, k)` of a column of lists, which have k numbers each."""
    rows, values = len(column), column
    if _is_list(column.type, arrow.types):
        values = column.combine_chunks()
        values = arrow.concat_arrays(values.chunks) if hasattr(values, "chunks") else values
        while _is_list(values.type, arrow.types):
            values = _flattened(source, name, values, place, rows, arrow)
    if arrow.types.is_integer(values.type):
        _check_whole(source, name, values.to_numpy(zero_copy_only=False) if rows else np.zeros(0), place, rows)
    found = values.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found if values is column else found.reshape(rows, -1) if rows else found.reshape(0, 1)


def _flattened(source: str, name: str, lists: Any, place: Any, rows: int, arrow: Any) -> Any:
    """The elements of lists that are all of one length."""
    if not len(lists):
        return lists.flatten()
    (compute,) = optional_modules("parquet", source, "pyarrow.compute")
    lengths = compute.fill_null(compute.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
    if (lengths != lengths[0]).any() or lengths[0] < 1:
        wrong = int(np.argmax((lengths != lengths[0]) | (lengths < 1)))
        row = wrong * rows // len(lists)
        length = "nothing" if lengths[wrong] < 0 else f"{lengths[wrong]} values"
        raise DataError(
            f"{source}: {place(row)}, column {name} has {length}, row 0 has {max(lengths[0], 0)}; give every row as many"
        )
    return lists.flatten()


def _check_whole(source: str, name: str, values: np.ndarray, place: Any, rows: int) -> None:
    large = (values > EXACT) | (values < -EXACT)
    if large.any():
        first = int(np.argmax(large))
        raise too_large(source, place(first * rows // len(values)), name, values[first])
