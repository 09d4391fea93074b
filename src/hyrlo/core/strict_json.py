"""JSON of others: what the standard allows and no more, so that every value means one thing."""

from __future__ import annotations

import json
import math
from typing import Any

DEEPEST = 100
"""Objects and lists within each other; a policy has about 30."""
MOST_DIGITS = 30
"""Of a whole number; 64 bits have 20."""


def parse(content: bytes) -> Any:
    """The value; `ValueError` says in one line what is wrong with the content."""
    try:
        value = json.loads(
            content.decode("utf-8"),
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_no_number,
            object_pairs_hook=_without_duplicates,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ValueError(f"is nested more than {DEEPEST} levels deep") from None
    _check_depth_and_text(value)
    return value


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"has a whole number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"has the number {text[:MOST_DIGITS]}, which is not finite")
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"has {text}, which is no number of JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has the field {twice[:MOST_DIGITS]!r} twice in one object")
    return found


def _check_depth_and_text(value: Any) -> None:
    """Reject deep nesting, and text that cannot be written again (half of a surrogate pair)."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"is nested more than {DEEPEST} levels deep")
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += [*one.keys(), *one.values()]
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, str) and any("\ud800" <= letter <= "\udfff" for letter in one):
                raise ValueError("has text with half of a surrogate pair")
        level = inner
