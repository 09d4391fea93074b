"""One CSV row per seed of finished runs: `python -m benchmarks.table RUN [RUN ...] --out FILE.csv`.

`forward_good_mass` is the share of episodes in which the forward policy is in a good state at H, measured on 2000 fresh
episodes (on the lock that is its success rate: the last state is good when the last action was correct).
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import tyro

from hyrlo.core.access import evaluate
from hyrlo.core.files import read_json
from hyrlo.core.serialize import load_tree
from hyrlo.envs import make
from hyrlo.experiments.runner import write_csv
from hyrlo.runs.directory import seed_directories


def row(name: str, path: Path) -> dict[str, object]:
    config, result = read_json(path / "config.json"), read_json(path / "result.json")
    metrics = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    forward = [line["episodes"] for line in metrics if line["phase"] == "forward"]
    checkpoint = path / "checkpoint" / "forward.safetensors"
    mass: float | str | None = ""
    if checkpoint.exists():
        world = make(config["env"], config["horizon"], **config["env_options"])
        mass = evaluate(world.trace_model(), load_tree(checkpoint)[0], jax.random.key(1), 2000).success_rate
    return {
        "run": name,
        **{k: result[k] for k in ("algo", "env", "horizon", "seed", "episodes", "steps")},
        "forward_episodes": forward[-1] if forward else 0,
        "backward_episodes": result["episodes"] - (forward[-1] if forward else 0),
        "forward_good_mass": mass,
        **{k: result[k] for k in ("success_rate", "return_mean", "eval_episodes", "wall_seconds")},
    }


def main(runs: tyro.conf.Positional[tuple[Path, ...]], out: Path) -> None:
    rows = [row(path.name, seed) for path in runs for seed in seed_directories(path)]
    write_csv(out, rows)


if __name__ == "__main__":
    tyro.cli(main)
