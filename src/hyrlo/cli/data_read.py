"""`hyrlo data import | info`: states of any source, and what the columns of tables mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from hyrlo.cli.output import number, out, say
from hyrlo.cli.parsing import parse
from hyrlo.core.errors import HyrloError
from hyrlo.data.describe import describe_dimensions
from hyrlo.data.formats import MINARI, OBSERVATIONS, TIMESTEPS
from hyrlo.data.readers import read_states
from hyrlo.data.states import ObservationDataset, describe_steps
from hyrlo.data.transitions import has_actions_and_rewards
from hyrlo.runs.state_plot import plot_states

ROWS = 24
"""A table that is longer shows its beginning and its end."""


@dataclass
class SourceArgs:
    """Where states come from."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """`minari:<dataset-id>`, a table (.csv, .tsv, .jsonl, .parquet), .hdf5, the folder of a LeRobot data set, or npz."""


@dataclass(kw_only=True)
class ColumnArgs:
    """What the columns of a table mean, or the arrays of an npz or HDF5 file."""

    max_episodes: int | None = None
    """Read the first N episodes only."""
    observations: str = OBSERVATIONS
    """Name of the array of states, (N, H+1, *obs) or (M, *obs). Tables: the columns of the state, as in x,y,angle;
    by default all that have no other role."""
    timesteps: str = TIMESTEPS
    """Name of the array or column of whole-numbered timesteps."""
    episode: str | None = None
    """Column that says to which episode a row belongs. The ends of episodes are then known."""
    time: str | None = None
    """Column of the time in seconds, in place of timesteps; needs --rate."""
    rate: float | None = None
    """Steps per second."""
    ignore: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Column that is not a part of the state; several as in a,b or by giving the option again."""


@dataclass(kw_only=True)
class ImportArgs(ColumnArgs, SourceArgs):
    """Turn states of any source into hyrlo's npz layout, checked."""

    out: str
    """The npz file to write."""


@dataclass(kw_only=True)
class InfoArgs(ColumnArgs, SourceArgs):
    """What is in the data: states per step, ranges of each dimension, duplicates, ends of episodes, non-finite values."""

    all: bool = False
    """Show every step and dimension, however many."""
    plot: Annotated[str | None, tyro.conf.arg(metavar="[FILE.png]")] = None
    """Write a picture of the dimensions over time; without a name, SOURCE.png in the current folder."""


def data_import(argv: Sequence[str]) -> None:
    args = parse(ImportArgs, argv, "hyrlo data import")
    data = _read(args)
    check_out(args.out, args.source)
    write_data(data, args.out)
    _say_notes(data)


def data_info(argv: Sequence[str]) -> None:
    args = parse(InfoArgs, _name_plot(argv), "hyrlo data info")
    data = _read(args, check_finite=False)
    steps = describe_steps(data)
    _print_steps(args, steps)
    _print_dimensions(args, data)
    out.print(
        f"horizon {data.horizon}, {data.observation_size} dimensions, {sum(r['states'] for r in steps):,} states, "
        f"{sum(r['duplicates'] for r in steps):,} duplicates, {sum(r['non_finite'] for r in steps):,} non-finite values"
    )
    _say_notes(data)
    if has_actions_and_rewards(args.source):
        out.print("has actions and rewards too; algorithms that learn from states do not use them")
    if any(r["non_finite"] for r in steps):
        raise HyrloError(f"{args.source}: {data.first_non_finite()}; remove or fix non-finite values before training")
    if args.plot is not None:
        path = args.plot or f"{Path(args.source.removeprefix(MINARI)).name.split('.')[0]}.png"
        if not path.endswith(".png"):
            raise HyrloError(f"--plot: {path} will be a picture; give a name that ends with .png")
        plot_states(Path(path), data, Path(args.source).name)
        say(f"picture in {path}")


def _read(args: ColumnArgs, check_finite: bool = True) -> ObservationDataset:
    columns = {name: getattr(args, name) for name in ColumnArgs.__dataclass_fields__}
    source: Any = args
    return read_states(source.source, check_finite=check_finite, **columns)


def _name_plot(argv: Sequence[str]) -> list[str]:
    """`--plot` may come without a file: the empty name stands for the default."""
    named = list(argv)
    for here in (i for i, word in enumerate(argv) if word == "--plot"):
        if here + 1 == len(argv) or not argv[here + 1].endswith(".png"):
            named[here] = "--plot="
    return named


def _print_steps(args: InfoArgs, rows: list[dict[str, Any]]) -> None:
    table = Table(title=Text(args.source), box=SIMPLE_HEAD, padding=(0, 0, 0, 1))  # all columns fit into 80 characters
    for name in ("step", "states", "min", "mean", "max", "duplicates", "non-finite", "constant"):
        table.add_column(name, justify="right", overflow="fold")
    for row in _shown(rows, args.all):
        table.add_row(*(["…"] * 8 if row is None else [number(v) for v in row.values()]))
    out.print(table)


def _print_dimensions(args: InfoArgs, data: ObservationDataset) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for name in ("dimension", "min", "median", "max", ""):
        table.add_column(name, justify="left" if name in ("dimension", "") else "right", overflow="fold")
    for row in _shown(describe_dimensions(data), args.all):
        if row is None:
            table.add_row(*["…"] * 4, "")
        else:
            table.add_row(Text(row.name), *map(number, (row.low, row.median, row.high)), "constant" * row.constant)
    out.print(table)


def _shown(rows: Sequence[Any], every: bool) -> list[Any]:
    return list(rows) if every or len(rows) <= ROWS else [*rows[:10], None, *rows[-10:]]


def _say_notes(data: ObservationDataset) -> None:
    for note in (*data.notes, data.endings()):
        say(note)


def check_out(path: str, source: str | None = None) -> None:
    """Refuse a name under which nobody, readers included, would look for npz; and to write over what is read."""
    if not path.endswith(".npz"):
        raise HyrloError(f"--out: {path} will be an npz file; give a name that ends with .npz")
    if source is not None and Path(path).exists() and Path(source).exists() and Path(path).samefile(source):
        raise HyrloError(f"--out: {path} is the source itself; give another name")


def write_data(data: ObservationDataset, path: str) -> None:
    data.save(path)
    states = sum(len(s) for s in data.steps)
    out.print(f"wrote {path}: {states:,} states, timesteps 0 … {data.horizon}, {data.observation_size} dimensions")
