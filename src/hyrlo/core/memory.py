"""How much memory is free, and refusals of what would not fit into it. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hyrlo.core.errors import HyrloError

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
GROUP = Path("/sys/fs/cgroup")
"""The limits of a container."""
DO = "give smaller numbers, or use a machine with more memory"


def free_memory() -> int:
    """Bytes that this process may still take: the least of what the system, the container and its own limit leave."""
    return max(0, min(_system(), _container(), _process()))


def _system() -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def _container() -> int:
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # no such limit, or "max"
            return int((GROUP / most).read_text()) - int((GROUP / used).read_text())
    return sys.maxsize


def _process() -> int:
    """What the limit on the address space (`ulimit -v`) leaves."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            return limit - int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def readable(count: int) -> str:
    """A number of bytes in a unit that suits it."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:,.0f} {UNITS[unit]}" if unit == 0 or value >= 10 else f"{value:.1f} {UNITS[unit]}"


def require_memory(needed: int, what: str, do: str = DO, error: type[HyrloError] = HyrloError) -> None:
    """Reject what needs more memory than is free; `needed` is an estimate in bytes."""
    free = free_memory()
    if needed > free:
        raise error(f"{what}: about {readable(needed)} of memory would be needed, {readable(free)} is free; {do}")


@contextmanager
def out_of_memory_in_one_line(what: str) -> Iterator[None]:
    """Python's and JAX's errors for too little memory, or for numbers that are too large, as one line."""
    try:
        yield
    except (MemoryError, OverflowError, RecursionError) as error:
        raise HyrloError(f"{what}: {_said(error)}; {DO}") from error
    except RuntimeError as error:
        if not is_jax_error(error):
            raise
        raise HyrloError(f"{what}: {_said(error)}; {DO}") from error


def is_jax_error(error: BaseException) -> bool:
    """Whether JAX's runtime raised it, such as RESOURCE_EXHAUSTED. Does not import JAX."""
    return any(kind.__name__ in ("JaxRuntimeError", "XlaRuntimeError") for kind in type(error).__mro__)


def _said(error: BaseException) -> str:
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        kind = "there is not enough memory"
    else:
        kind = f"stopped with {type(error).__name__}"
    first = next(iter(str(error).strip().splitlines()), "")[:200].rstrip(". ")
    return f"{kind} ({first})" if first else kind
