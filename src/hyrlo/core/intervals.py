"""Updates that are interrupted by checks."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


def intervals(updates: int, most: int) -> Int[Array, "checks 2"]:
    """First and last (exclusive) number of the updates before each of at most `most` checks; none is left out."""
    checks = min(most, updates)
    edges = np.arange(checks + 1) * updates // checks
    return jnp.asarray(np.stack([edges[:-1], edges[1:]], axis=1))
