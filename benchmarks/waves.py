"""Random Fourier features and their gradient: hyrlo's cosine and sine against those of JAX."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from benchmarks.measure import best_seconds, show
from hyrlo.distances.mmd import cos_sin

FULL, QUICK = 200, 2
"""Gradients in a row."""


def of_jax(angles: Float[Array, "n f"]) -> tuple[Float[Array, "n f"], Float[Array, "n f"]]:
    return jnp.cos(angles), jnp.sin(angles)


def waves(repeats: int) -> None:
    angles = 3 * jax.random.normal(jax.random.key(0), (256, 256))

    @partial(jax.jit, static_argnums=1)
    def climb(angles: Array, functions) -> Array:  # type: ignore[no-untyped-def]
        slope = jax.grad(lambda x: sum(jnp.sum(wave**3) for wave in functions(x)))
        return jax.lax.fori_loop(0, repeats, lambda _, x: x + 1e-3 * slope(x), angles)

    ours, theirs = (best_seconds(lambda f=f: climb(angles, f)) / repeats for f in (cos_sin, of_jax))
    rows = [["hyrlo", f"{1e3 * ours:.2f}", f"{theirs / ours:.1f}"], ["JAX", f"{1e3 * theirs:.2f}", "1.0"]]
    show("Cosine and sine of 256 × 256 angles, with gradient", ["", "ms", "ratio"], rows)


if __name__ == "__main__":
    waves(FULL)
