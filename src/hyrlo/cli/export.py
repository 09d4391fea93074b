"""`hyrlo export DIR --to onnx|numpy --out F`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from hyrlo.cli.output import say
from hyrlo.cli.parsing import parse
from hyrlo.runs import numpy_policy
from hyrlo.runs.export import export


@dataclass
class ExportArgs:
    """Write the policy of a run as a file that acts without JAX."""

    dir: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Run directory."""
    to: Literal["onnx", "numpy"]
    """ONNX, or an npz file that needs NumPy alone."""
    out: Annotated[str, tyro.conf.arg(metavar="F")]
    """The file: *.onnx or *.npz."""
    trust: bool = False
    """Import the module that the run's environment names. Only for runs of people whose code you would run."""


def command_export(argv: Sequence[str]) -> None:
    args = parse(ExportArgs, argv, "hyrlo export")
    say(f"policy in {export(args.dir, args.to, args.out, args.trust)}")
    if args.to == "numpy":
        say(f"act with hyrlo.NumpyPolicy, or copy {numpy_policy.__file__}: it needs NumPy alone")
