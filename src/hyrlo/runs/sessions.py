"""Resuming with other code, libraries or another machine: the result may not be that of a run in one session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyrlo.core.errors import RunError
from hyrlo.core.files import write_json
from hyrlo.runs.directory import RunDirectory, read_config
from hyrlo.runs.provenance import changes

RECORDED = ("code", "versions", "machine")
SHOWN = 3
"""Differences that the error names."""


def changes_since(path: Path, settings: Mapping[str, Any], anyway: bool) -> list[str]:
    """In what this session differs from the last one of the run in `path`; an error unless the user goes on `anyway`."""
    if not (path / "config.json").exists() or (path / "result.json").exists():
        return []
    config = read_config(path)
    found = changes([config, *config.get("resumed_with", [])][-1], settings)
    if found and not anyway:
        more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise RunError(
            f"{path}: was begun elsewhere ({'; '.join(found[:SHOWN])}{more}), so that its policy may become another one; "
            "resume it where it was begun, or add --anyway (with reproduce: --mixed)"
        )
    return found


def note_session(run: RunDirectory, settings: Mapping[str, Any], found: list[str]) -> None:
    """Keep in `config.json`, and so in the result, that a run goes on elsewhere."""
    config = read_config(run.path)
    sessions = config.get("resumed_with", [])
    if found:
        sessions = [*sessions, {name: settings[name] for name in RECORDED}]
        write_json(run.path / "config.json", {**config, "resumed_with": sessions})
    if sessions:
        run.warn(
            "was resumed with other code, libraries, cores or machine (`resumed_with`): the policy may not be that of a run "
            "in one session",
            sessions=len(sessions),
        )
