"""Many copies of one environment in lock-step, in this process or in worker processes that may die."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from jaxtyping import Bool, Float

from hyrlo.core.errors import HyrloError
from hyrlo.core.signals import children_ignore_interrupts
from hyrlo.envs.gym.answers import describe, hears_alarms
from hyrlo.envs.gym.wrappers import Absorbing, Start

PATIENCE = 600.0
"""Seconds that a worker process may take for one step or reset."""
GRACE = 5.0
"""Seconds that a worker process has to say that its environment took too long."""
LARGEST = float(np.finfo(np.float32).max)


class News(NamedTuple):
    """What a batch of environments reports besides observations and rewards."""

    ended: Bool[np.ndarray, " n"]
    success: Bool[np.ndarray, " n"] | None
    """None if no environment reported success or failure."""


class Vector:
    """`count` environments that are reset and stepped together. Errors name the step and the seed of the episode."""

    def __init__(
        self, name: str, make: Sequence[Callable[[], Absorbing]], asynchronous: bool, timeout: float | None = None
    ):
        self.name, self.count = name, len(make)
        self.timeout = timeout
        self.patience = PATIENCE if timeout is None else timeout + GRACE
        self.seeds: Sequence[int] = ()
        try:
            self.envs = _workers(name, make) if asynchronous else SyncVectorEnv(make, copy=False)
        except (HyrloError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the first copy could be made, another not
            raise HyrloError(f"{name}: a copy of it cannot be made: {describe(error)}; fix the environment") from error

    def reset(self, seeds: Sequence[int], start: Start) -> tuple[Float[np.ndarray, "n obs"], News]:
        """Begin episodes in the first `start.rows` environments, each from its own seed."""
        self.seeds = [*seeds, *[0] * (self.count - len(seeds))]
        observations, infos = self._ask("reset", start.at, seed=self.seeds, options={"start": start})
        return self._checked(observations, "observation", start.at), self._news(infos, start.at)

    def step(self, actions: np.ndarray, h: int) -> tuple[Float[np.ndarray, "n obs"], Float[np.ndarray, " n"], News]:
        """Step h of every episode that still runs."""
        self._checked(actions, "action", h)
        observations, rewards, _, _, infos = self._ask("step", h, actions=actions)
        news = self._news(infos, h)
        return self._checked(observations, "observation", h), self._checked(rewards, "reward", h), news

    def _ask(self, what: str, h: int, **arguments: Any) -> Any:
        if not isinstance(self.envs, AsyncVectorEnv):
            if self.timeout is not None and not hears_alarms():
                raise HyrloError(
                    f"{self.name}: timeout works in the main thread on a POSIX system; else give asynchronous as well"
                )
            return getattr(self.envs, what)(**arguments)
        try:
            getattr(self.envs, f"{what}_async")(**arguments)
            return getattr(self.envs, f"{what}_wait")(timeout=self.patience)
        except (EOFError, ConnectionError):
            problem = f"a worker process died at step {h}{self._whose(self.envs.processes)}"
        except multiprocessing.TimeoutError:
            silent = [not pipe.poll(0) for pipe in self.envs.parent_pipes].index(True)
            whose = f" of the episode with seed {self.seeds[silent]}"
            problem = f"a worker process gave no answer within {self.patience:g} s at step {h}{whose}"
        except BaseException:  # Ctrl-C: answers that are still to come would be read as those of the next call
            self.close()
            raise
        self.close()
        raise HyrloError(f"{self.name}: {problem}; check that enough memory is free, then continue with --resume")

    def _whose(self, processes: Sequence[Any]) -> str:
        """The seed of the episode and the exit code of the dead process. It may take a moment until it is reported dead."""
        wait([process.sentinel for process in processes], timeout=1.0)
        for process, seed in zip(processes, self.seeds, strict=True):
            if not process.is_alive():
                return f" of the episode with seed {seed} (exit code {process.exitcode})"
        return ""

    def _news(self, infos: dict[str, Any], h: int) -> News:
        if "error" in infos:
            row = int(infos["_error"].argmax())
            raise HyrloError(
                f"{self.name}: {infos['error'][row]} at step {h} of the episode with seed {self.seeds[row]}; "
                "fix the environment, then continue with --resume"
            )
        ended = infos.get("ended")
        return News(np.zeros(self.count, bool) if ended is None else ended, infos.get("success"))

    def _checked(self, values: np.ndarray, what: str, h: int) -> np.ndarray:
        if values.dtype.kind == "f" and not (fits := np.abs(values) <= LARGEST).all():
            row = int(np.argwhere(~fits)[0][0])
            entries = values[row][~fits[row]] if values.ndim > 1 else values[row : row + 1]
            raise HyrloError(
                f"{self.name}: {what} is {entries[0]} at step {h} of the episode with seed {self.seeds[row]}; "
                "fix the environment: all values must be finite float32 numbers"
            )
        return values

    @property
    def closed(self) -> bool:
        return bool(self.envs.closed)

    def close(self) -> None:
        """End the worker processes."""
        if self.closed:
            return
        if isinstance(self.envs, AsyncVectorEnv):
            _stop(self.envs)
        self.envs.close()


def _workers(name: str, make: Sequence[Callable[[], Absorbing]]) -> AsyncVectorEnv:
    """Worker processes that share nothing with this one: JAX's threads do not survive a fork."""
    context = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    if context == "forkserver":  # imports are done once, not by each worker
        multiprocessing.get_context(context).set_forkserver_preload([__name__])
    try:
        with children_ignore_interrupts():
            return AsyncVectorEnv(make, context=context, copy=False)
    except (EOFError, ConnectionError):
        raise HyrloError(
            f"{name}: a worker process died when it started; its output is above. The environment must be importable "
            "there, and a script must start under `if __name__ == '__main__':`"
        ) from None


def _stop(envs: AsyncVectorEnv, patience: float = 2.0) -> None:
    """Ask the workers to close their environments; kill those that do not within `patience` seconds."""
    for pipe in envs.parent_pipes:
        with suppress(OSError, AttributeError):
            pipe.send(("close", None))
    deadline = time.monotonic() + patience
    for process in envs.processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    for pipe in envs.parent_pipes:
        with suppress(OSError, AttributeError):
            pipe.close()
    envs.closed = True
