"""Things by name: load them when they are used, and suggest a name when one is mistyped. Imports nothing heavy."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any

from hyrlo.core.errors import HyrloError


def load_object(path: str) -> Any:
    """The object called `module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` if a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f"; did you mean {close[0]}?" if close else ""


def check_name(name: str, known: Iterable[str], kind: str) -> None:
    """Reject a name that is not known, and suggest one that is."""
    if name not in known:
        hint = nearest(name, known)
        raise HyrloError(
            f"unknown {kind} {name!r}{hint}{' (see' if hint else '; see'} `hyrlo list`{')' if hint else ''}"
        )
