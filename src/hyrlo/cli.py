"""The command line: `hyrlo train | eval | data | reproduce | list`.

Errors are one line, `error: what, where, what to do`, with exit code 2.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from hyrlo import plots
from hyrlo.algorithms import ALGORITHMS
from hyrlo.data import ObservationDataset, describe_steps
from hyrlo.envs import ENVIRONMENTS, World, check_name, make
from hyrlo.envs.lock import LockConfig
from hyrlo.errors import HyrloError
from hyrlo.experiments import EXPERIMENTS, reproduce
from hyrlo.files import read_json, write_json
from hyrlo.parsing import first_option, parse
from hyrlo.progress import Progress
from hyrlo.runs import seed_directories, summarise
from hyrlo.serialize import load_policy
from hyrlo.training import DEFAULT_PRESET, Trained, evaluate_run, preset_config, train
from hyrlo.transitions import TransitionDataset, has_actions_and_rewards, load_states

Config = TypeVar("Config")
Args = TypeVar("Args")
out = Console()

HELP = """\
hyrlo: good policies from state-only logs plus online interaction

  hyrlo train ALGO ENV [--data D] [--horizon H] [--seed S | --seeds K] [--preset NAME] [--out DIR] [--resume] [...]
  hyrlo eval DIR [--episodes N] [--json]
  hyrlo data collect|import|info ...
  hyrlo reproduce EXPERIMENT [--scale smoke|quick|paper] [--seeds K]     figures and tables of the paper
  hyrlo list                         algorithms, environments, experiments, presets

`hyrlo train foobar lock --horizon 10` is a first run of under a minute. Every command has --help.
"""


@dataclass
class TrainArgs(Generic[Config]):
    """Train an algorithm and keep the run in a directory."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Environment, as in `hyrlo list`."""
    config: Annotated[Config, tyro.conf.arg(name="")]
    data: str | None = None
    """Offline data (npz): states, or for hyq tuples. Without it, the locks generate the paper's data from the seed."""
    roll_in: str | None = None
    """psdp-trace: run directory of the roll-in policy (a `fail` run). Without it, the roll-in is uniform."""
    horizon: int | None = None
    """Steps of an episode; by default that of the data, else 100 for the lock and 10 for the inadmissible ones."""
    seed: int = 0
    """First (or only) seed: of the behaviour data and of training."""
    seeds: int | None = None
    """Train this many seeds, seed … seed + K − 1, each in a directory of its own."""
    preset: str = DEFAULT_PRESET
    """`paper`, `fast` or `lean`: defaults of the options below."""
    out: str | None = None
    """Run directory (default: runs/ALGO-ENV-hH-seedS)."""
    resume: bool = False
    """Continue a run that was stopped; the final policy is the same, bit for bit."""
    eval_episodes: int = 1000
    """Episodes of the final evaluation."""
    curve_episodes: int = 200
    """Episodes of each evaluation along the curve."""
    quiet: bool = False
    """No progress."""
    lock: LockConfig = field(default_factory=LockConfig)


@dataclass
class EvalArgs:
    """Evaluate the policy of a run (or of each seed of a run) on fresh episodes."""

    dir: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Run directory."""
    episodes: int = 1000
    seed: int = 0
    """Seed of the evaluation episodes."""
    json: bool = False
    """Print JSON for programs."""


@dataclass
class CollectArgs:
    """Write states of the paper's behaviour data as npz `observations (N, H+1, obs)`."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    out: str
    """The npz file to write."""
    horizon: int | None = None
    """Steps of an episode; by default 100, and 10 for the inadmissible locks."""
    episodes: int = 2000
    """Episodes of the ε-greedy behaviour policy; for the inadmissible locks, states of each step."""
    seed: int = 0
    epsilon: float | None = None
    """Probability of a random action at each step (default 1/H)."""
    transitions: bool = False
    """Also write `actions (N, H)` and `rewards (N, H)`, for canonical hybrid RL; the states are the same."""
    lock: LockConfig = field(default_factory=LockConfig)


@dataclass
class ImportArgs:
    """Turn an npz file with arrays of other names into hyrlo's layout, checked."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    out: str
    """The npz file to write."""
    observations: str = "observations"
    """Name of the array of states, (N, H+1, *obs) or (M, *obs)."""
    timesteps: str = "timesteps"
    """Name of the integer array of timesteps (M,), for unpaired states."""


@dataclass
class InfoArgs:
    """What is in a data file: states per step, ranges, duplicates, non-finite values, constant dimensions."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    all: bool = False
    """Show every step, however many."""


@dataclass
class ReproduceArgs:
    """Run what is missing of an experiment and make its figures and tables. The same command continues where it stopped."""

    experiment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")]
    """One of those in `hyrlo list`."""
    scale: Literal["smoke", "quick", "paper"] = "quick"
    """`smoke`: does it run, a minute; `quick`: smaller than the paper; `paper`: its sizes and seeds, hours on two cores."""
    seeds: int | None = None
    """How many seeds, from 0 on (default: the scale's)."""
    out: str = "runs/reproduce"
    """Runs go to OUT/SCALE/runs, pictures and tables to OUT/SCALE/EXPERIMENT."""
    jobs: int = 1
    """Runs at a time; more than one in processes of their own."""
    report_only: bool = False
    """Train nothing; make figures and tables from the stored runs, as far as they go."""


