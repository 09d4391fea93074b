"""`hyrlo diagnose`: can these data be reached, are they covered, and what to expect of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from hyrlo.cli.output import out, say
from hyrlo.cli.parsing import environment_options, first_positional, parse, with_environment
from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.core.variants import PRESETS
from hyrlo.data.readers import read_states
from hyrlo.diagnostics import DiagnoseConfig, DiagnosisReport, diagnose
from hyrlo.diagnostics.diagnosis import RunRollIn, forward_config
from hyrlo.diagnostics.report import table
from hyrlo.envs import World, make
from hyrlo.envs.registry import find
from hyrlo.forward.variants import ESTIMATORS
from hyrlo.runs.progress import Progress
from hyrlo.runs.training import default_horizon
from hyrlo.runs.trust import check_arguments, check_options_of


@dataclass(kw_only=True)
class DiagnoseArgs:
    """Can the data be reached, does a roll-in cover them, what to expect. Writes report.html, report.json and pictures."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Environment, as in `hyrlo list`."""
    data: str | None = None
    """State data (npz, CSV, parquet, `minari:<dataset-id>`). Without it, the locks generate the paper's from the seed."""
    run: str | None = None
    """Run directory whose roll-in (forward policy) to compare with the data. Without it, forward passes are made."""
    trust: bool = False
    """With --run: also make the environment with arguments of the run that may name a module or a file."""
    horizon: int | None = None
    """Steps of an episode; by default the run's, else that of the data, else the environment's."""
    seed: int | None = None
    """Seed of behaviour data, forward passes and tests (default: the run's, else 0)."""
    out: str | None = None
    """Directory of the report (default: runs/diagnose-ENV-hH-seedS)."""
    json: bool = False
    """Print JSON for programs."""
    max_episodes: int | None = None
    """Read the first N episodes of the data only (Minari, and trajectories in npz)."""
    forward: Annotated[str | None, tyro.conf.arg(metavar="|".join(ESTIMATORS))] = None
    """Estimator of the forward passes (default: importance; model where a simulator steps)."""
    preset: Annotated[str | None, tyro.conf.arg(metavar="|".join(PRESETS))] = None
    """Budget of the forward passes."""
    samples: int | None = None
    """Online episodes per step and forward pass (default: the preset's)."""
    quiet: bool = False
    """No progress."""
    config: Annotated[DiagnoseConfig, tyro.conf.arg(name="")] = field(default_factory=DiagnoseConfig)


def command_diagnose(argv: Sequence[str]) -> None:
    kind = with_environment(DiagnoseArgs, first_positional(argv, DiagnoseArgs), argv)
    args = parse(kind, argv, "hyrlo diagnose")
    run = _read_run(args)
    seed = args.seed if args.seed is not None else run.settings.get("seed", 0) if run else 0
    check_seed(seed)
    if args.max_episodes is not None and args.data is None:
        raise HyrloError("--max-episodes: is for --data with states; leave it out")
    data = None if args.data is None else read_states(args.data, max_episodes=args.max_episodes)
    horizons = (args.horizon, run.horizon if run else None, default_horizon(args.env, data))
    world = _same_world(args, next((h for h in horizons if h is not None), None), run)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", args.env)
    directory = Path(args.out or f"runs/diagnose-{name}-h{world.spec.horizon}-seed{seed}")
    report = diagnose(
        world, data, run, config=args.config, forward=forward_config(world, args.forward, args.preset, args.samples), seed=seed,
        out=directory, progress=Progress(enabled=not args.quiet),
    )  # fmt: skip
    if args.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _show(report, directory)


def _show(report: DiagnosisReport, directory: Path) -> None:
    out.print(table(report))
    for line in report.verdict:
        out.print(line, highlight=False)
    out.print("\nWhat to do next:", highlight=False)
    for line in report.advice:
        out.print(f"  • {line}", highlight=False)
    say(f"\nreport in {directory / 'report.html'}")


def _read_run(args: DiagnoseArgs) -> RunRollIn | None:
    if args.run is None:
        return None
    run = RunRollIn.read(args.run, args.env, args.horizon)
    if args.forward or args.preset or args.samples:
        raise HyrloError(
            "--forward, --preset and --samples: are for forward passes of diagnose's own; leave them or --run out"
        )
    return run


def _same_world(args: Any, horizon: int | None, run: RunRollIn | None) -> World:
    """The world of the run, else as the options say."""
    prefix = find(args.env).option_prefix
    told = prefix is not None and getattr(args, prefix) != type(getattr(args, prefix))()
    if run is None or not run.settings or told:
        return make(args.env, horizon, **environment_options(args))
    file, options = Path(run.path) / "config.json", run.settings.get("env_options", {})
    if not args.trust:
        check_arguments(file, options)
    check_options_of(file, args.env, options)
    return make(args.env, horizon, **options)
