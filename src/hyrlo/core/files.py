"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from hyrlo.core.errors import RunError


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears at `path` whole or not at all, whenever the process dies."""
    temporary = path.parent / f".{path.name}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)  # the one that the user knows
        raise


def write_atomically(path: Path, content: bytes | str) -> None:
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise RunError(f"{path}: no such file; is {path.parent} a hyrlo run directory?") from error
    except (ValueError, OSError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from error