def command_train(argv: Sequence[str]) -> None:
    if not argv or argv[0].startswith("-"):
        out.print(f"usage: hyrlo train ALGO ENV [options]\nALGO: {', '.join(ALGORITHMS)}; `hyrlo train ALGO --help`")
        if argv and argv[0] in ("-h", "--help"):
            return
        raise HyrloError("train: give an algorithm and an environment, e.g. `hyrlo train foobar lock`")
    algo, rest = argv[0], argv[1:]
    config = preset_config(algo, first_option(rest, "--preset") or DEFAULT_PRESET)
    kind: Any = TrainArgs[type(config)]  # type: ignore[misc]
    args = parse(kind, rest, f"hyrlo train {algo}", default_config=config)
    if args.seeds is not None and args.seeds < 1:
        raise HyrloError(f"--seeds is {args.seeds}; give at least 1")
    for name in ("eval_episodes", "curve_episodes"):
        if getattr(args, name) < 1:
            raise HyrloError(f"--{name.replace('_', '-')} is {getattr(args, name)}; give at least 1")
    data = None if args.data is None else _load(args.data, ALGORITHMS[algo].learns_from)
    from_data = None if data is None else data.horizon
    world = _world(args.env, from_data if args.horizon is None else args.horizon, args.lock)
    if args.roll_in and ALGORITHMS[algo].learns_from != "roll-in":
        raise HyrloError(f"--roll-in: {algo} has no use for a roll-in; it is for psdp-trace")
    source = load_policy(args.roll_in) if args.roll_in else data

    def one(seed: int, directory: Path, label: str) -> Trained:
        progress = Progress(enabled=not args.quiet, label=label)
        return train(
            algo, world, source, config=args.config, seed=seed, out=directory, resume=args.resume,
            curve_episodes=args.curve_episodes, eval_episodes=args.eval_episodes, progress=progress,
        )  # fmt: skip

    base = f"runs/{algo}-{args.env}-h{world.spec.horizon}"
    if args.seeds is None:
        directory = Path(args.out or f"{base}-seed{args.seed}")
        _print_result(one(args.seed, directory, "").result, directory)
        return
    directory = Path(args.out or f"{base}-seeds{args.seeds}")
    if (directory / "config.json").exists():
        raise HyrloError(f"{directory}: already holds a run of a single seed; give another --out")
    runs = {s: one(s, directory / f"seed-{s}", f"seed {s}  ") for s in range(args.seed, args.seed + args.seeds)}
    summary = summarise([run.result for run in runs.values()])
    plots.curve(
        directory / "curve.png", [r.metrics for r in runs.values()], f"{algo} on {args.env}, H = {world.spec.horizon}"
    )
    write_json(directory / "summary.json", summary)
    _print_summary(summary, directory)


def _load(path: str, learns_from: str) -> ObservationDataset | TransitionDataset:
    return TransitionDataset.load(path) if learns_from == "transitions" else load_states(path)


def command_eval(argv: Sequence[str]) -> None:
    args = parse(EvalArgs, argv, "hyrlo eval")
    if args.episodes < 1:
        raise HyrloError(f"--episodes is {args.episodes}; give at least 1")
    rows = []
    for directory in seed_directories(Path(args.dir)):
        result = evaluate_run(directory, args.episodes, args.seed)
        about = {
            k: v for k, v in read_json(directory / "config.json").items() if k in ("algo", "env", "seed", "horizon")
        }
        rows.append({**about, **result._asdict()})
    if args.json:
        print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
        return
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(_number(v) for v in row.values()))
    out.print(table)


def command_data(argv: Sequence[str]) -> None:
    verbs: dict[str, Callable[[Sequence[str]], None]] = {
        "collect": _data_collect,
        "import": _data_import,
        "info": _data_info,
    }
    if not argv or argv[0] in ("-h", "--help"):
        out.print("usage: hyrlo data collect|import|info ...; each has --help", markup=False)
        if not argv:
            raise HyrloError("data: give one of collect, import, info")
        return
    check_name(argv[0], verbs, "data command")
    verbs[argv[0]](argv[1:])


def _data_collect(argv: Sequence[str]) -> None:
    args = parse(CollectArgs, argv, "hyrlo data collect")
    if args.episodes < 1:
        raise HyrloError(f"--episodes is {args.episodes}; give at least 1")
    world = _world(args.env, args.horizon, args.lock)
    if args.transitions:
        data = world.behaviour_transitions(args.seed, args.episodes, args.epsilon)
        data.save(args.out)
        out.print(
            f"wrote {args.out}: {args.episodes * data.horizon:,} transitions (states, actions, rewards), timesteps "
            f"0 … {data.horizon - 1}, {data.observation_size} dimensions"
        )
        return
    _write_data(world.behaviour_data(args.seed, args.episodes, args.epsilon), args.out)


