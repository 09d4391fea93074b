"""`hyrlo eval DIR`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from hyrlo.cli.output import number, out, say
from hyrlo.cli.parsing import parse
from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.core.ranges import Count, check_value
from hyrlo.runs.directory import read_config
from hyrlo.runs.loading import evaluate_run
from hyrlo.runs.render import render_run
from hyrlo.runs.seeds import seed_directories


@dataclass
class EvalArgs:
    """Evaluate the policy of a run (or of each seed of a run) on fresh episodes."""

    dir: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Run directory."""
    episodes: int = 1000
    """Number of episodes."""
    seed: int = 0
    """Seed of the evaluation episodes."""
    json: bool = False
    """Print JSON for programs."""
    render: Annotated[str | None, tyro.conf.arg(metavar="[FILE.gif]")] = None
    """Write one episode, that of the seed, as a GIF; without a name, `episode.gif` in the run directory."""
    trust: bool = False
    """Import the module that the run's environment names. Only for runs of people whose code you would run."""


def command_eval(argv: Sequence[str]) -> None:
    args = parse(EvalArgs, _name_render(argv), "hyrlo eval")
    check_value("--episodes", args.episodes, Count)
    check_seed(args.seed)
    directories, rows, shown = seed_directories(Path(args.dir)), [], []
    if args.render and len(directories) > 1:
        raise HyrloError(f"--render: {args.dir} holds several seeds; give the directory of one, or no file name")
    for directory in directories:
        if args.render is not None:
            shown.append(render_run(directory, args.render or None, args.seed, args.trust))
        result = evaluate_run(directory, args.episodes, args.seed, trust=args.trust)
        about = {k: v for k, v in read_config(directory).items() if k in ("algo", "env", "seed", "horizon")}
        rows.append({**about, **result._asdict(), **({"render": str(shown[-1].file)} if args.json and shown else {})})
    if args.json:
        print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
        return
    table = Table()
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(number(v) for v in row.values()))
    out.print(table)
    for file, frames, episode_return in shown:
        say(f"episode of {frames - 1} steps, return {episode_return:.3f}, in {file}")


def _name_render(argv: Sequence[str]) -> list[str]:
    """`--render` may come without a file: the empty name stands for the default."""
    named = list(argv)
    for here in (i for i, word in enumerate(argv) if word == "--render"):
        following = argv[here + 1] if here + 1 < len(argv) else "-"
        if following.startswith("-") or Path(following).is_dir():
            named[here] = "--render="
    return named
