"""Stable-Baselines3 alone and with a learned reset, at equal numbers of environment steps.

    pip install 'hyrlo[sb3]'
    hyrlo train fail gym:MountainCarContinuous-v0 --horizon 200 --data states.npz --out runs/forward
    python examples/sb3_learned_reset.py --roll-in runs/forward --seed 10 11 12

SAC on MountainCarContinuous-v0 (default) or DQN on MountainCar-v0. Both learners have the same settings and the same budget
of environment steps; those of the roll-ins count, those that trained the roll-in policy beforehand do not. Both are
evaluated from the environment's own initial states.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import hyrlo

WIDTHS = {"env": 24}
LIMIT = 200
"""Steps of an episode."""
METHODS = ("alone", "learned-reset")
LEARNERS = {
    "MountainCarContinuous-v0": SAC,
    "MountainCar-v0": DQN,
}
SETTINGS = {
    SAC: {
        "learning_rate": 1e-3,
        "learning_starts": 1_000,
        "train_freq": 32,
        "gradient_steps": 8,
        "policy_kwargs": {"net_arch": [64, 64]},
    },
    DQN: {
        "learning_rate": 1e-3,
        "batch_size": 128,
        "buffer_size": 50_000,
        "learning_starts": 1_000,
        "train_freq": 4,
        "gradient_steps": 4,
        "target_update_interval": 1,
        "tau": 0.01,
        "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07,
        "policy_kwargs": {"net_arch": [64, 64]},
    },
}
"""SAC's are its defaults but for fewer updates, of smaller networks, with larger steps. DQN's were found with a learned reset
on seeds 0 to 2."""


class Counted(gymnasium.Wrapper):
    """Counts steps as `LearnedReset` does, for the learner that has none."""

    steps = roll_in_steps = 0

    def step(self, action):
        self.steps += 1
        return self.env.step(action)


class StopAt(BaseCallback):
    """Ends training once the environment, roll-ins included, has been stepped `steps` times."""

    def __init__(self, env: Counted | hyrlo.LearnedReset, steps: int):
        super().__init__()
        self.env, self.steps = env, steps

    def _on_step(self) -> bool:
        return self.env.steps < self.steps


def learn(method: str, args: argparse.Namespace, seed: int) -> dict[str, object]:
    """Train one learner and evaluate what it learned."""
    start = time.monotonic()
    inner, learner_class = gymnasium.make(args.env, max_episode_steps=LIMIT), LEARNERS[args.env]
    env = hyrlo.LearnedReset(inner, args.roll_in, horizon=args.horizon) if method == "learned-reset" else Counted(inner)
    learner = learner_class("MlpPolicy", Monitor(env), seed=seed, device="cpu", **SETTINGS[learner_class])
    learner.learn(args.steps, callback=StopAt(env, args.steps))
    fresh = Monitor(gymnasium.make(args.env, max_episode_steps=LIMIT))
    fresh.reset(seed=10_000 + seed)
    returns, lengths = evaluate_policy(learner, fresh, args.episodes, return_episode_rewards=True)
    return {
        "env": args.env,
        "method": method,
        "seed": seed,
        "steps": env.steps,
        "roll_in_steps": env.roll_in_steps,
        "return_mean": round(float(np.mean(returns)), 2),
        "success": round(float(np.mean(np.array(lengths) < LIMIT)), 3),
        "eval_episodes": args.episodes,
        "seconds": round(time.monotonic() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roll-in", required=True, metavar="DIR", help="run directory of a fail or foobar run")
    parser.add_argument("--env", choices=LEARNERS, default="MountainCarContinuous-v0")
    parser.add_argument("--horizon", type=int, help="of the roll-in (default: the run's, else the time limit)")
    parser.add_argument("--steps", type=int, default=150_000, help="environment steps of each learner")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--method", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--episodes", type=int, default=100, help="episodes of the evaluation")
    parser.add_argument("--csv", type=Path, help="append the rows to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)  # networks this small gain nothing from more
    header = None
    for seed in args.seed:
        for method in args.method:
            row = learn(method, args, seed)
            if header is None:
                header = " ".join(f"{name:>{WIDTHS.get(name, 13)}}" for name in row)
                print(header)
            print(" ".join(f"{value:>{WIDTHS.get(name, 13)}}" for name, value in row.items()), flush=True)
            if args.csv:
                append(args.csv, row)


def append(path: Path, row: dict[str, object]) -> None:
    new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
