"""`hyrlo diagnose`: can these data be reached, are they covered, and what to expect of a run."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from hyrlo.cli.data import _world, out
from hyrlo.cli.parsing import parse
from hyrlo.core.access import Ledger
from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.core.policies import Policy, action_of
from hyrlo.data.readers import read_states
from hyrlo.data.states import ObservationDataset
from hyrlo.diagnostics.admissibility import DiagnoseConfig, default_forward, forward_passes, reach
from hyrlo.diagnostics.report import DiagnosisReport, gather, table
from hyrlo.envs import World, check_name, make
from hyrlo.envs.gym.world import GymConfig
from hyrlo.envs.hammer import HammerConfig
from hyrlo.envs.lock import LockConfig
from hyrlo.forward.fail import PRESETS
from hyrlo.runs.directory import read_config
from hyrlo.runs.learned_reset import read_roll_in
from hyrlo.runs.progress import Progress

SLOW_EPISODES = 500  # roll-out episodes by default where the environment is in Python


@dataclass
class DiagnoseArgs:
    """Can the data be reached, does a roll-in cover them, what to expect. Writes report.html, report.json and pictures."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Environment, as in `hyrlo list`."""
    data: str | None = None
    """State data (npz, CSV, parquet, `minari:<dataset-id>`). Without it, the locks generate the paper's from the seed."""
    run: str | None = None
    """Run directory whose roll-in (forward policy) to compare with the data. Without it, forward passes are made."""
    horizon: int | None = None
    """Steps of an episode; by default the run's, else that of the data, else the environment's."""
    seed: int | None = None
    """Of behaviour data, forward passes and tests (default: the run's, else 0)."""
    out: str | None = None
    """Directory of the report (default: runs/diagnose-ENV-hH-seedS)."""
    json: bool = False
    """Print JSON for programs."""
    max_episodes: int | None = None
    """Read the first N episodes of the data only (Minari, and trajectories in npz)."""
    preset: str | None = None
    """Of the forward passes (default: `paper`; `model` for gym:<id>)."""
    samples: int | None = None
    """Online episodes per step and forward pass (default: the preset's)."""
    quiet: bool = False
    """No progress."""
    config: Annotated[DiagnoseConfig, tyro.conf.arg(name="")] = field(default_factory=DiagnoseConfig)
    lock: LockConfig = field(default_factory=LockConfig)
    gym: GymConfig = field(default_factory=GymConfig)
    hammer: HammerConfig = field(default_factory=HammerConfig)


def command_diagnose(argv: Sequence[str]) -> None:
    args = parse(DiagnoseArgs, argv, "hyrlo diagnose")
    report = diagnose(args)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", args.env)
    directory = Path(args.out or f"runs/diagnose-{name}-h{report.horizon}-seed{report.seed}")
    report.write(directory)
    if args.json:
        print(json.dumps(report.as_json(), indent=2))
        return
    out.print(table(report))
    for line in report.verdict:
        out.print(line, highlight=False, markup=False)
    out.print("\nWhat to do next:", highlight=False)
    for line in report.advice:
        out.print(f"  • {line}", highlight=False, markup=False)
    out.print(f"\nreport in {directory / 'report.html'}", highlight=False, soft_wrap=True)


def diagnose(args: DiagnoseArgs) -> DiagnosisReport:
    settings, roll_in, own_horizon = _read_run(args)
    seed = settings.get("seed", 0) if args.seed is None else args.seed
    check_seed(seed)
    if args.max_episodes is not None and args.data is None:
        raise HyrloError("--max-episodes: is for --data with states; leave it out")
    data = None if args.data is None else read_states(args.data, max_episodes=args.max_episodes)
    horizon = next(
        (h for h in (args.horizon, own_horizon, None if data is None else data.horizon) if h is not None), None
    )
    world = _same_world(args, horizon, settings)
    data = world.behaviour_data(seed) if data is None else data
    prepared = world.prepare(data)
    model, config = world.trace_model(), args.config
    if world.traits.eval_episodes < 1000 and config.episodes == DiagnoseConfig.episodes:
        config = replace(config, episodes=SLOW_EPISODES)
    if args.preset is not None:
        check_name(args.preset, PRESETS, "fail preset")
    preset = args.preset or ("robot" if world.traits.motion else None)
    forward = PRESETS[preset] if preset else default_forward(model)
    forward = replace(forward, samples=args.samples) if args.samples is not None else forward
    progress = Progress(enabled=not args.quiet)
    policies = {"roll-in": roll_in} if roll_in is not None else None
    if policies is None:
        if args.out is not None:
            Path(args.out).mkdir(parents=True, exist_ok=True)  # what cannot be written is said before the long work
        policies = forward_passes(model, prepared, forward, config.passes, seed, progress)
    elif action_of(policies["roll-in"], world.spec.observation_size) is None:
        raise HyrloError(
            f"{args.run}: its policy does not take states of {world.spec.observation_size} dimensions; "
            f"give a run that was trained on {args.env}"
        )
    spent = dataclasses.replace(model.ledger)
    busy = nullcontext() if args.quiet else Console(stderr=True).status("comparing roll-in and data …")
    with busy:
        rows = reach(model, prepared, policies, config, seed)
    rolled = Ledger(model.ledger.episodes - spent.episodes, model.ledger.steps - spent.steps)
    return gather(
        args.env, world.spec, data, prepared, rows, config, seed=seed, run=args.run, policies=list(policies),
        forward=spent, roll_out=rolled, notes=_other_data(settings, prepared),
    )  # fmt: skip


def _read_run(args: DiagnoseArgs) -> tuple[dict[str, Any], Policy | None, int | None]:
    """The config, the roll-in and the horizon of the run, where one is given."""
    if args.run is None:
        return {}, None, None
    path = Path(args.run)
    if not path.is_dir():
        raise HyrloError(f"{path}: no such run directory; give the directory of a `fail` or `foobar` run")
    if any(path.glob("seed-*/config.json")):
        raise HyrloError(f"{path}: holds runs of several seeds; give one of them, as {path / 'seed-0'}")
    if args.preset or args.samples:
        raise HyrloError("--preset and --samples: are for forward passes of diagnose's own; leave them or --run out")
    settings = read_config(path, ["algo", "env", "horizon"]) if (path / "config.json").exists() else {}
    if settings and settings["env"] != args.env:
        raise HyrloError(f"{path}: is a run of {settings['env']}, not of {args.env}; give the environment of the run")
    policy, horizon = read_roll_in(path)
    if horizon is not None and args.horizon not in (None, horizon):
        raise HyrloError(f"{path}: is a run with horizon {horizon}, not {args.horizon}; leave out --horizon")
    return settings, policy, horizon


def _same_world(args: DiagnoseArgs, horizon: int | None, settings: dict[str, Any]) -> World:
    """The world of the run, else as the options say."""
    if settings and (args.lock, args.gym, args.hammer) == (LockConfig(), GymConfig(), HammerConfig()):
        return make(args.env, horizon, **settings.get("env_options", {}))
    return _world(args.env, horizon, args.lock, args.gym, args.hammer)


def _other_data(settings: dict[str, Any], prepared: ObservationDataset) -> list[str]:
    """A word of warning if the run was trained on other data."""
    if "data" not in settings:
        return []
    config = settings["config"]
    most = config.get("forward", config).get("offline_samples", len(prepared.at(0)))
    same = prepared.subsample(most, settings["seed"]).fingerprint() == settings["data"]["fingerprint"]
    return [] if same else [f"The run was trained on other data ({settings['data']['source']}) than these."]
