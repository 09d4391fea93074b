"""How the source of data names its format, and the libraries that formats need."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from hyrlo.core.errors import DataError

MINARI = "minari:"
TABLES = (".csv", ".csv.gz", ".parquet")
OBSERVATIONS, TIMESTEPS = "observations", "timesteps"
"""Default names of arrays and columns."""


def is_npz(source: str | Path) -> bool:
    """Whether the source is read as an npz file: everything that is neither a Minari data set nor a table."""
    return not str(source).startswith(MINARI) and not str(source).lower().endswith(TABLES)


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
