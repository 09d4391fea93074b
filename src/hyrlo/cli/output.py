"""What the commands share to print."""

from __future__ import annotations

from typing import Any

from hyrlo.runs.progress import PlainConsole

out = PlainConsole()


def say(line: str) -> None:
    """A line for people; names in it are printed as they are and not wrapped."""
    out.print(line, highlight=False, soft_wrap=True)


def number(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
