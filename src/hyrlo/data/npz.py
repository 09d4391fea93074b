"""npz files, never with pickled objects. What headers declare is checked before an array is made."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.data.bounds import check_size
from hyrlo.data.formats import first_line

NPY = np.lib.format
HEADERS = {(1, 0): NPY.read_array_header_1_0, (2, 0): NPY.read_array_header_2_0}
"""Readers of headers by version; version 3 is for named fields alone."""


def array_names(path: str | Path) -> set[str]:
    """The names of the arrays in the file."""
    with _opened(Path(path)) as archive:
        return set(_entries(archive))


def read_arrays(path: str | Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Those of the arrays `names` that the file has; the first is required."""
    with _opened(Path(path)) as archive:
        entries = _entries(archive)
        if names[0] not in entries:
            found = ", ".join(sorted(entries)) or "nothing"
            raise DataError(
                f"{path}: has no array named {names[0]} (found {found}); "
                "rename it, or use `hyrlo data import --observations NAME`"
            )
        wanted = {name: entries[name] for name in names if name in entries}
        sizes, counts = zip(*(_declared(archive, entry, name, path) for name, entry in wanted.items()), strict=True)
        check_size(sum(sizes), sum(counts), Path(path).stat().st_size, str(path))
        arrays = {}
        for name, entry in wanted.items():
            with archive.open(entry) as file:
                arrays[name] = NPY.read_array(file, allow_pickle=False)
        return arrays


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    return {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}


def _declared(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, path: str | Path) -> tuple[int, int]:
    """Bytes and numbers of an array, by its header and by the zip file, which must agree."""
    with archive.open(entry) as file:
        if file.read(len(NPY.MAGIC_PREFIX)) != NPY.MAGIC_PREFIX:
            raise DataError(f"{path}: {name} is not an array; save it with numpy.savez")
        version = tuple(file.read(2))
        if version not in HEADERS:
            raise DataError(f"{path}: {name} is an array of npy version {version}; save numeric arrays")
        shape, _, dtype = HEADERS[version](file)
        begin = file.tell()
    if dtype.hasobject:
        raise DataError(f"{path}: holds object arrays, which are never loaded; save numeric arrays")
    if min(shape, default=0) < 0:
        raise DataError(f"{path}: {name} has shape {shape}; save it again with numpy.savez")
    count = math.prod(shape)
    size = count * dtype.itemsize
    if begin + size != entry.file_size:
        raise DataError(
            f"{path}: {name} has {entry.file_size - begin:,} bytes where its shape {shape} needs {size:,}; "
            "the file is damaged: save it again with numpy.savez"
        )
    return size, count


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The open file; whatever goes wrong while it is read is a DataError."""
    if not path.is_file():
        raise DataError(f"{path}: {'is a directory, not an npz file' if path.is_dir() else 'no such file'}")
    try:
        with open(path, "rb") as file:
            if file.read(len(NPY.MAGIC_PREFIX)) == NPY.MAGIC_PREFIX:
                raise DataError(f"{path}: is a single array, not an npz archive; save it with numpy.savez")
        with zipfile.ZipFile(path) as archive:
            yield archive
    except DataError:
        raise
    except Exception as error:  # a damaged file makes zipfile and NumPy raise anything
        raise DataError(f"{path}: cannot be read as npz, it may be truncated ({first_line(error)})") from error
