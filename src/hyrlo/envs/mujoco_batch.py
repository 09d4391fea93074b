"""Many MuJoCo simulations in lock-step, by threads of this process."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    import mujoco


class MujocoBatch:
    """`count` simulations, each of its own copy of a model, whose fields may be changed.

    A simulation keeps all of its data between steps, the solver's warm start included, so that it is bit for bit the one
    that MuJoCo alone would make, however many threads there are. (`mujoco.rollout` begins every call with a cold solver
    and agrees to about 1e-6.) MuJoCo works without Python's lock, so that threads are enough.
    """

    def __init__(self, model: mujoco.MjModel, count: int, threads: int):
        import mujoco

        self.models = [copy.copy(model) for _ in range(count)]
        self.simulations = [mujoco.MjData(own) for own in self.models]
        self._mujoco: Any = mujoco
        self._threads = min(threads, count)
        self._pool = ThreadPoolExecutor(self._threads)
        self._views: dict[str, Sequence[np.ndarray]] = {}

    def reset(self, count: int) -> None:
        """The first `count` simulations into the initial state of their models."""

        def reset(row: int) -> None:
            self._mujoco.mj_resetData(self.models[row], self.simulations[row])
            self._mujoco.mj_forward(self.models[row], self.simulations[row])

        self._each(count, reset)

    def step(self, controls: Float[np.ndarray, "n controls"], substeps: int) -> None:
        """The first n simulations, `substeps` time steps under the same controls."""

        def step(row: int) -> None:
            self.simulations[row].ctrl[:] = controls[row]
            self._mujoco.mj_step(self.models[row], self.simulations[row], substeps)

        self._each(len(controls), step)

    def read(self, field: str, count: int) -> Float[np.ndarray, "n ..."]:
        """A field of the first `count` simulations, by its name in `mujoco.MjData`."""
        if field not in self._views:
            self._views[field] = [getattr(simulation, field) for simulation in self.simulations]
        return np.stack(self._views[field][:count])

    def _each(self, count: int, task: Callable[[int], None]) -> None:
        """One row after the other to whichever thread is free: contacts make some steps much longer than others."""
        rows = iter(range(count))

        def work() -> None:
            for row in rows:
                task(row)

        for done in [self._pool.submit(work) for _ in range(self._threads)]:
            done.result()

    def close(self) -> None:
        self._pool.shutdown()


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
