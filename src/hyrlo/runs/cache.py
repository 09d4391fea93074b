"""JAX's persistent compilation cache: a program that was compiled once on this machine is loaded by later runs.

Cached programs are executable code, so the folder belongs to the user alone. See docs/performance.md.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import warnings
from pathlib import Path

import jax

VARIABLE = "HYRLO_CACHE"
"""Environment variable: a folder for the cache, or `off` (or `0`) to go without."""

MAX_BYTES = 512 * 2**20


def enable_compilation_cache(enabled: bool = True) -> Path | None:
    """Keep compiled programs in the user's cache folder; returns the folder, or None if this process goes without.

    A cache that the user configured in JAX stays as it is. A folder that cannot be used is no error: the run only takes longer.
    `enabled=False` undoes an earlier call.
    """
    configured: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    ours = _folder()
    if configured is not None and configured != str(ours):
        return Path(configured)
    if not enabled or ours is None or not _usable(ours):
        jax.config.update("jax_compilation_cache_dir", None)
        return None
    if configured is None:
        _trim(ours, MAX_BYTES)
        jax.config.update("jax_compilation_cache_dir", str(ours))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        # A full disk, or an entry cut short by a killed run: JAX compiles the program anew and warns, once per program.
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    return ours


def _folder() -> Path | None:
    """Folder of this machine's programs; None if the user turned the cache off or has no home."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen.lower() in ("off", "0"):
        return None
    try:
        root = Path(chosen).expanduser() if chosen else _user_cache() / "hyrlo"
    except RuntimeError:  # no home folder
        return None
    return root.absolute() / "jax" / f"{jax.__version__}-{processor()}"


def _user_cache() -> Path:
    """Where the operating system keeps a user's caches."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def processor() -> str:
    """Fingerprint of the processor: a home folder may be shared by machines that cannot run each other's code."""
    described = [platform.system(), platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:  # not Linux
        lines = []
    described += [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU "))]
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:12]


def _usable(folder: Path) -> bool:
    """Make the folder, and check that this user owns it and no other can write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "nt":  # profile folders are private on Windows
            return os.access(folder, os.W_OK)
        found = folder.stat()
        private = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return private and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False


def _trim(folder: Path, max_bytes: int) -> None:
    """Delete the programs unused for longest until the rest fits.

    JAX's `jax_compilation_cache_max_size` would do it too, but reads the time stamps of all entries at each write (23 ms with
    1000 entries), and a process killed between its two writes of an entry stops all later ones.
    """
    entries = []
    for entry in os.scandir(folder):
        try:
            found = entry.stat()
        except OSError:  # another process deleted it
            continue
        entries.append((max(found.st_atime, found.st_mtime), found.st_size, entry.path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= max_bytes:
            break
        Path(path).unlink(missing_ok=True)
        total -= size
