"""`hyrlo train ALGO ENV`.

The options are read twice. The first time gives the environment, the preset and the choices, which decide the config's
type; the second time reads all options, so that `--help` shows those that apply.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from hyrlo.backward.variants import IMPROVE, STATIONARY
from hyrlo.cli.config_file import print_format, printed, with_config_file
from hyrlo.cli.help import count, usual
from hyrlo.cli.output import number, out, say
from hyrlo.cli.parsing import (
    HELP,
    environment_options,
    extended,
    first_positional,
    parse,
    parse_known,
    unknown_options,
    with_environment,
)
from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.core.files import write_json
from hyrlo.core.names import check_name
from hyrlo.core.plain import visible
from hyrlo.core.ranges import Count, check_value
from hyrlo.core.variants import PRESETS, Choice
from hyrlo.data.readers import read_states, read_transitions
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs import World, make
from hyrlo.forward.variants import ESTIMATORS
from hyrlo.forward.witness import DISCRIMINATORS
from hyrlo.runs import plots
from hyrlo.runs.algorithms import ALGORITHMS, Algorithm
from hyrlo.runs.cache import enable_compilation_cache
from hyrlo.runs.progress import Progress
from hyrlo.runs.seeds import check_seeds, summarise
from hyrlo.runs.tensorboard import require_tensorboard
from hyrlo.runs.training import Trained, default_horizon, train
from hyrlo.runs.training import config as configure

EXAMPLE_ENV = "lock"


@dataclass(kw_only=True)
class TrainArgs:
    """Train an algorithm and keep the run in a directory."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Environment, as in `hyrlo list`."""
    horizon: int | None = None
    """Steps of an episode (default: those of the data, else the environment's)."""
    seed: int = 0
    """First (or only) seed, of behaviour data and training."""
    seeds: int | None = None
    """Train this many seeds, each in a directory of its own."""
    preset: Annotated[str | None, tyro.conf.arg(metavar="|".join(PRESETS))] = None
    """A fixed budget (default: as many episodes as needed)."""
    out: str | None = None
    """Run directory (default: runs/ALGO-ENV-hH-seedS)."""
    resume: bool = False
    """Continue a stopped run; the policy is the same, bit for bit."""
    eval_episodes: int | None = None
    """Episodes of the final evaluation."""
    curve_episodes: int | None = None
    """Episodes of each evaluation along the curve."""
    quiet: bool = False
    """Show no progress."""
    tensorboard: bool = False
    """Also write metrics for TensorBoard (needs hyrlo[tensorboard])."""
    cache: bool = True
    """Keep compiled programs for later runs."""


@dataclass(kw_only=True)
class AnywayArgs:
    """For runs that were moved. Not in the short help: the error that asks for it names it."""

    anyway: bool = False
    """With --resume: continue with other code, libraries, cores or machine as well; the policy may be another one."""


@dataclass(kw_only=True)
class DataArgs:
    """For algorithms that learn from offline data."""

    data: str | None = None
    """Offline data (npz, CSV, parquet, minari:<id>); the locks generate their own."""
    max_episodes: int | None = None
    """Read only the first N episodes of the data."""


@dataclass(kw_only=True)
class RollInArgs:
    """For algorithms that learn from a roll-in."""

    roll_in: str | None = None
    """Directory of a `fail` or `foobar` run (default: uniform actions)."""


@dataclass(kw_only=True)
class ForwardArgs:
    """For algorithms with a forward pass."""

    forward: Annotated[str | None, tyro.conf.arg(metavar="|".join(ESTIMATORS))] = None
    """Estimator of the forward pass (default: chosen by measuring)."""
    discriminator: Annotated[str | None, tyro.conf.arg(metavar="|".join(DISCRIMINATORS))] = None
    """Discriminators of the forward pass (default: mmd)."""


@dataclass(kw_only=True)
class ImproveArgs:
    """For FOOBAR."""

    improve: Annotated[str | None, tyro.conf.arg(metavar="|".join(IMPROVE))] = None
    """Backward pass (default: what suits the forward pass)."""


@dataclass(kw_only=True)
class StationaryArgs:
    """For CPI."""

    improve: Annotated[str | None, tyro.conf.arg(metavar="|".join(STATIONARY))] = None
    """SAC, or Algorithm 5 (default: sac; cpi for preset paper)."""


@dataclass(kw_only=True)
class ExploreArgs:
    """For FOOBAR."""

    explore: float | None = None
    """Share of the roll-ins that explore (default: none)."""


MIXINS = {"forward": ForwardArgs, "improve": ImproveArgs, "explore": ExploreArgs}


