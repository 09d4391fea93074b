"""How the source of data names its format, and the libraries that formats need."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from hyrlo.core.errors import DataError

MINARI = "minari:"
TEXTS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
JSON_LINES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
PARQUET = (".parquet",)
HDF5 = (".hdf5", ".h5")
OBSERVATIONS, TIMESTEPS = "observations", "timesteps"
"""Default names of arrays and columns."""


def has_suffix(source: str | Path, suffixes: tuple[str, ...]) -> bool:
    return str(source).lower().endswith(suffixes)


def is_lerobot(source: str | Path) -> bool:
    """Whether the source is the folder of a LeRobot data set."""
    return (Path(source) / "meta" / "info.json").is_file()


def is_npz(source: str | Path) -> bool:
    """Whether the source is read as an npz file: everything that no other format claims."""
    if str(source).startswith(MINARI) or has_suffix(source, (*TEXTS, *JSON_LINES, *PARQUET, *HDF5)):
        return False
    return not is_lerobot(source)


def optional_modules(extra: str, source: str, *modules: str) -> list[Any]:
    """Modules of one of hyrlo's extras."""
    try:
        return [importlib.import_module(module) for module in modules]
    except ImportError as error:
        raise DataError(
            f"{source}: needs {error.name or extra}, which is not installed; pip install 'hyrlo[{extra}]'"
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
