"""npz files, never with pickled objects."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hyrlo.core.errors import DataError


def array_names(path: str | Path) -> set[str]:
    """The names of the arrays in the file."""
    with _opened(Path(path)) as archive:
        return set(archive.files)


def read_arrays(path: str | Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Those of the arrays `names` that the file has; the first is required."""
    with _opened(Path(path)) as archive:
        if names[0] not in archive.files:
            found = ", ".join(sorted(archive.files)) or "nothing"
            raise DataError(
                f"{path}: has no array named {names[0]} (found {found}); "
                "rename it, or use `hyrlo data import --observations NAME`"
            )
        arrays = {name: archive[name] for name in names if name in archive.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise DataError(f"{path}: {name} is not an array; save it with numpy.savez")
    return arrays


@contextmanager
def _opened(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """The open file; whatever goes wrong while it is read is a DataError."""
    if not path.is_file():
        raise DataError(f"{path}: {'is a directory, not an npz file' if path.is_dir() else 'no such file'}")
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: is a single array, not an npz archive; save it with numpy.savez")
        with archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, RuntimeError) as error:
        raise DataError(f"{path}: cannot be read as npz, it may be truncated ({error})") from error
    except ValueError as error:
        if "Object arrays" in str(error):
            raise DataError(f"{path}: holds object arrays, which are never loaded; save numeric arrays") from error
        raise DataError(f"{path}: cannot be read as npz, it may be truncated ({error})") from error
