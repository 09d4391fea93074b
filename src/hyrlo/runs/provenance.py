"""What made a run: the commit of a git checkout or a hash of the installed package, the libraries, and the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

import hyrlo
from hyrlo.runs.cache import processor

PACKAGE = Path(hyrlo.__file__).parent
TIMEOUT = 20
"""Seconds that git may take. Too few would name the same code in two ways on a busy machine."""
LIBRARIES = (
    "hyrlo", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "gymnasium", "gymnasium-robotics", "mujoco",
)  # fmt: skip
"""The libraries whose versions a run records."""
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


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):  # an extra that is not installed
            found[name] = version(name)
    return found


def machine() -> dict[str, Any]:
    """What else decides the bytes of a result: rounding errors depend on how the work is split and compiled."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": cores,
        "backend": jax.default_backend(),
        "flags": os.environ.get("XLA_FLAGS", ""),
    }


def changes(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """In what two sessions differ, of `code`, `versions` and `machine`, in words."""
    codes = [short_name(session.get("code")) for session in (there, here)]
    found = [f"code is {codes[0]} there, {codes[1]} here"] if codes[0] != codes[1] else []
    for group in ("versions", "machine"):
        old, new = there.get(group, {}), here.get(group, {})
        found += [
            f"{name} is {old.get(name, 'not recorded')} there, {new.get(name, 'missing')} here"
            for name in dict.fromkeys([*new, *old])
            if old.get(name) != new.get(name)
        ]
    return found


def short_name(code: Mapping[str, Any] | None) -> str:
    """A commit in short (`+` and a hash: uncommitted changes), or `wheel-` and a hash; runs of hyrlo 0.2.0 recorded none."""
    code = code or {}
    if "commit" in code:
        return code["commit"][:10] + (f"+{code.get('source', '')[:6]}" if code.get("dirty") else "")
    return f"wheel-{code['wheel'][:10]}" if "wheel" in code else UNKNOWN


def _git(folder: Path, *arguments: str) -> str:
    """Output of a git command; variables that name another repository, as in a git hook, are left out."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT, env=outside)
    return done.stdout.strip()
