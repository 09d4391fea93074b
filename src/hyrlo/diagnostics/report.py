"""The diagnosis as a whole: what is in the data, what policies reach, what that means and what to do next."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from hyrlo.core.access import Ledger, Spec
from hyrlo.core.files import write_atomically, write_json
from hyrlo.data.states import ObservationDataset, describe_steps
from hyrlo.diagnostics import page
from hyrlo.diagnostics.admissibility import DiagnoseConfig, StepReport, ranges

FEW = 200
"""States a step below which little can be said."""
HARDLY = 0.01
"""Share of the episodes below which a roll-in hardly ever is in a region."""


@dataclass(frozen=True)
class DiagnosisReport:
    """All that a diagnosis found. `write` makes files of it."""

    env: str
    horizon: int
    observation_size: int
    source: str
    """Where the data are from."""
    seed: int
    run: str | None
    """The run whose roll-in was rolled out; None if forward passes were made for the diagnosis."""
    policies: tuple[str, ...]
    forward: dict[str, int]
    """Episodes and steps of the forward passes made here."""
    roll_out: dict[str, int]
    config: dict[str, Any]
    data: list[dict[str, Any]]
    """One row a step: number of states, range, duplicates, constant dimensions, share of episodes that have ended."""
    steps: list[StepReport]
    verdict: list[str]
    advice: list[str]

    @property
    def flagged(self) -> list[int]:
        return [row.step for row in self.steps if row.flagged]

    def as_json(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        return json.loads(json.dumps({**plain, "flagged": self.flagged}, allow_nan=False))

    def write(self, out: Path) -> None:
        """`report.json` for programs, pictures, and `report.html`, which needs nothing else."""
        out.mkdir(parents=True, exist_ok=True)
        pictures = page.pictures(self.steps, self.config)
        for name, png in pictures.items():
            write_atomically(out / f"{name}.png", png)
        write_json(out / "report.json", self.as_json())
        write_atomically(out / "report.html", page.html(self.as_json(), pictures))


def gather(
    env: str,
    spec: Spec,
    raw: ObservationDataset,
    prepared: ObservationDataset,
    steps: list[StepReport],
    config: DiagnoseConfig,
    *,
    seed: int,
    run: str | None,
    policies: Sequence[str],
    forward: Ledger,
    roll_out: Ledger,
    notes: Sequence[str] = (),
) -> DiagnosisReport:
    """Put everything together; `raw` are the data as the user has them, `prepared` as the environment shows them."""
    about = describe_data(raw, prepared, spec)
    return DiagnosisReport(
        env, spec.horizon, spec.observation_size, raw.source, seed, run, tuple(policies),
        dataclasses.asdict(forward), dataclasses.asdict(roll_out), dataclasses.asdict(config), about, steps,
        [*notes, *verdict(steps, config, run), *about_data(about)], advice(steps, config, env, run, spec),
    )  # fmt: skip


def describe_data(raw: ObservationDataset, prepared: ObservationDataset, spec: Spec) -> list[dict[str, Any]]:
    """One row for every step of the environment; steps after the last of the data have no states."""
    rows = describe_steps(raw)[: spec.horizon + 1]
    empty = {**dict.fromkeys(rows[0]), "states": 0, "duplicates": 0, "non_finite": 0, "constant_dimensions": 0}
    rows += [{**empty, "timestep": h} for h in range(len(rows), spec.horizon + 1)]
    ended = [float(states[:, -1].mean()) if spec.ends else 0.0 for states in prepared.steps]
    return [{**row, "ended": share} for row, share in zip(rows, ended, strict=True)]


def about_data(rows: list[dict[str, Any]]) -> list[str]:
    """What catches the eye in the data themselves."""
    said = []
    if repeated := [r["timestep"] for r in rows if r["states"] and r["duplicates"] > r["states"] / 2]:
        said.append(f"{_steps(repeated)}: more than half of the states are duplicates, which count as one.")
    constant = [r["timestep"] for r in rows if r["constant_dimensions"]]
    if constant:
        most = max(r["constant_dimensions"] for r in rows)
        said.append(f"{_steps(constant)}: up to {most} dimensions are constant; they tell nothing apart.")
    if few := [r["timestep"] for r in rows if 0 < r["states"] < FEW]:
        least = min(rows[h]["states"] for h in few)
        said.append(f"{_steps(few)}: only {least} states or a little more; small differences cannot be seen.")
    if missing := [r["timestep"] for r in rows if not r["states"]]:
        said.append(f"{_steps(missing)}: no states; all episodes are taken to have ended.")
    if rows[-1]["ended"] > 0:
        said.append(f"{_percent(rows[-1]['ended'])} of the episodes in the data end before the last step.")
    return said


def verdict(steps: list[StepReport], config: DiagnoseConfig, run: str | None = None) -> list[str]:
    """In plain words: which steps cannot be matched, and by how much."""
    who = "the roll-in" if run else "the closest policy tried"
    flagged = [row for row in steps if row.flagged]
    said = []
    if not flagged:
        most = max(steps, key=lambda row: row.gap)
        said.append(
            f"No step is flagged: {who} comes close to the data at every step. The largest gap is "
            f"{_percent(max(most.gap, 0))} of the mass, at step {most.step} (flags begin at {_percent(config.gap)})."
        )
    else:
        numbers = [row.step for row in flagged]
        worst = max(flagged, key=lambda row: row.gap)
        passes = "1 forward pass" if config.passes == 1 else f"{config.passes} forward passes"
        verb = "is" if len(numbers) == 1 else "are"
        whose = (
            f"{verb} not matched by the roll-in of this run" if run else f"{verb} matched by no policy tried ({passes})"
        )
        said.append(
            f"{_steps(numbers)} {whose}: at step {worst.step} the data put {_percent(worst.data_share)} where {who} gets "
            f"{_percent(worst.roll_in_share)}."
        )
        if thin := _thinnest(flagged, config):
            said.append(
                f"Coverage is thinnest at step {thin.step}: {_percent(thin.missed)} of the data lie where {who} is in "
                f"{_percent(thin.missed_roll_in)} of its episodes."
            )
        if inherited := [row.step for row in flagged if row.origin == "inherited"]:
            said.append(
                f"{_steps(inherited)}: the mismatch is no larger than at the step before, and may come from there."
            )
        if flagged[0].step == 0:
            said.append("Step 0 is where episodes begin: no policy has a say in it, the data begin elsewhere.")
    if small := [row.step for row in steps if row.differs and not row.flagged]:
        said.append(f"{_steps(small)}: a difference that is real (significant), but smaller than what is flagged.")
    if vague := [row.step for row in steps if np.diff(row.gap_interval)[0] / 2 > config.gap]:
        said.append(f"{_steps(vague)}: too few states to tell a gap of {_percent(config.gap)} from none.")
    said.append(_expectation(flagged, config))
    return said


def _thinnest(flagged: list[StepReport], config: DiagnoseConfig) -> StepReport | None:
    """The step at which the roll-in is rarest, relative to the data, among those where enough of the data are concerned."""
    thin = [row for row in flagged if row.missed > config.missed]
    return max(thin, key=lambda row: row.missed / (row.missed_roll_in + 1 / config.episodes), default=None)


def _hardly_seen(flagged: list[StepReport], config: DiagnoseConfig) -> bool:
    return any(row.missed > config.missed and row.missed_roll_in < HARDLY for row in flagged)


def _expectation(flagged: list[StepReport], config: DiagnoseConfig) -> str:
    if not flagged:
        return "What to expect: a backward pass from this roll-in can compete with the best policy that the data cover."
    if _hardly_seen(flagged, config):
        return (
            "What to expect: a backward pass cannot learn about states that its roll-in hardly ever sees. It competes with "
            "the best policy that does without them."
        )
    return (
        "What to expect: the roll-in goes to all parts of the data, if more rarely than the data. A backward pass can still "
        "do well, with more episodes the rarer they are."
    )


def advice(steps: list[StepReport], config: DiagnoseConfig, env: str, run: str | None, spec: Spec) -> list[str]:
    """What to do next."""
    flagged = [row for row in steps if row.flagged]
    if not flagged:
        return [f"Go on: `hyrlo train foobar {env}` with these data."]
    said = []
    if flagged[0].step == 0:
        said.append("Check that the data were recorded from the first step of episodes of this very environment.")
    if new := [row.step for row in flagged if row.origin == "new" and row.step]:
        said.append(
            f"Ask how the states of {_steps(new, 'steps')} came about: filtering, resampling or mixing logs per step makes "
            "data that no policy can produce. Whole episodes of one or several policies do not have this problem."
        )
    if run:
        said.append(
            "A flag can also mean a poor forward pass. To tell: leave out --run, so that fresh passes try as well, or "
            "train one with more samples (`hyrlo train fail … --samples 4000`) and diagnose that."
        )
    else:
        said.append(
            f"A flag can also mean that the forward passes had too little: try --passes {2 * config.passes} and "
            "--samples 4000. What is due to the data stays flagged."
        )
    if not spec.action_size and _hardly_seen(flagged, config):
        said.append(
            f"Let the roll-in explore, so that states the match drops are still seen: `hyrlo train foobar {env} "
            "--explore.share 0.5`."
        )
    return said


def table(report: DiagnosisReport) -> Table:
    """For the terminal."""
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
        flag = f"[red]⚑ {row.origin}[/red]" if row.flagged else "differs" if row.differs else ""
        cells = (f"{row.mmd:.3f}", f"{row.floor:.3f}", p_value, *(f"{x:.2f}" for x in numbers))
        shown.add_row(str(row.step), f"{row.states:,}", *cells, flag)
    return shown


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 0.02 else f"{100 * share:.0f} %"


def _steps(steps: Sequence[int], one: str = "") -> str:
    word = one or "Steps"
    return f"{word.removesuffix('s') if len(steps) == 1 else word} {ranges(steps)}"
