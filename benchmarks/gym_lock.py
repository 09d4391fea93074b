"""What a lock in Python costs: the same episodes through Gymnasium and through the lock in JAX."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax

import hyrlo
from benchmarks.measure import best_seconds, show

KEY = jax.random.key(0)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    horizon: int = 20
    episodes: int = 2048


FULL = Sizes()
QUICK = Sizes(5, 64)


def gym_lock(sizes: Sizes) -> None:
    """Steps a second of uniform actions, one step recorded."""
    worlds = {"lock (JAX)": hyrlo.make("lock", sizes.horizon)}
    for count in (32, sizes.episodes):
        name = f"gym:hyrlo/CombinationLock-v0, {count} at a time"
        worlds[name] = hyrlo.make("gym:hyrlo/CombinationLock-v0", sizes.horizon, num_envs=count)
    speeds = {}
    for name, world in worlds.items():
        play = partial(world.trace_model().record, KEY, world.spec.uniform(), sizes.episodes, sizes.horizon - 1)
        speeds[name] = sizes.episodes * sizes.horizon / best_seconds(play)
    rows = [[name, f"{s:,.0f}", f"{speeds['lock (JAX)'] / s:.1f}"] for name, s in speeds.items()]
    note = f"how many times slower than the lock in JAX; {sizes.episodes} episodes of {sizes.horizon} steps"
    show("the lock through Gymnasium", ["", "steps/s", "times slower"], rows, note)


if __name__ == "__main__":
    gym_lock(FULL)
