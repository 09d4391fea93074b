"""Effective admissibility: how close policies come to the data at every step.

Data are admissible if one policy has their distribution at *every* step. What can be measured is weaker: how close the
policies that were tried come, against the floor that two samples of one distribution give. A step is *flagged* if every
policy tried differs from the data there significantly **and** by more than a margin fixed beforehand:

    gap > `gap`         the excess mass of the data over the roll-in in some region, or
    missed > `missed`   the share of the data where the roll-in (almost) never goes.

A flag does not prove inadmissibility: a forward pass with too few samples misses too. Two things help to tell. Several
passes with different random numbers rarely miss at the same step. And by the data-processing inequality, data that *are*
admissible from step h − 1 on can be followed from there without the distance growing: some policy has
TV(d_h, μ_h) ≤ TV(d_{h−1}, μ_{h−1}). So a flagged step whose gap is no larger than that of the step before may have
*inherited* it; where the gap grows, the mismatch is *new*: the data, or a bad forward pass, at that very step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from hyrlo.core.access import TraceModel
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Policy
from hyrlo.core.ranges import Count, InnerShare, Options
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits
from hyrlo.distances.two_sample import Comparison, TestConfig, compare
from hyrlo.forward.fail import ForwardConfig, fail
from hyrlo.forward.lost import NAMED, differing
from hyrlo.runs.directory import MemoryRun
from hyrlo.runs.progress import Progress

Origin = Literal["", "new", "inherited"]


@dataclass(frozen=True)
class DiagnoseConfig(Options):
    """Margins of a mismatch, and number of episodes and passes to find one."""

    episodes: Count = 4000
    """Episodes of each policy, from which its states at every step are taken."""
    passes: Count = 2
    """Number of forward passes, each with its own random numbers, where no run is given."""
    level: InnerShare = 0.05
    """Share of false alarms among the steps called different (Benjamini–Hochberg)."""
    gap: InnerShare = 0.2
    """Excess mass of the data over the roll-in in some region that is flagged."""
    missed: InnerShare = 0.05
    """Share of the data where the roll-in (almost) never goes that is flagged."""
    growth: InnerShare = 0.05
    """Largest growth of a gap over the step before with which it still counts as inherited."""
    test: TestConfig = field(default_factory=TestConfig)


@dataclass(frozen=True)
class StepReport:
    """One step, for the policy that came closest to its data (smallest MMD; one that is not flagged, if there is one)."""

    step: int
    states: int
    """Number of states in the data."""
    policy: str
    mmd: float
    floor: float
    """95 % quantile of the MMD between random halves of the data."""
    p_value: float
    """p-value of both tests after Benjamini–Hochberg; the largest over the policies."""
    gap: float
    gap_interval: tuple[float, float]
    data_share: float
    """Share of the data in the region of the gap."""
    roll_in_share: float
    js: float
    js_interval: tuple[float, float]
    missed: float
    missed_interval: tuple[float, float]
    missed_roll_in: float
    """Share of the roll-in in the region that holds `missed` of the data."""
    stray: float
    stray_interval: tuple[float, float]
    differs: bool
    """Whether the difference is significant, whatever its size."""
    flagged: bool
    origin: Origin
    """Origin of a flag: `new` where the mismatch grows, `inherited` where it is no larger than at the step before."""
    dimensions: tuple[int, ...] = ()
    """Of a flagged step: the dimensions of the states that differ most, first the worst."""


def forward_passes(
    model: TraceModel,
    data: ObservationDataset,
    config: ForwardConfig,
    passes: int,
    seed: int,
    progress: Progress | None = None,
) -> dict[str, Policy]:
    """Policies that try to match the data with trace access. The model's ledger counts their episodes."""
    found: dict[str, Policy] = {}
    for number in range(passes):
        keys = Keys(Keys.of_seed(seed).diagnose).at(number)
        name = f"forward pass {number + 1}"
        run = MemoryRun(key=keys.curve, curve_episodes=1, progress=progress and progress.without_scores(name))
        found[name] = fail(model, data.subsample(config.offline_samples, seed), config, keys.forward, run)
    return found


def roll_in_states(model: TraceModel, policy: Policy, episodes: int, seed: int) -> Float[np.ndarray, "steps n obs"]:
    """States of steps 0 … H."""
    steps = tuple(range(model.spec.horizon))
    batch = model.record(Keys.of_seed(seed).compare, policy, episodes, steps)
    return np.concatenate([batch.states, batch.next_states[-1:]])


def reach(
    model: TraceModel, data: ObservationDataset, policies: dict[str, Policy], config: DiagnoseConfig, seed: int = 0
) -> list[StepReport]:
    """How close each policy comes to the data at every step, on fresh episodes."""
    compared, states = {}, {}
    for number, (name, policy) in enumerate(policies.items()):
        states[name] = roll_in_states(model, policy, config.episodes, 2_000_000 + 1000 * number + seed)
        compared[name] = compare(states[name], data.steps, config.test, seed, model.spec.ends)
    units = StateUnits.of_steps(data.steps, model.spec.ends)
    return [
        replace(
            row, dimensions=tuple(differing(units, states[row.policy][row.step], data.at(row.step))[:NAMED].tolist())
        )
        if row.flagged and row.states
        else row
        for row in step_reports(compared, data, config)
    ]


def step_reports(compared: dict[str, Comparison], data: ObservationDataset, config: DiagnoseConfig) -> list[StepReport]:
    """A step is flagged if it is for every policy; the numbers are those of the policy with the smallest MMD.

    If some policy is not flagged, they are those of the closest such policy, so that numbers and flag agree.
    """
    rows: list[StepReport] = []
    for h, states in enumerate(data.steps):
        flags = {name: is_flagged(c, h, config) for name, c in compared.items()}
        name = min(compared, key=lambda name: (flags[name], float(compared[name].mmd.mmd2[h])))
        best, flagged = compared[name], flags[name]
        effects = best.effects[h]
        adjusted = max(float(c.adjusted[h]) for c in compared.values())
        origin: Origin = ""
        if flagged:
            before = rows[-1] if rows else None
            grown = before is None or any(
                getattr(effects, kind) > getattr(before, kind) + config.growth for kind in ("gap", "missed")
            )
            origin = "new" if grown else "inherited"
        measured: dict[str, Any] = {k: v for k, v in effects._asdict().items() if k not in ("intervals", "stray_data")}
        measured |= {f"{k}_interval": v for k, v in effects.intervals.items()}
        rows.append(
            StepReport(
                step=h, states=len(states), policy=name, mmd=_root(best.mmd.mmd2[h]), floor=_root(best.floor[h]),
                p_value=adjusted, differs=adjusted < config.level, flagged=flagged, origin=origin, **measured,
            )
        )  # fmt: skip
    return rows


def is_flagged(compared: Comparison, h: int, config: DiagnoseConfig) -> bool:
    """Whether the difference is significant and above the margins."""
    effects = compared.effects[h]
    hardly_there = effects.missed_roll_in * config.test.rare <= effects.missed
    far = effects.gap > config.gap or (effects.missed > config.missed and hardly_there)
    return bool(compared.adjusted[h] < config.level and far)


def _root(mmd2: Any) -> float:
    return float(np.sqrt(max(float(mmd2), 0.0)))


def ranges(steps: Sequence[int]) -> str:
    """`1, 3–5` for 1, 3, 4, 5."""
    parts: list[list[int]] = []
    for h in steps:
        if parts and h == parts[-1][-1] + 1:
            parts[-1].append(h)
        else:
            parts.append([h])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)
