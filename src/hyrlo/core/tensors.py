"""Safetensors files with a checksum of all their bytes.

The metadata have one entry, `hyrlo`: a JSON object whose first field is the checksum. While it is computed,
its digits are zeros.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from hyrlo.core.files import DamagedFile, atomic_file, checksum_of

DIGITS = len(checksum_of())
MARK = rb"{\"checksum\": \""
"""What comes before the checksum, as it is written within a string of the header."""
MOST_HEADER = 100_000_000


def write_tensors(file: BinaryIO, tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
    """Arrays and what is said `about` them; returns the checksum."""
    # One metadata key only: safetensors does not keep the order of several, and equal runs must give equal bytes.
    header = json.dumps({"checksum": "0" * DIGITS, **about})
    content = memoryview(safetensors.numpy.save(dict(tensors), metadata={"hyrlo": header}))
    begin = bytes(content[: 8 + int.from_bytes(content[:8], "little")]).index(MARK) + len(MARK)
    checksum = checksum_of(content)
    for part in (content[:begin], checksum.encode(), content[begin + DIGITS :]):
        file.write(part)
    return checksum


def save_tensors(path: Path, tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
    with atomic_file(path) as file:
        return write_tensors(file, tensors, about)


def load_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays, and what is said about them, the checksum included. No more memory is taken than the file is large."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MOST_HEADER):
            raise DamagedFile(f"has {size} bytes, fewer than its header declares")
        file.seek(0)
        content = file.read(size)
    header = content[8 : 8 + length]
    if MARK not in header:
        raise DamagedFile("has no checksum; it was written by another version, or changed since")
    begin = 8 + header.index(MARK) + len(MARK)
    view, end = memoryview(content), begin + DIGITS
    if view[begin:end] != checksum_of(view[:begin], "0" * DIGITS, view[end:]).encode():
        raise DamagedFile("does not match its checksum; it was damaged or changed since it was written")
    try:
        about = json.loads(json.loads(header)["__metadata__"]["hyrlo"])
        return safetensors.numpy.load(content), dict(about)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFile(f"is not a file of hyrlo ({type(error).__name__}: {error})") from error
