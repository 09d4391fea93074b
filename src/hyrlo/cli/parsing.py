"""tyro's parser with errors of one line, for the command line."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import tyro

from hyrlo.core.errors import HyrloError, check_finite

Args = TypeVar("Args")


def parse(kind: type[Args], argv: Sequence[str], prog: str, default_config: Any = None) -> Args:
    """tyro's parser, with its errors folded into one line."""
    captured = io.StringIO()
    default = tyro.MISSING_NONPROP if default_config is None else kind(env=tyro.MISSING, config=default_config)  # type: ignore[call-arg]
    try:
        with contextlib.redirect_stderr(captured):
            args = tyro.cli(kind, args=list(argv), prog=prog, default=default)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise HyrloError(f"{prog}: {_one_line(captured.getvalue())}; see `{prog} --help`") from None
    check_finite(args)
    return args


def _one_line(box: str) -> str:
    """What tyro says in a box of several sections: its first section, and the option it thinks was meant."""
    lines = [line.strip("│| \n") for line in box.splitlines() if not line.startswith(("╭", "╰", "+"))]
    sections = " ".join("\0" if line and set(line) <= set("─-") else line for line in lines).split("\0")
    said = [section.strip() for section in sections if section.strip()]
    wrong = (
        said[1] if len(said) > 1 and len(said[0].split()) <= 2 else said[0]
    )  # without box corners a title comes first
    if value := re.search(r"Error parsing (--\S+): .*?\['(.*?)'\]", box.replace("\n", " ")):
        wrong = f"{value[1]} cannot be {value[2]!r}"
    meant = re.search(r"Perhaps you meant: (--\S+)", " ".join(lines))
    return wrong + (f"; did you mean {meant[1]}?" if meant else "")


def first_option(argv: Sequence[str], name: str) -> str | None:
    """The value of one option before the rest is parsed: presets decide the defaults of the others."""
    for here, following in itertools.pairwise([*argv, ""]):
        if here == name:
            return following
        if here.startswith(name + "="):
            return here.split("=", 1)[1]
    return None
