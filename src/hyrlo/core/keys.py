"""Random keys by name, so that no two purposes share random numbers."""

from __future__ import annotations

import zlib

import jax
import numpy as np
from jax.random import fold_in
from jaxtyping import Array, Int, PRNGKeyArray

NAMED = 1 << 31


class Keys:
    """`Keys(key).forward` is a key that depends on `key` and the name `forward` alone; `at` adds numbers, such as a step.

    Numbers alone are not safe: `fold_in(key, 1)` equals `split(key)[1]`. Names become numbers of at least 2³¹, which neither
    steps nor `split` reach.
    """

    def __init__(self, key: PRNGKeyArray):
        self._key = key

    @classmethod
    def of_seed(cls, seed: int) -> Keys:
        return cls(jax.random.key(seed))

    def __getattr__(self, name: str) -> PRNGKeyArray:
        if name.startswith("_"):
            raise AttributeError(name)
        return fold_in(self._key, np.uint32(zlib.crc32(name.encode()) | NAMED))

    def at(self, *numbers: int | Int[Array, ""]) -> Keys:
        """The keys of step `numbers[0]`, or of round `numbers[1]` of that step, and so on."""
        key = self._key
        for number in numbers:
            key = fold_in(key, number)
        return Keys(key)
