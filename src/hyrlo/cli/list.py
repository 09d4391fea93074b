"""`hyrlo list`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hyrlo.cli.output import out
from hyrlo.core.errors import HyrloError
from hyrlo.core.variants import PRESETS
from hyrlo.envs.registry import ENVIRONMENTS
from hyrlo.experiments.registry import TITLES
from hyrlo.runs.algorithms import ALGORITHMS


def command_list(argv: Sequence[str]) -> None:
    if argv and argv[0] not in ("-h", "--help"):
        raise HyrloError(f"list takes no arguments, got {argv[0]!r}")
    if argv:
        out.print("usage: hyrlo list", highlight=False)
    sections = {
        "algorithms": [(a.name, a.summary, a.access + " model") for a in ALGORITHMS.values()],
        "environments": [(e.name, e.summary, "") for e in ENVIRONMENTS.values()],
        "experiments": [(name, title, "") for name, title in TITLES.items()],
        "presets": [(name, summary, "") for name, summary in PRESETS.items()],
    }
    for title, rows in sections.items():
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for row in rows:
            table.add_row(*row)
        out.print(table, "")
