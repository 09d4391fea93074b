"""Stable-Baselines3's DQN on MountainCar-v0, alone and with a learned reset, at equal numbers of environment steps.

    pip install 'hyrlo[sb3]'
    hyrlo train fail gym:MountainCar-v0 --data states.npz --preset model --out runs/forward
    python examples/sb3_learned_reset.py --roll-in runs/forward --seed 0 1 2

Both learners have the same settings and the same budget of environment steps; those of the roll-ins count, those that
trained the roll-in policy beforehand do not. Both are evaluated from the environment's own initial states.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import hyrlo

ENV = "MountainCar-v0"
METHODS = ("alone", "learned-reset")
ZOO = {
    "learning_rate": 4e-3,
    "batch_size": 128,
    "buffer_size": 10_000,
    "learning_starts": 1_000,
    "gamma": 0.98,
    "target_update_interval": 600,
    "train_freq": 16,
    "gradient_steps": 8,
    "exploration_fraction": 0.2,
    "exploration_final_eps": 0.07,
    "policy_kwargs": {"net_arch": [256, 256]},
}
"""Those of RL Baselines3 Zoo, found for DQN alone."""
SETTINGS = {
    **ZOO,
    "learning_rate": 1e-3,
    "buffer_size": 50_000,
    "gamma": 0.99,
    "train_freq": 4,
    "gradient_steps": 4,
    "exploration_fraction": 0.2,
    "target_update_interval": 1,
    "tau": 0.01,
    "policy_kwargs": {"net_arch": [64, 64]},
}
"""Found on seeds 0 to 2 at 60,000 steps, with less exploration; the results in the docs are of other seeds. A target
network that follows all the time, because one that is replaced every 600 steps hands values back by one step each time, and
a buffer that keeps most of what was seen."""


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
    inner = gymnasium.make(ENV)
    env = hyrlo.LearnedReset(inner, args.roll_in, horizon=args.horizon) if method == "learned-reset" else Counted(inner)
    learner = DQN("MlpPolicy", Monitor(env), seed=seed, device="cpu", **(ZOO if args.zoo else SETTINGS))
    learner.learn(args.steps, callback=StopAt(env, args.steps))
    fresh = Monitor(gymnasium.make(ENV))
    fresh.reset(seed=10_000 + seed)
    returns, lengths = evaluate_policy(learner, fresh, args.episodes, return_episode_rewards=True)
    return {
        "method": method + "-zoo" * args.zoo,
        "seed": seed,
        "steps": env.steps,
        "roll_in_steps": env.roll_in_steps,
        "return_mean": round(float(np.mean(returns)), 2),
        "success": round(float(np.mean(np.array(lengths) < inner.spec.max_episode_steps)), 3),
        "eval_episodes": args.episodes,
        "seconds": round(time.monotonic() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roll-in", required=True, metavar="DIR", help="run directory of a fail or foobar run")
    parser.add_argument("--horizon", type=int, help="of the roll-in (default: the run's, else the time limit)")
    parser.add_argument("--steps", type=int, default=100_000, help="environment steps of each learner")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--method", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--zoo", action="store_true", help="settings of RL Baselines3 Zoo for both")
    parser.add_argument("--episodes", type=int, default=100, help="episodes of the evaluation")
    parser.add_argument("--csv", type=Path, help="append the rows to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)  # networks this small gain nothing from more
    header = None
    for seed in args.seed:
        for method in args.method:
            row = learn(method, args, seed)
            if header is None:
                header = " ".join(f"{name:>13}" for name in row)
                print(header)
            print(" ".join(f"{value:>13}" for value in row.values()), flush=True)
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
