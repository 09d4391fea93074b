"""`hyrlo bound`: the paper's guarantees, side by side."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from hyrlo.cli.parsing import parse
from hyrlo.core.errors import HyrloError
from hyrlo.theory.bounds import GUARANTEES, TABLE_1, BoundInputs, Guarantee, Reading

READINGS: tuple[Reading, ...] = ("printed", "proved")
out = Console(soft_wrap=True)


@dataclass
class BoundArgs:
    """How many samples a target error takes by the paper's theorems, or what error given samples guarantee.

    `printed` is the theorem as it stands, with the constant of --constant for O(·); `proved` keeps the constants of its
    proof and corrects its slips. docs/bounds.md has the formulas.
    """

    which: Annotated[
        Literal["all", "hyq", "psdp", "foobar", "fail", "psdp-trace", "cpi", "inter-fail"], tyro.conf.Positional
    ] = "all"
    """`all`: hyq, psdp and foobar, the lines of Table 1."""
    epsilon: float | None = None
    """Target error: of the value; fail and inter-fail: of the IPM."""
    samples: int | None = None
    """Instead of --epsilon: samples per step in each phase (cpi: iterations; inter-fail: episodes)."""
    json: bool = False
    """Print JSON for programs."""
    problem: Annotated[BoundInputs, tyro.conf.arg(name="")] = field(default_factory=BoundInputs)


def command_bound(argv: Sequence[str]) -> None:
    args = parse(BoundArgs, argv, "hyrlo bound")
    if (args.epsilon is None) == (args.samples is None):
        raise HyrloError("bound: give either a target error, --epsilon, or --samples")
    guarantees = [GUARANTEES[name](args.problem) for name in (TABLE_1 if args.which == "all" else (args.which,))]
    answers = [answer(guarantee, args.epsilon, args.samples) for guarantee in guarantees]
    if args.json:
        print(json.dumps({"problem": dataclasses.asdict(args.problem), "bounds": answers}, indent=2))
        return
    show(answers, args.problem, args.epsilon)


def answer(guarantee: Guarantee, epsilon: float | None, samples: int | None) -> dict[str, Any]:
    """What the guarantee says, in both readings; None where the paper has no proof."""
    said: dict[str, Any] = {"name": guarantee.name, "source": guarantee.source, "counts": guarantee.counts}
    for reading in READINGS:
        needed = dict.fromkeys((phase.name for phase in guarantee.phases), samples or 0)
        if epsilon is not None:
            needed = guarantee.samples(epsilon, reading) or needed
        error = guarantee.error(needed, reading) if guarantee.rates(reading) else None
        said[reading] = error and {
            "samples": needed,
            "total": guarantee.total(needed),
            "error": error,
            "vacuous": error > guarantee.most,
        }
    return said


def show(answers: list[dict[str, Any]], problem: BoundInputs, epsilon: float | None) -> None:
    """Samples for a target error, or errors for given samples."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)  # fits 80 columns
    for title in ("", "", *READINGS):
        table.add_column(title, no_wrap=True)
    for said in answers:
        both = [said[reading] for reading in READINGS]
        name = f"{said['name']} ({said['source']})"
        if epsilon is None:
            table.add_row(name, "error at most", *(described(one) for one in both))
            continue
        for phase in both[0]["samples"]:
            label = phase if phase == said["counts"] else f"{phase}: {said['counts']}"
            table.add_row(name, label, *(number(one and one["samples"][phase]) for one in both))
            name = ""
        if said["counts"] == "episodes per step":
            table.add_row("", "episodes in all", *(number(one and one["total"]) for one in both))
    out.print(table)
    out.print(
        f"printed: O(·) with the constant {problem.constant:g}, which the paper does not give; fail, cpi and inter-fail "
        f"print theirs.\nproved: constants of the proofs, {problem.least_squares:g} in the least-squares lemma; "
        "– where the paper has no proof.",
        highlight=False,
    )


def number(value: int | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if value < 10**9 else f"{value:.3g}"


def described(one: dict[str, Any] | None) -> str:
    if one is None:
        return "–"
    return f"{one['error']:.4g}" + (" > V_max" if one["vacuous"] else "")
