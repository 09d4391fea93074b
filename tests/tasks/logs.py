"""Logs of the tasks' behaviour policies: states only, as a user would bring them.

`python -m tests.tasks.logs NoisyLock-v0 lock.npz` writes one file.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tests.tasks.tabular import TabularTask

Act = Callable[[TabularTask, int, np.random.Generator], int]
"""The action in the task's current state at step h."""


class Episode(NamedTuple):
    """One episode of T ≤ H steps."""

    observations: NDArray[np.float32]
    """(T+1, obs), the last observation included."""
    total: float
    """Undiscounted return."""
    success: bool
    """Whether any step was a success."""


def behaviour(task: TabularTask, h: int, rng: np.random.Generator) -> int:
    """The task's own imperfect policy."""
    return task.behaviour(rng)


def uniform(task: TabularTask, h: int, rng: np.random.Generator) -> int:
    """Every action with the same probability."""
    return int(rng.integers(task.transitions.shape[1]))


def play(name: str, act: Act, episodes: int, seed: int, **options: Any) -> list[Episode]:
    """Episodes of a policy in the task `name`, such as `KeyDoor-v0`; `options` are the arguments of its class."""
    env = gymnasium.make(f"tests.tasks:{name}", disable_env_checker=True, **options)
    task: Any = env.unwrapped
    rng = np.random.default_rng([seed, 1])  # default_rng(seed) would repeat the environment's own random numbers
    env.reset(seed=seed)
    played = []
    for _ in range(episodes):
        observation, _ = env.reset()
        observations, total, success, over = [observation], 0.0, False, False
        while not over:
            observation, reward, terminated, truncated, info = env.step(np.int64(act(task, len(observations) - 1, rng)))
            observations.append(observation)
            total, success, over = total + float(reward), success or info["success"], terminated or truncated
        played.append(Episode(np.stack(observations), total, success))
    env.close()
    return played


def write_logs(name: str, path: str | Path, episodes: int = 2000, seed: int = 0, **options: Any) -> None:
    """Write the behaviour policy's states as npz: `observations` (N, H+1, obs).

    If episodes differ in length, it is `observations` (M, obs) and `timesteps` (M,), without states after an end.
    """
    states = [episode.observations for episode in play(name, behaviour, episodes, seed, **options)]
    arrays = {"observations": np.concatenate(states)}
    lengths = {len(s) for s in states}
    if len(lengths) == 1:
        arrays["observations"] = np.stack(states)
    else:
        arrays["timesteps"] = np.concatenate([np.arange(len(s)) for s in states])
    with open(path, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def behaviour_return(name: str, episodes: int = 2000, seed: int = 0, **options: Any) -> float:
    """Mean return of the behaviour policy; with the same seed, of the episodes that `write_logs` writes."""
    return float(np.mean([episode.total for episode in play(name, behaviour, episodes, seed, **options)]))


if __name__ == "__main__":
    write_logs(sys.argv[1], sys.argv[2])
