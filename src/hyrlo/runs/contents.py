"""What a run directory holds, and that all of it belongs to the same run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyrlo.core.errors import RunError
from hyrlo.core.files import checksum_of, read_json
from hyrlo.runs import metrics
from hyrlo.runs.checkpoints import NAMES
from hyrlo.runs.schema import check_result

FILES = ("config.json", metrics.FILE, "policy.json", "policy.safetensors", "curve.png", "report.html", "result.json")
"""What hyrlo writes into a run directory, beside `checkpoint/`."""
SEALED = ("config.json", metrics.FILE, "policy.json", "policy.safetensors")
"""The files whose checksums are in `files` of the result."""
INCIDENTAL = ("versions", "code", "machine", "resumed_with", "source", "command", "chosen", "timeout")
"""What two configs of the same run may differ in; data are compared by their fingerprint, a timeout changes no result."""


def check_files_are_own(path: Path) -> None:
    """Reject a run directory in which something else, such as a link, has the name of one of its files."""
    checkpoints = path / "checkpoint"
    if checkpoints.is_symlink() or (checkpoints.exists() and not checkpoints.is_dir()):
        raise RunError(f"{checkpoints}: is not a folder of its own but a link or a file; put the folder itself there")
    inner = [file for file in checkpoints.glob("*") if NAMES.fullmatch(file.name)]
    for file in [path / name for name in FILES] + inner:
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise RunError(f"{file}: is a link or no file at all; put the file itself there, or give another --out")


def checksums(path: Path) -> dict[str, str]:
    """Of the files that a result goes with."""
    return {name: checksum_of((path / name).read_bytes()) for name in SEALED if (path / name).is_file()}


def read_result(path: Path) -> dict[str, Any]:
    """The result of a run that has ended; its other files must be those that it ended with."""
    result = check_result(path / "result.json", read_json(path / "result.json"))
    there, here = result.pop("files", {}), checksums(path)
    for name in there:
        if there[name] != here.get(name):
            raise RunError(
                f"{path / name}: is not the file that this run ended with (see result.json); restore it, or train the run "
                "anew with another --out"
            )
    return result


def identity(config: Mapping[str, Any]) -> str:
    """A hash of what makes this run another than others; all files of a run are bound to it."""
    return checksum_of(json.dumps(_essential(config), sort_keys=True))


def _essential(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _essential(inner) for name, inner in value.items() if name not in INCIDENTAL}
    return value
