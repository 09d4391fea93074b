"""Parts of HDF5 files, read within bounds and from the file itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.data.bounds import Budget


def own_member(group: Any, key: str, source: str) -> Any:
    """What the file itself has under this name: a link may lead to any other file."""
    link = group.get(key, getlink=True)
    if link is not None and type(link).__name__ != "HardLink":
        raise DataError(f"{source}: {key} is a link to another place; store the numbers there instead")
    return group[key]


def read_numbers(node: Any, budget: Budget) -> np.ndarray:
    """The numbers of a data set."""
    if node.external or node.is_virtual:
        raise DataError(f"{budget.source}: {node.name} lies in other files; store the numbers in the data set itself")
    if node.dtype.kind not in "fiub":
        return node[:0]  # refused for its type
    chunk = math.prod(node.chunks or ())  # read and unpacked whole
    budget.spend(max(node.size, chunk) * node.dtype.itemsize, node.size)
    return node[()]
