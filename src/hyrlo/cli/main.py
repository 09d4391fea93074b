"""The command line: `hyrlo train | eval | data | reproduce | list`.

Errors are one line, `error: what, where, what to do`, with exit code 2.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro
from rich.markup import escape
from rich.table import Table

from hyrlo.cli.bound import command_bound
from hyrlo.cli.data import _number, _world, command_data, out
from hyrlo.cli.diagnose import command_diagnose
from hyrlo.cli.parsing import first_option, parse
from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.core.files import write_json
from hyrlo.core.policies import Policy
from hyrlo.data.readers import read_states
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs import ENVIRONMENTS, World, check_name, make, traits_of
from hyrlo.envs.gym.world import GymConfig
from hyrlo.envs.hammer import HammerConfig
from hyrlo.envs.lock import LockConfig
from hyrlo.experiments import EXPERIMENTS, reproduce
from hyrlo.runs import plots
from hyrlo.runs.algorithms import ALGORITHMS
from hyrlo.runs.cache import enable_compilation_cache
from hyrlo.runs.directory import check_seeds, read_config, roll_in_of, seed_directories, summarise
from hyrlo.runs.progress import Progress
from hyrlo.runs.render import render_run
from hyrlo.runs.tensorboard import require_tensorboard
from hyrlo.runs.training import Trained, default_preset, evaluate_run, preset_config, train
from hyrlo.theory.discounted import DiscountedConfig

Config = TypeVar("Config")
Args = TypeVar("Args")

HELP = """\
hyrlo: good policies from state-only logs plus online interaction

  hyrlo train ALGO ENV [--data D] [--horizon H] [--seed S | --seeds K] [--preset NAME] [--out DIR] [--resume] [...]
  hyrlo eval DIR [--episodes N] [--json] [--render [FILE.gif]]
  hyrlo diagnose ENV [--data D] [--run DIR]     can the data be reached, are they covered, what to expect
  hyrlo data collect|import|info ...
  hyrlo reproduce EXPERIMENT [--scale smoke|quick|paper] [--seeds K]     figures and tables of the paper
  hyrlo bound [ALGO] --epsilon E | --samples N [...]                     what the paper's theorems guarantee
  hyrlo list                         algorithms, environments, experiments, presets

