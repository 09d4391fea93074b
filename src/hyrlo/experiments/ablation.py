"""What makes the preset `lean` work on the lock: FOOBAR without one of its parts at a time, with the same samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hyrlo.backward.psdp import PAPER_FIT, PsdpConfig
from hyrlo.core.regression import FitConfig, LatentProjection
from hyrlo.envs import make
from hyrlo.experiments import lock
from hyrlo.experiments.recipes import Scale, smoke
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, row_of, spread, write_csv
from hyrlo.foobar import FoobarConfig
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.regression import RegressionConfig

HORIZON = {"smoke": 3, "quick": 10, "paper": 20}
SEEDS = {"smoke": 1, "quick": 3, "paper": 10}
Change = Callable[[FoobarConfig, int], FoobarConfig]
"""A config from lean's and the size of an observation."""


def with_fit(lean: FoobarConfig, fit: FitConfig) -> FoobarConfig:
    """With another regression in the backward pass."""
    assert isinstance(lean.backward, PsdpConfig)
    return replace(lean, backward=replace(lean.backward, fit=fit))


def without_projection(lean: FoobarConfig, size: int) -> FoobarConfig:
    """All weights of Q by minibatches, as in the paper."""
    return with_fit(lean, PAPER_FIT)


def without_restarts(lean: FoobarConfig, size: int) -> FoobarConfig:
    return with_fit(lean, LatentProjection(restarts=1, rounds=1))


def all_directions(lean: FoobarConfig, size: int) -> FoobarConfig:
    """The encoder sees whole observations."""
    return with_fit(lean, LatentProjection(directions=size))


def importance_weights(lean: FoobarConfig, size: int) -> FoobarConfig:
    """The paper's estimator of the forward pass."""
    assert isinstance(lean.forward, RegressionConfig)
    return replace(lean, forward=ImportanceConfig(samples=lean.forward.samples))


LEAN = "foobar-lean"
GROUPS: dict[str, tuple[str, Change]] = {
    "lean-sgd": ("backward fit without projection", without_projection),
    "lean-one-start": ("backward fit without restarts", without_restarts),
    "lean-all-directions": ("backward fit on all directions", all_directions),
    "lean-importance": ("forward by importance weights", importance_weights),
}


def spec_of(group: str, seed: int, scale: Scale) -> RunSpec:
    """Lean's are runs of `reproduce horizon-scaling`."""
    lean = lock.spec_of(LEAN, HORIZON[scale], seed, scale)
    if group == LEAN:
        return lean
    config = GROUPS[group][1](lean.config, make(lean.env, lean.horizon).spec.observation_size)
    return replace(lean, group=group, config=smoke(config) if scale == "smoke" else config)


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    return [spec_of(group, seed, scale) for group in (LEAN, *GROUPS) for seed in seeds]


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """The forward policy's success is the share of its episodes that end in a good state."""
    write_csv(out / "ablation.csv", [{**row_of(run), "forward_good_mass": run.forward_success()} for run in runs])
    rows = []
    for group, members in by_group(runs).items():
        success = [run.result["success_rate"] for run in members]
        rows.append(
            [
                "lean" if group == LEAN else GROUPS[group][0],
                str(len(members)),
                spread([run.forward_success() for run in members]),
                spread(success),
                f"{min(success):.3g}",
                spread([run.result["episodes"] for run in members]),
                spread([run.result["wall_seconds"] for run in members]),
            ]
        )
    header = ["", "runs", "forward good mass", "final success", "worst seed", "training episodes", "seconds"]
    return f"Combination lock, H = {HORIZON[scale]}\n\n{markdown(header, rows)}"