def command_train(argv: Sequence[str]) -> None:
    printing, argv = print_format(with_config_file(argv, _run_options))
    if not argv or argv[0].startswith("-"):
        print(f"usage: hyrlo train ALGO ENV [options]\nALGO: {', '.join(ALGORITHMS)}; `hyrlo train ALGO ENV --help`")
        if argv and argv[0] in HELP:
            return
        raise HyrloError("train: give an algorithm and an environment, e.g. `hyrlo train foobar lock`")
    algorithm = find_algorithm(argv[0])
    helping = any(word in HELP for word in argv)
    first = _first_look(algorithm, argv[1:], helping)
    if not helping:
        enable_compilation_cache(first.cache)  # before the world compiles anything
    data = None if helping else _read_data(algorithm, first)
    world = None if helping else _world(first, data)
    config = _config(algorithm, first, world, _tuned(algorithm, first.env, argv[1:]))
    args = _all_options(algorithm, argv[1:], first.env, config, helping)
    _check(args)
    command = shlex.join(["hyrlo", "train", *argv])
    assert world is not None
    if printing is not None:
        print(printed(algorithm, args, world.spec.horizon, printing))
        return
    if args.seeds is None:
        directory = Path(args.out or f"{_base(algorithm, world)}-seed{args.seed}")
        result = _train(algorithm, world, data, args, args.seed, directory, "", command).result
        _print_result(result, directory, warnings=args.quiet)
    else:
        _train_seeds(algorithm, world, data, args, command)


def find_algorithm(name: str) -> Algorithm:
    check_name(name, ALGORITHMS, "algorithm")
    return ALGORITHMS[name]


def _kind(algorithm: Algorithm, short: bool = False) -> type[TrainArgs]:
    """The options of an algorithm, without those of its config and of the environment; `short` is for the short help."""
    mixins: list[type] = [mixin for name, mixin in MIXINS.items() if name in algorithm.choices]
    if algorithm.choices == ("improve",):
        mixins = [StationaryArgs]
    sources: dict[str, type] = {"states": DataArgs, "transitions": DataArgs, "roll-in": RollInArgs}
    before = [sources[algorithm.learns_from]] if algorithm.learns_from in sources else []
    return extended(TrainArgs, [], mixins if short else [*mixins, AnywayArgs], before)


def _run_options(algorithm: Algorithm, env: str) -> type[TrainArgs]:
    return with_environment(_kind(algorithm), env or None)


def _first_look(algorithm: Algorithm, argv: Sequence[str], helping: bool) -> Any:
    """All but the config's options. Help without an environment is that of the lock."""
    prog, kind = f"hyrlo train {algorithm.name}", _kind(algorithm)
    env = first_positional(argv, kind, algorithm.config(Choice()))
    if env is None and not helping:
        raise HyrloError(f"{prog}: give an environment, e.g. `{prog} {EXAMPLE_ENV}`; see `hyrlo list`")
    _check_misplaced(algorithm, argv)
    env = env or EXAMPLE_ENV
    return parse_known(with_environment(kind, env, argv), _env_first(env, argv), prog)


def _env_first(env: str, argv: Sequence[str]) -> list[str]:
    """The environment in front: after an option that is not known yet, it could be taken for the option's value."""
    here = list(argv).index(env) if env in argv else len(argv)
    return [env, *argv[:here], *argv[here + 1 :]]


def _check_misplaced(algorithm: Algorithm, argv: Sequence[str]) -> None:
    """Options of other algorithms that are easily mistaken: say what to use instead."""
    given = {word.split("=")[0] for word in argv}
    name, kind = algorithm.name, algorithm.learns_from
    if "--roll-in" in given and kind != "roll-in":
        raise HyrloError(f"--roll-in: {name} takes no roll-in; it is for psdp-trace, cpi and distil")
    if "--data" in given and kind == "roll-in":
        raise HyrloError(f"--data: {name} learns from a roll-in, not from states; give --roll-in, or use foobar")
    if "--data" in given and kind == "nothing":
        raise HyrloError(f"--data: {name} learns from the world alone; leave it out")


def _all_options(algorithm: Algorithm, argv: Sequence[str], env: str, config: Any, helping: bool) -> Any:
    about = f"{algorithm.summary}. Options that apply to {env}:"
    if helping and "--help-all" not in argv:
        everything, config = count(config), usual(config)
        about += f" ({everything - count(config)} more with --help-all)" if count(config) < everything else ""
    given, argv = argv, ["--help" if word == "--help-all" else word for word in _env_first(env, argv)]
    fields: list[Any] = [("config", Annotated[type(config), tyro.conf.arg(name="")], field(default=config))]
    short = helping and "--help-all" not in given
    kind = extended(with_environment(_kind(algorithm, short), env), fields)
    return parse(kind, argv, f"hyrlo train {algorithm.name} {env}", about)