`hyrlo train foobar lock --horizon 10` is a first run of about a minute. Every command has --help.
"""


@dataclass
class TrainArgs(Generic[Config]):
    """Train an algorithm and keep the run in a directory."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Environment, as in `hyrlo list`."""
    config: Annotated[Config, tyro.conf.arg(name="")]
    data: str | None = None
    """Offline data: states (npz, CSV, parquet, `minari:<dataset-id>`), or for hyq and rlpd tuples (npz). Without it, the locks
    generate the paper's data from the seed."""
    max_episodes: int | None = None
    """Read the first N episodes of the data only (Minari, and trajectories in npz)."""
    roll_in: str | None = None
    """psdp-trace, cpi, distil: run directory of the roll-in policy (a `fail` run, or a `foobar` run for its forward policy).
    Without it, the roll-in of the first two is uniform."""
    horizon: int | None = None
    """Steps of an episode; by default that of the data, else 100 for the lock, 10 for the inadmissible ones and the time
    limit of gym:<id>."""
    seed: int = 0
    """First (or only) seed: of the behaviour data and of training."""
    seeds: int | None = None
    """Train this many seeds, seed … seed + K − 1, each in a directory of its own."""
    preset: str | None = None
    """Defaults of the options below: `paper`, `fast`, `lean`, `model` or `robot`; by default `fast`, for gym: `model`, for
    hammer-binary `robot`."""
    out: str | None = None
    """Run directory (default: runs/ALGO-ENV-hH-seedS)."""
    resume: bool = False
    """Continue a run that was stopped; the final policy is the same, bit for bit."""
    eval_episodes: int | None = None
    """Episodes of the final evaluation (default: 1000; for gym: 100)."""
    curve_episodes: int | None = None
    """Episodes of each evaluation along the curve (default: 200; for gym: 20)."""
    quiet: bool = False
    """No progress."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard, into `tensorboard` in the run directory (needs `hyrlo[tensorboard]`)."""
    lock: LockConfig = field(default_factory=LockConfig)
    gym: GymConfig = field(default_factory=GymConfig)
    hammer: HammerConfig = field(default_factory=HammerConfig)
    discounted: DiscountedConfig = field(default_factory=DiscountedConfig)


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
    render: Annotated[str | None, tyro.conf.arg(metavar="[FILE.gif]")] = None
    """Write one episode, that of the seed, as a GIF; without a name, `episode.gif` in the run directory."""


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
        print(f"usage: hyrlo train ALGO ENV [options]\nALGO: {', '.join(ALGORITHMS)}; `hyrlo train ALGO --help`")
        if argv and argv[0] in ("-h", "--help"):
            return
        raise HyrloError("train: give an algorithm and an environment, e.g. `hyrlo train foobar lock`")
    algo, rest = argv[0], argv[1:]
    env = next((word for word in rest if word in ENVIRONMENTS or word.startswith("gym:")), "lock")
    preset = first_option(rest, "--preset") or default_preset(algo, traits_of(env))
    config = preset_config(algo, preset)
    kind: Any = TrainArgs[type(config)]  # type: ignore[misc]
    args = parse(kind, rest, f"hyrlo train {algo}", default_config=config)
    check_seed(args.seed)
    if args.seeds is not None and args.seeds < 1:
        raise HyrloError(f"--seeds is {args.seeds}; give at least 1")
    for name in ("eval_episodes", "curve_episodes"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise HyrloError(f"--{name.replace('_', '-')} is {getattr(args, name)}; give at least 1")
    if args.tensorboard:
        require_tensorboard()
    if args.max_episodes is not None and (args.data is None or ALGORITHMS[algo].learns_from == "transitions"):
        raise HyrloError("--max-episodes: is for --data with states; leave it out")
    data = None if args.data is None else _load(args.data, ALGORITHMS[algo].learns_from, args.max_episodes)
    from_data = data.horizon if data is not None and traits_of(args.env).horizon_from_data else None
    horizon = from_data if args.horizon is None else args.horizon
    world = _world(args.env, horizon, args.lock, args.gym, args.hammer, args.discounted)
    if args.roll_in and ALGORITHMS[algo].learns_from != "roll-in":
        raise HyrloError(f"--roll-in: {algo} has no use for a roll-in; it is for psdp-trace, cpi and distil")
    if algo == "distil" and not args.roll_in:
        raise HyrloError("distil does what a roll-in does; give --roll-in, the directory of a `fail` or `foobar` run")
    if args.roll_in and data is not None:
        raise HyrloError(f"--data: {algo} learns from the roll-in alone; leave it or --roll-in out")
    source = _roll_in(Path(args.roll_in), world) if args.roll_in else data

    def one(seed: int, directory: Path, label: str) -> Trained:
        progress = Progress(enabled=not args.quiet, label=label)
        if args.resume and not args.quiet and not (directory / "config.json").exists():
            print(f"{label}no run in {directory} yet: begins anew", file=sys.stderr)
        return train(
            algo, world, source, config=args.config, seed=seed, out=directory, resume=args.resume,
            curve_episodes=args.curve_episodes, eval_episodes=args.eval_episodes, progress=progress,
            tensorboard=args.tensorboard, command=shlex.join(["hyrlo", "train", *argv]),
        )  # fmt: skip

    base = f"runs/{algo}-{re.sub(r'[^A-Za-z0-9._-]+', '-', args.env)}-h{world.spec.horizon}"
    if args.seeds is None:
        directory = Path(args.out or f"{base}-seed{args.seed}")
        _print_result(one(args.seed, directory, "").result, directory)
        return
    directory = Path(args.out or f"{base}-seeds{args.seeds}")
    seeds = range(args.seed, args.seed + args.seeds)
    check_seed(seeds[-1], "the last of --seeds")
    check_seeds(directory, seeds)
    runs = {s: one(s, directory / f"seed-{s}", f"seed {s}  ") for s in seeds}
    summary = summarise([run.result for run in runs.values()])
    plots.curve(
        directory / "curve.png", [r.metrics for r in runs.values()], f"{algo} on {args.env}, H = {world.spec.horizon}"
    )
    write_json(directory / "summary.json", summary)
    _print_summary(summary, directory)


def _roll_in(path: Path, world: World) -> Policy:
    """Of a run in a world with the same actions; that states fit, `train` sees."""
    policy = roll_in_of(path)
    if (path / "config.json").exists():
        run = read_config(path)
        there, here = make(run["env"], run["horizon"], **run["env_options"]).spec, world.spec
        if there.actions != here.actions:
            raise HyrloError(
                f"--roll-in: {path} has {there.actions} actions, {world.name} {here.actions}; give another"
            )
    return policy


def _load(path: str, learns_from: str, max_episodes: int | None) -> ObservationDataset | TransitionDataset:
    if learns_from == "transitions":
        return TransitionDataset.load(path)
    return read_states(path, max_episodes=max_episodes)


def command_eval(argv: Sequence[str]) -> None:
    args = parse(EvalArgs, _name_render(argv), "hyrlo eval")
    if args.episodes < 1:
        raise HyrloError(f"--episodes is {args.episodes}; give at least 1")
    check_seed(args.seed)
    directories, rows, shown = seed_directories(Path(args.dir)), [], []
    if args.render and len(directories) > 1:
        raise HyrloError(f"--render: {args.dir} holds several seeds; give the directory of one, or no file name")
    for directory in directories:
        if args.render is not None:
            shown.append(render_run(directory, args.render or None, args.seed))
        result = evaluate_run(directory, args.episodes, args.seed)
        about = {k: v for k, v in read_config(directory).items() if k in ("algo", "env", "seed", "horizon")}
        rows.append({**about, **result._asdict(), **({"render": str(shown[-1].file)} if args.json and shown else {})})
    if args.json:
        print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
        return
    table = Table()
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_number(v) for v in row.values()))
    out.print(table)
    for file, frames, episode_return in shown:
        out.print(
            f"episode of {frames - 1} steps, return {episode_return:.3f}, in {file}", highlight=False, soft_wrap=True
        )


