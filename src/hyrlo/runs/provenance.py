"""Which code made a run: the commit of a git checkout, or a hash of the installed package."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import hyrlo

PACKAGE = Path(hyrlo.__file__).parent
TIMEOUT = 20
"""Seconds that git may take. Too few would name the same code in two ways on a busy machine."""
UNKNOWN = "unrecorded code"


@cache
def running_code() -> dict[str, Any]:
    """The code of this process: `version` and `commit`, `dirty` (with `source`) or, outside a git checkout, `wheel`."""
    return {"version": hyrlo.__version__, **code_of_package(PACKAGE)}


def code_of_package(package: Path) -> dict[str, Any]:
    """The last commit that touched the package, and whether tracked files have changed since; else a hash of its source.

    Commits that only touch documentation or tests leave `commit` as it is. Uncommitted changes also have a hash, `source`:
    two of them on one commit are different code. Never raises.
    """
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        commit = _git(package, "log", "-1", "--format=%H", "--", ".")
        changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
        if not commit:
            raise ValueError("added, but never committed")
    except (OSError, ValueError, subprocess.SubprocessError):  # no git, no checkout, not tracked, too slow
        return {"wheel": source_hash(package)}
    return {"commit": commit, "dirty": bool(changed), **({"source": source_hash(package)} if changed else {})}


def source_hash(package: Path) -> str:
    """Over the names and contents of the source files: the same wherever the package is installed."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def short_name(code: Mapping[str, Any] | None) -> str:
    """A commit in short (`+` and a hash: uncommitted changes), or `wheel-` and a hash; runs of hyrlo 0.2.0 recorded none."""
    if not code:
        return UNKNOWN
    if "commit" in code:
        return code["commit"][:10] + (f"+{code.get('source', '')[:6]}" if code["dirty"] else "")
    return f"wheel-{code['wheel'][:10]}"


def _git(folder: Path, *arguments: str) -> str:
    """Output of a git command; variables that name another repository, as in a git hook, are left out."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT, env=outside)
    return done.stdout.strip()
