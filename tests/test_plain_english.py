"""Docstrings and messages in plain English: phrases that a reader has to read twice are banned."""

from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
BANNED = (
    "numbers that are none",
    "so many",
    "unless told",
    "mend ",
    "mends ",
    "mended ",
    "nobody asks",
    "see to it",
    "of every critic: of",
)


def test_no_banned_phrases():
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {phrase!r}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for phrase in BANNED
        if phrase in line.lower().replace("recommend", "")
    ]
    assert not found, "\n".join(found)