def _name_render(argv: Sequence[str]) -> list[str]:
    """`--render` may come without a file: the empty name stands for the default."""
    named = list(argv)
    for here in (i for i, word in enumerate(argv) if word == "--render"):
        following = argv[here + 1] if here + 1 < len(argv) else "-"
        if following.startswith("-") or Path(following).is_dir():
            named[here] = "--render="
    return named


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
        ("environments", [(name, e.summary, "") for name, e in ENVIRONMENTS.items()]),
        ("experiments", [(name, e.TITLE, "") for name, e in EXPERIMENTS.items()]),
        (
            "presets",
            [
                ("paper", "the sizes of the paper's table", ""),
                ("fast", "the default: solves the lock in the least time", ""),
                ("lean", "the fewest episodes that still solve it", ""),
                ("model", "the default for gym: a forward pass by a learned model", ""),
                ("robot", "the default for hammer-binary: many joints, of which positions are observed", ""),
            ],
        ),
    ):
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for row in rows:
            table.add_row(*(escape(text) for text in row))
        out.print(table, "")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "train": command_train,
    "eval": command_eval,
    "diagnose": command_diagnose,
    "data": command_data,
    "reproduce": command_reproduce,
    "bound": command_bound,
    "list": command_list,
}


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
        if argv[0] not in ("bound", "list"):  # these compile nothing
            enable_compilation_cache()
        COMMANDS[argv[0]](argv[1:])
        return 0
    except HyrloError as error:
        return _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        then = ", then --resume" if argv[0] == "train" else ""
        return _fail(f"{where}{error.strerror or error}; check the path, permissions and free space{then}")
    except KeyboardInterrupt:
        print("stopped; the same command with --resume continues", file=sys.stderr)
        return 130
    except SystemExit as stop:
        return int(stop.code or 0)


def _fail(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2


def run() -> None:
    sys.path.append("")  # the current folder, where the MODULE of gym:MODULE:ID is likely to lie
    sys.exit(main())