def _tuned(algorithm: Algorithm, env: str, argv: Sequence[str]) -> list[str]:
    """The options that are not those of every run: they belong to the config."""
    return unknown_options(with_environment(_kind(algorithm), env), _env_first(env, argv), "hyrlo train")


def _config(algorithm: Algorithm, args: Any, world: World | None, tuned: Sequence[str]) -> Any:
    choices: dict[str, Any] = {
        name: getattr(args, name, None) for name in ("preset", "forward", "improve", "discriminator", "explore")
    }
    if world is not None:
        return configure(algorithm.name, world=world, tuned=tuned, **choices)
    try:
        world = make(args.env, args.horizon, **environment_options(args))
    except HyrloError:  # help works without the environment, too
        return algorithm.config(Choice(**choices))
    return configure(algorithm.name, world=world, tuned=tuned, **choices)


def _read_data(algorithm: Algorithm, args: Any) -> ObservationDataset | TransitionDataset | None:
    path, most = getattr(args, "data", None), getattr(args, "max_episodes", None)
    if most is not None and path is None:
        raise HyrloError("--max-episodes: is for --data; leave it out")
    if path is None:
        return None
    if algorithm.learns_from == "transitions":
        return read_transitions(path, most)
    return read_states(path, max_episodes=most)


def _world(args: Any, data: ObservationDataset | TransitionDataset | None) -> World:
    horizon = default_horizon(args.env, data) if args.horizon is None else args.horizon
    return make(args.env, horizon, **environment_options(args))


def _check(args: Any) -> None:
    check_seed(args.seed)
    for name in ("seeds", "eval_episodes", "curve_episodes"):
        value = getattr(args, name)
        check_value(f"--{name.replace('_', '-')}", value, Count | None)
    if args.tensorboard:
        require_tensorboard()


def _base(algorithm: Algorithm, world: World) -> str:
    return f"runs/{algorithm.name}-{re.sub(r'[^A-Za-z0-9._-]+', '-', world.name)}-h{world.spec.horizon}"


def _train(
    algorithm: Algorithm, world: World, data: Any, args: Any, seed: int, directory: Path, label: str, command: str
) -> Trained:
    if args.resume and not args.quiet and not (directory / "config.json").exists():
        print(visible(f"{label}no run in {directory} yet: starts a new one"), file=sys.stderr)
    return train(
        algorithm.name, world, data, roll_in=getattr(args, "roll_in", None), config=args.config, seed=seed,
        out=directory, resume=args.resume, anyway=args.anyway,
        curve_episodes=args.curve_episodes, eval_episodes=args.eval_episodes,
        progress=Progress(enabled=not args.quiet, label=label), tensorboard=args.tensorboard, command=command,
        cache=args.cache,
    )  # fmt: skip


def _train_seeds(algorithm: Algorithm, world: World, data: Any, args: Any, command: str) -> None:
    directory = Path(args.out or f"{_base(algorithm, world)}-seeds{args.seeds}")
    seeds = range(args.seed, args.seed + args.seeds)
    check_seed(seeds[-1], "the last of --seeds")
    check_seeds(directory, seeds)
    runs = [_train(algorithm, world, data, args, s, directory / f"seed-{s}", f"seed {s}  ", command) for s in seeds]
    summary = summarise([run.result for run in runs])
    title = f"{algorithm.name} on {world.name}, H = {world.spec.horizon}"
    plots.curve(directory / "curve.png", [run.metrics for run in runs], title)
    write_json(directory / "summary.json", summary)
    _print_summary(summary, directory)


def _print_result(result: dict[str, Any], directory: Path, warnings: bool) -> None:
    success = "" if result["success_rate"] is None else f"success {result['success_rate']:.3f}, "
    say(
        f"{result['algo']} on {result['env']}, H = {result['horizon']}: {success}return {result['return_mean']:.3f} "
        f"({result['eval_episodes']:,} episodes), after {result['episodes']:,} training episodes, "
        f"{result['steps']:,} steps, {result['wall_seconds']:.0f} s"
    )
    for warning in result.get("warnings", []) if warnings else []:  # else they have been said
        say(f"warning: {warning['what']}")
    say(f"run in {directory}, picture in {directory / 'curve.png'}")


def _print_summary(summary: dict[str, Any], directory: Path) -> None:
    table = Table(
        "", "median", "25 %", "75 %", title=f"{summary['algo']} on {summary['env']}, {len(summary['seeds'])} seeds"
    )
    for name, value in summary.items():
        if isinstance(value, dict):
            table.add_row(name, *(number(value[q]) for q in ("median", "q25", "q75")))
    out.print(table)
    say(f"runs in {directory}, picture in {directory / 'curve.png'}")
