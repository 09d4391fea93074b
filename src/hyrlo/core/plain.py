"""Names from outside as they are printed: nothing in them moves the cursor, changes colours or hides."""

from __future__ import annotations


def visible(text: str) -> str:
    """The text with every character that cannot be seen written as its escape: `\\x1b[31m` for a red colour."""
    if text.isprintable():
        return text
    return "".join(x if x.isprintable() or x == "\n" else x.encode("unicode_escape").decode() for x in text)
