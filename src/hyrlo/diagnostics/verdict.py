"""What a diagnosis means: the verdict and the advice, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hyrlo.core.access import Spec
from hyrlo.diagnostics.admissibility import DiagnoseConfig, StepReport, ranges

FEW = 200
"""Number of states per step below which small differences cannot be seen."""
HARDLY = 0.01
"""Share of the episodes below which a roll-in hardly ever is in a region."""
EXPLORING = (
    "--forward importance --improve psdp --explore 0.5 --backward.samples 20000 --backward.fit.decay 0.0005 "
    "--backward.fit.held-out 0.5"
)
"""Options of FOOBAR with an exploring roll-in, as measured on the adversarial lock (docs/results/inadmissible.md)."""


def about_data(rows: list[dict[str, Any]]) -> list[str]:
    """Remarks on the data themselves: duplicates, constant dimensions, few or missing states."""
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
    """Which steps cannot be matched, by how much, and what to expect of a backward pass."""
    flagged = [row for row in steps if row.flagged]
    said = _about_flagged(flagged, config, run) if flagged else [_nothing_flagged(steps, config, run)]
    if small := [row.step for row in steps if row.differs and not row.flagged]:
        said.append(f"{_steps(small)}: a difference that is real (significant), but smaller than what is flagged.")
    if vague := [row.step for row in steps if np.diff(row.gap_interval)[0] / 2 > config.gap]:
        said.append(f"{_steps(vague)}: too few states to tell a gap of {_percent(config.gap)} from none.")
    return [*said, _expectation(flagged, config)]


def _nothing_flagged(steps: list[StepReport], config: DiagnoseConfig, run: str | None) -> str:
    largest = max(steps, key=lambda row: row.gap)
    return (
        f"No step is flagged: {_who(run)} comes close to the data at every step. The largest gap is "
        f"{_percent(max(largest.gap, 0))} of the mass, at step {largest.step} (flags begin at {_percent(config.gap)})."
    )


def _about_flagged(flagged: list[StepReport], config: DiagnoseConfig, run: str | None) -> list[str]:
    numbers = [row.step for row in flagged]
    worst = max(flagged, key=lambda row: row.gap)
    passes = "1 forward pass" if config.passes == 1 else f"{config.passes} forward passes"
    verb = "is" if len(numbers) == 1 else "are"
    whose = f"{verb} not matched by the roll-in of this run" if run else f"{verb} matched by no policy tried ({passes})"
    where = f", most in dimension{'s' * (len(worst.dimensions) > 1)} {', '.join(map(str, worst.dimensions))} (from 0)"
    said = [
        f"{_steps(numbers)} {whose}: at step {worst.step} the data put {_percent(worst.data_share)} where {_who(run)} gets "
        f"{_percent(worst.roll_in_share)}{where if worst.dimensions else ''}."
    ]
    if run and not alarming(flagged, config, run):
        said.insert(
            0,
            "The roll-in of this run goes to all parts of the data, to some more rarely; that is common, and no fault.",
        )
    if thin := _thinnest(flagged, config):
        said.append(
            f"Coverage is thinnest at step {thin.step}: {_percent(thin.missed)} of the data lie where {_who(run)} is in "
            f"{_percent(thin.missed_roll_in)} of its episodes."
        )
    if inherited := [row.step for row in flagged if row.origin == "inherited"]:
        said.append(f"{_steps(inherited)}: the mismatch is no larger than at the step before, and may come from there.")
    if flagged[0].step == 0:
        said.append("Step 0 is where episodes begin: no policy has a say in it, the data begin elsewhere.")
    return said


def _who(run: str | None) -> str:
    return "the roll-in" if run else "the closest policy tried"


def _thinnest(flagged: list[StepReport], config: DiagnoseConfig) -> StepReport | None:
    """The flagged step with the smallest ratio of roll-in to data, among steps with enough missed data."""
    thin = [row for row in flagged if row.missed > config.missed]
    return max(thin, key=lambda row: row.missed / (row.missed_roll_in + 1 / config.episodes), default=None)


def alarming(steps: Sequence[StepReport], config: DiagnoseConfig, run: str | None) -> bool:
    """Whether flags call for something to be done. A roll-in that goes to all parts of the data, if more rarely, is enough for
    a backward pass; without a run, flags are about the data themselves."""
    flagged = [row for row in steps if row.flagged]
    return bool(flagged) and (run is None or flagged[0].step == 0 or _hardly_seen(flagged, config))


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
            "Let the roll-in explore, so that states the match drops are still seen: "
            f"`hyrlo train foobar {env} --horizon {spec.horizon} {EXPLORING}` with these data. These sizes are for rare "
            "states and 10 steps; lower --backward.samples if that takes too long."
        )
    return said


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 0.02 else f"{100 * share:.0f} %"


def _steps(steps: Sequence[int], one: str = "") -> str:
    word = one or "Steps"
    return f"{word.removesuffix('s') if len(steps) == 1 else word} {ranges(steps)}"
