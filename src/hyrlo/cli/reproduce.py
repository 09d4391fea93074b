"""`hyrlo reproduce EXPERIMENT`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from hyrlo.cli.output import say
from hyrlo.cli.parsing import parse
from hyrlo.core.errors import check_seed
from hyrlo.core.names import check_name
from hyrlo.core.plain import visible
from hyrlo.core.ranges import Count, check_value
from hyrlo.experiments.registry import TITLES
from hyrlo.experiments.reproduce import reproduce


@dataclass
class ReproduceArgs:
    """Run what is missing of an experiment and make its figures and tables. The same command continues where it stopped."""

    experiment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")]
    """One of those in `hyrlo list`."""
    scale: Literal["smoke", "quick", "paper"] = "quick"
    """`smoke`: does it run, a minute; `quick`: smaller than the paper; `paper`: its sizes and seeds, hours on two cores."""
    seeds: int | None = None
    """Number of seeds (default: the scale's)."""
    first_seed: int | None = None
    """The first of them (default: 1000 at scale paper, so that no setting was chosen on them; else 0)."""
    out: str = "runs/reproduce"
    """Runs go to OUT/SCALE/runs, pictures and tables to OUT/SCALE/EXPERIMENT."""
    jobs: int = 1
    """Runs at a time; more than one in processes of their own."""
    report_only: bool = False
    """Train nothing; make figures and tables from the stored runs, as far as they go."""
    only: tuple[str, ...] = ()
    """Make and report these groups of runs alone; groups are the folders in OUT/SCALE/runs without the horizon."""
    mixed: bool = False
    """Also reuse and report runs of other code; the table says so."""


def command_reproduce(argv: Sequence[str]) -> None:
    args = parse(ReproduceArgs, argv, "hyrlo reproduce")
    check_name(args.experiment, TITLES, "experiment")
    for name in ("seeds", "jobs"):
        check_value(f"--{name}", getattr(args, name), Count | None)
    if args.first_seed is not None:
        check_seed(args.first_seed, "--first-seed")
    table, directory = reproduce(
        args.experiment,
        args.scale,
        args.seeds,
        args.out,
        args.jobs,
        args.report_only,
        args.mixed,
        args.first_seed,
        args.only,
    )
    print(visible(table))
    say(f"pictures and tables in {directory}")
