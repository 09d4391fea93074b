"""What a file says of its size, checked before anything is read: against the file itself and against the free memory."""

from __future__ import annotations

from hyrlo.core.errors import DataError
from hyrlo.core.memory import readable, require_memory

EXPANSION = 200
"""Files of real states shrink less than this when they are compressed."""
SMALL = 2**28
"""Bytes that any file may expand to."""
COPY = 8
"""Bytes of a number besides those it is stored in: as float32, and once more ordered by step."""


def check_size(size: int, numbers: int, stored: int, source: str, what: str = "its arrays") -> None:
    """Reject a source of `stored` bytes whose content is out of proportion to it, or larger than the memory.

    `size` is that of the content in bytes, `numbers` how many numbers it has.
    """
    if size > most_expanded(stored):
        raise DataError(
            f"{source}: {what} would take {readable(size)} of memory but the file has {readable(stored)}; "
            "a file that is not damaged is compressed less: write it again, uncompressed or in parts"
        )
    require_memory(size + COPY * numbers, f"{source}: {what}", "give fewer states", DataError)


def most_expanded(stored: int) -> int:
    """The largest content that a file of this size may have."""
    return max(SMALL, EXPANSION * stored)


class Budget:
    """Adds up what is read of a data set, against its size on disk and the free memory."""

    def __init__(self, source: str, stored: int):
        self.source, self.stored, self.size, self.numbers = source, stored, 0, 0

    def spend(self, size: int, numbers: int) -> None:
        self.size, self.numbers = self.size + size, self.numbers + numbers
        check_size(self.size, self.numbers, self.stored, self.source, "its episodes")
