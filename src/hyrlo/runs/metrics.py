"""`metrics.jsonl`: one JSON object a line, each with a checksum that holds for this line of this run only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hyrlo.core.errors import RunError
from hyrlo.core.files import DamagedFile, parse_json, sealed, unsealed, write_atomically
from hyrlo.runs.schema import check_line

FILE = "metrics.jsonl"


def write_lines(folder: Path, lines: Iterable[Mapping[str, Any]], run: str) -> None:
    """`run` is the run's identity."""
    content = (json.dumps(sealed(line, f"{run} {number}")) + "\n" for number, line in enumerate(lines))
    write_atomically(folder / FILE, "".join(content))


def good_lines(folder: Path, run: str) -> tuple[list[dict[str, Any]], str]:
    """The lines up to the first damaged one, and what is wrong with that; nothing if all are good."""
    path, good = folder / FILE, []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else ()):
        try:
            good.append(check_line(f"{path}: line {number + 1}", unsealed(parse_json(line), f"{run} {number}")))
        except DamagedFile as error:
            return good, f"{path}: line {number + 1} {error}"
    return good, ""


def read_lines(folder: Path, run: str) -> list[dict[str, Any]]:
    """All lines of a run that has ended, which must be undamaged."""
    good, trouble = good_lines(folder, run)
    if trouble:
        raise RunError(f"{trouble}; restore the file, or train the run anew with another --out")
    return good