def _data_import(argv: Sequence[str]) -> None:
    args = parse(ImportArgs, argv, "hyrlo data import")
    _write_data(ObservationDataset.load(args.source, args.observations, args.timesteps), args.out)


def _write_data(data: ObservationDataset, path: str) -> None:
    data.save(path)
    states = sum(len(s) for s in data.steps)
    out.print(f"wrote {path}: {states:,} states, timesteps 0 … {data.horizon}, {data.observation_size} dimensions")


def _data_info(argv: Sequence[str]) -> None:
    args = parse(InfoArgs, argv, "hyrlo data info")
    data = load_states(args.source, check_finite=False)
    rows = describe_steps(data)
    shown = rows if args.all or len(rows) <= 24 else [*rows[:10], None, *rows[-10:]]
    table = Table(
        "timestep", "states", "min", "mean", "max", "duplicates", "non-finite", "constant dims", title=args.source
    )
    for row in shown:
        table.add_row(*(["…"] * 8 if row is None else [_number(v) for v in row.values()]))
    out.print(table)
    out.print(
        f"horizon {data.horizon}, {data.observation_size} dimensions, {sum(r['states'] for r in rows):,} states, "
        f"{sum(r['duplicates'] for r in rows):,} duplicates, {sum(r['non_finite'] for r in rows):,} non-finite values"
    )
    if has_actions_and_rewards(args.source):
        out.print("has actions and rewards too; algorithms that learn from states do not use them")
    if any(r["non_finite"] for r in rows):
        raise HyrloError(
            f"{args.source}: {data.first_non_finite()}; remove or repair non-finite values before training"
        )


def command_reproduce(argv: Sequence[str]) -> None:
    args = parse(ReproduceArgs, argv, "hyrlo reproduce")
    check_name(args.experiment, EXPERIMENTS, "experiment")
    for name in ("seeds", "jobs"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise HyrloError(f"--{name} is {value}; give at least 1")
    table, directory = reproduce(args.experiment, args.scale, args.seeds, args.out, args.jobs, args.report_only)
    print(table)
    out.print(f"pictures and tables in {directory}", highlight=False, soft_wrap=True)


def command_list(argv: Sequence[str]) -> None:
    if argv and argv[0] not in ("-h", "--help"):
        raise HyrloError(f"list takes no arguments, got {argv[0]!r}")
    if argv:
        out.print("usage: hyrlo list", highlight=False)
    for title, rows in (
        ("algorithms", [(a.name, a.summary, a.access + " model") for a in ALGORITHMS.values()]),
        ("environments", [(name, text, "") for name, text in ENVIRONMENTS.items()]),
        ("experiments", [(name, e.TITLE, "") for name, e in EXPERIMENTS.items()]),
        (
            "presets",
            [
                ("paper", "the sizes of the paper's table", ""),
                ("fast", "the default: solves the lock in the least time", ""),
                ("lean", "the fewest episodes that still solve it", ""),
            ],
        ),
    ):
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for row in rows:
            table.add_row(*row)
        out.print(table, "")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "train": command_train,
    "eval": command_eval,
    "data": command_data,
    "reproduce": command_reproduce,
    "list": command_list,
}


def _world(name: str, horizon: int | None, options: LockConfig) -> World:
    return make(name, horizon, **dataclasses.asdict(options))


def _number(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _print_result(result: dict[str, Any], directory: Path) -> None:
    success = "" if result["success_rate"] is None else f"success {result['success_rate']:.3f}, "
    out.print(
        f"{result['algo']} on {result['env']}, H = {result['horizon']}: {success}return {result['return_mean']:.3f} "
        f"({result['eval_episodes']:,} episodes), after {result['episodes']:,} training episodes, "
        f"{result['steps']:,} steps, {result['wall_seconds']:.0f} s",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    out.print(f"run in {directory}, picture in {directory / 'curve.png'}", highlight=False, soft_wrap=True)


def _print_summary(summary: dict[str, Any], directory: Path) -> None:
    table = Table(
        "", "median", "25 %", "75 %", title=f"{summary['algo']} on {summary['env']}, {len(summary['seeds'])} seeds"
    )
    for name, value in summary.items():
        if isinstance(value, dict):
            table.add_row(name, *(_number(value[q]) for q in ("median", "q25", "q75")))
    out.print(table)
    out.print(f"runs in {directory}, picture in {directory / 'curve.png'}", highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it worked, 2 with one line on stderr if not."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print(HELP, end="")
            return 0
        if argv[0] == "--version":
            print(__import__("hyrlo").__version__)
            return 0
        check_name(argv[0], COMMANDS, "command")
        COMMANDS[argv[0]](argv[1:])
        return 0
    except HyrloError as error:
        return _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}; check the path, permissions and free space, then --resume")
    except KeyboardInterrupt:
        print("stopped; the same command with --resume continues", file=sys.stderr)
        return 130
    except SystemExit as stop:
        return int(stop.code or 0)


def _fail(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2


def run() -> None:
    sys.exit(main())
