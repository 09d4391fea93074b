"""`hyrlo compare RUN…`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from hyrlo.cli.output import out, say
from hyrlo.cli.parsing import parse
from hyrlo.core.errors import HyrloError
from hyrlo.runs.compare import compare
from hyrlo.runs.intervals import short


@dataclass
class CompareArgs:
    """One table and one picture of several runs. Seeds of one run count as one."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run directories, folders with the seeds of one, or folders of runs."""
    out: str = "compare.png"
    """The picture to write."""
    json: bool = False
    """Print JSON for programs."""


def command_compare(argv: Sequence[str]) -> None:
    args = parse(CompareArgs, argv, "hyrlo compare")
    if not args.runs:
        raise HyrloError("compare: give at least one run directory")
    if Path(args.out).suffix != ".png":
        raise HyrloError(f"--out: {args.out} will be a picture; give a name that ends with .png")
    comparison = compare(args.runs)
    comparison.plot(args.out)
    rows = comparison.rows()
    if args.json:
        print(json.dumps({"notes": comparison.notes, "runs": rows}, indent=2))
        return
    _print(rows)
    for note in comparison.notes:
        say(note)
    for row in rows:
        for warning in row["warnings"]:
            say(f"{row['label']}: {warning}")
    say(f"picture in {args.out}")


def _print(rows: list[dict[str, Any]]) -> None:
    """What is the same for all runs is in the title, what is not in their labels."""
    same = [name for name in ("algo", "env", "horizon") if len({row[name] for row in rows}) == 1]
    said = [f"H = {rows[0][name]}" if name == "horizon" else str(rows[0][name]) for name in same]
    table = Table(title=Text(", ".join(said) or "runs"), box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("run", overflow="fold")
    for name in ("seeds", "return", "success", "steps", "minutes", "warnings"):
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        numbers = [_cell(row[name]) for name in ("return", "success", "steps", "minutes")]
        table.add_row(Text(row["label"]), str(len(row["seeds"])), *numbers, str(len(row["warnings"]) or "–"))
    out.print(table)
    if any(len(row["seeds"]) > 1 for row in rows):
        say("median (25 %, 75 %) over seeds; --json also has 95 % bootstrap intervals of the median")


def _cell(value: dict[str, float] | None) -> str:
    if value is None:
        return "–"
    median, low, high = (short(value[name]) for name in ("median", "q25", "q75"))
    return median if low == high == median else f"{median}\n({low}, {high})"
