"""FOOBAR without options on the discrete Gymnasium tasks of tests/tasks: `python -m benchmarks.tasks --out docs/results`.

For every task and seed: write the states of its behaviour policy, run `hyrlo train foobar gym:tests.tasks:ID --data LOGS`, and
compare returns with the behaviour's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.tasks import HORIZONS
from tests.tasks.logs import behaviour_return, write_logs

from hyrlo.cli.main import main as hyrlo
from hyrlo.experiments.runner import markdown, spread, write_csv
from hyrlo.runs.provenance import running_code, short_name


def run(name: str, seed: int, episodes: int, folder: Path) -> dict[str, Any]:
    logs, out = folder / f"{name}-{seed}.npz", folder / f"{name}-{seed}"
    write_logs(name, logs, episodes, seed)
    command = [
        "train",
        "foobar",
        f"gym:tests.tasks:{name}",
        "--data",
        str(logs),
        "--seed",
        str(seed),
        "--out",
        str(out),
    ]
    if hyrlo([*command, "--quiet"]):
        raise SystemExit(f"hyrlo {' '.join(command)}: failed")
    result = json.loads((out / "result.json").read_text())
    return {
        "task": name, "seed": seed, "horizon": HORIZONS[name], "behaviour": behaviour_return(name, 2000, 10_000 + seed),
        "return_mean": result["return_mean"], "eval_episodes": result["eval_episodes"], "episodes": result["episodes"],
        "steps": result["steps"], "choice": result["chosen"]["forward"]["choice"],
        "warnings": len(result["warnings"]), "wall_seconds": result["wall_seconds"], "commit": short_name(running_code()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=2000, help="of the logs")
    parser.add_argument("--out", type=Path, default=Path("runs/tasks"))
    args = parser.parse_args()
    seeds, rows = range(args.first_seed, args.first_seed + args.seeds), []
    with tempfile.TemporaryDirectory() as folder:
        for name in HORIZONS:
            rows += [run(name, seed, args.episodes, Path(folder)) for seed in seeds]
    args.out.mkdir(parents=True, exist_ok=True)
    write_csv(args.out / "tasks.csv", rows)
    table = []
    for name in HORIZONS:
        mine = [row for row in rows if row["task"] == name]
        columns = [
            spread([row[key] for row in mine]) for key in ("behaviour", "return_mean", "episodes", "wall_seconds")
        ]
        better = sum(row["return_mean"] > row["behaviour"] for row in mine)
        table.append([f"{name}, H = {HORIZONS[name]}", *columns, f"{better} of {len(mine)}"])
    header = ["task", "behaviour", "FOOBAR, no options", "training episodes", "seconds", "better than the behaviour"]
    text = f"{markdown(header, table)}\nCode: {short_name(running_code())}.\n"
    (args.out / "tasks.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
