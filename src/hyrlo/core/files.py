"""Files that are written whole or not at all, and JSON objects with a checksum."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from hyrlo.core import strict_json
from hyrlo.core.errors import RunError

TEMPORARY = re.compile(r"\.hyrlo-[0-9a-f]{32}\.tmp")
"""The names of files that are being written. Only these are ever deleted as left behind by a kill."""
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class DamagedFile(ValueError):
    """What is wrong with the content of a file; the caller knows what to do about it."""


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears at `path` whole or not at all, whenever the process dies."""
    temporary = path.parent / f".hyrlo-{os.urandom(16).hex()}.tmp"
    try:
        with open(os.open(temporary, NEW_FILE, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            error.filename = str(path)  # the one that the user knows; a full disk names none
        raise


def write_atomically(path: Path, content: bytes | str) -> None:
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def remove_temporary(folder: Path) -> None:
    """Delete what a kill in the middle of a write left behind; nothing else, and no link is followed."""
    for file in folder.iterdir() if folder.is_dir() else ():
        if TEMPORARY.fullmatch(file.name) and (file.is_symlink() or file.is_file()):
            file.unlink(missing_ok=True)


def checksum_of(*parts: str | bytes | memoryview) -> str:
    """A hash of all parts together, 32 hexadecimal digits."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part.encode() if isinstance(part, str) else part)
    return found.hexdigest()


def sealed(value: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """The object with its checksum as last field. `place` is what it belongs to, so that it is only valid there."""
    content = {name: value[name] for name in value if name != "checksum"}
    return {**content, "checksum": checksum_of(place, json.dumps(content))}


def unsealed(value: Any, place: str = "") -> dict[str, Any]:
    """The object without its checksum, which must be there and must match."""
    if not isinstance(value, dict):
        raise DamagedFile("is not a JSON object")
    if "checksum" not in value:
        raise DamagedFile("has no checksum; it was written by another version, or changed since")
    content = {name: value[name] for name in value if name != "checksum"}
    try:
        matches = sealed(content, place)["checksum"] == value["checksum"]
    except RecursionError as error:
        raise DamagedFile("is nested too deeply") from error
    if not matches:
        raise DamagedFile("does not match its checksum; it was damaged or changed since it was written")
    return content


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON object, with its checksum."""
    write_atomically(path, json.dumps(sealed(value), indent=2) + "\n")


def parse_json(content: bytes) -> Any:
    """JSON from outside; the errors of all that can be wrong with it are one."""
    try:
        return strict_json.parse(content)
    except ValueError as error:
        raise DamagedFile(f"cannot be read ({error})") from error


def load_json(path: Path) -> Any:
    """The content of a JSON file, whatever it is; its checksum is left in, and not compared."""
    try:
        if path.exists() and not path.is_file():
            raise RunError(f"{path}: is not a file")
        return parse_json(path.read_bytes())
    except FileNotFoundError as error:
        raise RunError(f"{path}: no such file; is {path.parent} a hyrlo run directory?") from error
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error})") from error
    except DamagedFile as error:
        raise RunError(f"{path}: {error}; restore the file, or train the run anew with another --out") from error


def verified(path: Path, value: Any) -> dict[str, Any]:
    """What `load_json` found, without its checksum, which must match."""
    try:
        return unsealed(value)
    except DamagedFile as error:
        raise RunError(f"{path}: {error}; restore the file, or train the run anew with another --out") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object that `write_json` has written."""
    return verified(path, load_json(path))
