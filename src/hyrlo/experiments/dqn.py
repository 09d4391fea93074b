"""DQN of Stable-Baselines3, what a user would try first, as runs of an experiment. Needs `hyrlo[sb3]`.

It is not an algorithm of hyrlo: it writes the run directory that reports read, has no checkpoint, and starts again if stopped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from hyrlo.core.files import write_json
from hyrlo.experiments.runner import Library, RunSpec
from hyrlo.runs.contents import checksums, identity
from hyrlo.runs.directory import FORMAT
from hyrlo.runs.metrics import write_lines
from hyrlo.runs.provenance import running_code
from hyrlo.runs.training import describe_config, versions

NEEDS = Library("stable_baselines3", "sb3")
POINTS = 10
"""Evaluations along the curve."""


@dataclass(frozen=True)
class DqnConfig:
    """DQN; the defaults are those that RL Baselines3 Zoo publishes for MountainCar-v0."""

    steps: int = 120_000
    """Environment steps."""
    learning_rate: float = 4e-3
    batch_size: int = 128
    buffer_size: int = 10_000
    learning_starts: int = 1000
    gamma: float = 0.98
    target_update_interval: int = 600
    train_freq: int = 16
    gradient_steps: int = 8
    exploration_fraction: float = 0.2
    exploration_final_eps: float = 0.07
    hidden: int = 256
    """Width of the two hidden layers."""


def train_dqn(spec: RunSpec, path: Path) -> dict[str, Any]:
    """Train, evaluate along the way and at the end, and write the run directory; the result."""
    import torch
    from stable_baselines3 import DQN

    torch.set_num_threads(1)  # networks this small gain nothing from more
    begin = time.monotonic()
    env, fresh = (_environment(spec) for _ in range(2))
    settings = {name: value for name, value in vars(spec.config).items() if name not in ("steps", "hidden")}
    layers = {"net_arch": [spec.config.hidden] * 2}
    learner = DQN("MlpPolicy", env, seed=spec.seed, device="cpu", policy_kwargs=layers, **settings)
    about = _about(spec)
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "config.json", about)
    metrics: list[dict[str, Any]] = []

    def evaluated(episodes: int, number: int) -> dict[str, Any]:
        score = {"return_mean": mean_return(learner, fresh, episodes, [spec.seed, number]), "success_rate": None}
        return {"episodes": len(env.return_queue), "steps": learner.num_timesteps, **score}

    def note(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        if learner.num_timesteps * POINTS >= (len(metrics) + 1) * spec.config.steps:
            point = evaluated(spec.curve_episodes, len(metrics))
            seconds = round(time.monotonic() - begin, 3)
            metrics.append({"phase": "online", "horizon": spec.horizon, **point, "seconds": seconds})
        return True

    learner.learn(spec.config.steps, callback=note)
    write_lines(path, metrics, identity(about))
    result = {
        **{name: about[name] for name in ("algo", "env", "seed", "horizon")},
        **evaluated(spec.eval_episodes, POINTS),
        "eval_episodes": spec.eval_episodes,
        "wall_seconds": round(time.monotonic() - begin, 3),
        **{name: about[name] for name in ("versions", "code")},
    }
    write_json(path / "result.json", {**result, "files": checksums(path)})
    return result


def mean_return(learner: Any, env: gymnasium.Env, episodes: int, seed: list[int]) -> float:
    """Of the greedy policy."""
    returns = np.zeros(episodes)
    for i, start in enumerate(np.random.SeedSequence(seed).generate_state(episodes)):
        observation, over = env.reset(seed=int(start))[0], False
        while not over:
            action = learner.predict(observation, deterministic=True)[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            returns[i], over = returns[i] + float(reward), terminated or truncated
    return float(returns.mean())


def _environment(spec: RunSpec) -> Any:
    """With the horizon as time limit. Its `return_queue` has an entry per finished episode."""
    env = gymnasium.make(spec.env.removeprefix("gym:"), max_episode_steps=spec.horizon)
    return gymnasium.wrappers.RecordEpisodeStatistics(env, buffer_length=10**6)


def _about(spec: RunSpec) -> dict[str, Any]:
    """`config.json`."""
    return {
        "format": FORMAT,
        "algo": spec.algo,
        "env": spec.env,
        "env_options": dict(spec.options),
        "horizon": spec.horizon,
        "seed": spec.seed,
        "config": describe_config(spec.config),
        "curve_episodes": spec.curve_episodes,
        "eval_episodes": spec.eval_episodes,
        "versions": {**versions(), **{name: version(name) for name in ("stable-baselines3", "torch")}},
        "code": running_code(),
    }
