"""The report of a diagnosis: as JSON, as files and as a table."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from hyrlo.core.access import Spec
from hyrlo.core.files import write_atomically
from hyrlo.data.states import ObservationDataset, describe_steps
from hyrlo.diagnostics import page
from hyrlo.diagnostics.admissibility import StepReport


@dataclass(frozen=True)
class DiagnosisReport:
    """All results of a diagnosis."""

    env: str
    horizon: int
    observation_size: int
    source: str
    """Origin of the data."""
    seed: int
    run: str | None
    """Directory of the run whose roll-in was compared; None if the diagnosis made its own forward passes."""
    policies: tuple[str, ...]
    forward: dict[str, int]
    """Episodes and steps of these forward passes."""
    roll_out: dict[str, int]
    """Episodes and steps of the comparison."""
    config: dict[str, Any]
    data: list[dict[str, Any]]
    """One row per step: number of states, range, duplicates, constant dimensions, share of episodes that have ended."""
    steps: list[StepReport]
    verdict: list[str]
    advice: list[str]
    alarming: bool = False
    """Whether the flags call for something to be done."""

    @property
    def flagged(self) -> list[int]:
        """Steps at which every policy tried misses the data."""
        return [row.step for row in self.steps if row.flagged]

    def to_json(self) -> dict[str, Any]:
        """What `report.json` holds, as plain lists, dicts, numbers and strings."""
        plain = dataclasses.asdict(self)
        return json.loads(json.dumps({**plain, "flagged": self.flagged}, allow_nan=False))

    def write(self, out: Path) -> None:
        """Write `report.json`, the pictures, and `report.html`, which is self-contained."""
        out.mkdir(parents=True, exist_ok=True)
        pictures = page.pictures(self.steps, self.config)
        for name, png in pictures.items():
            write_atomically(out / f"{name}.png", png)
        write_atomically(out / "report.json", json.dumps(self.to_json(), indent=2) + "\n")
        write_atomically(out / "report.html", page.html(self.to_json(), pictures))


def describe_data(raw: ObservationDataset, prepared: ObservationDataset, spec: Spec) -> list[dict[str, Any]]:
    """One row per step of the environment. Steps beyond the data have no states.

    `raw` are the data as the user has them, `prepared` as the environment shows them.
    """
    rows = describe_steps(raw)[: spec.horizon + 1]
    empty = {**dict.fromkeys(rows[0]), "states": 0, "duplicates": 0, "non_finite": 0, "constant_dimensions": 0}
    rows += [{**empty, "timestep": h} for h in range(len(rows), spec.horizon + 1)]
    ended = [float(states[:, -1].mean()) if spec.ends else 0.0 for states in prepared.steps]
    return [{**row, "ended": share} for row, share in zip(rows, ended, strict=True)]


def table(report: DiagnosisReport) -> Table:
    """The steps as a table for the terminal; the middle of a long report is left out."""
    shown = Table(
        "step", "states", "MMD", "floor", "p", "gap", "data", "roll-in", "JS", "missed", "",
        pad_edge=False, title=f"{report.env}, H = {report.horizon}: {report.source}", box=None, padding=(0, 2, 0, 0),
        caption="data, roll-in: shares in the region of the gap; ⚑: flagged", caption_justify="left",
    )  # fmt: skip
    for number, row in enumerate(report.steps):
        if len(report.steps) > 24 and 10 <= number < len(report.steps) - 10:  # the page shows all
            if number == 10:
                shown.add_row(*["…"] * 11)
            continue
        numbers = (row.gap, row.data_share, row.roll_in_share, row.js, row.missed)
        p_value = "<0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}"
        flag = Text(f"⚑ {row.origin}", style="red") if row.flagged else "differs" if row.differs else ""
        cells = (f"{row.mmd:.3f}", f"{row.floor:.3f}", p_value, *(f"{x:.2f}" for x in numbers))
        shown.add_row(str(row.step), f"{row.states:,}", *cells, flag)
    return shown
