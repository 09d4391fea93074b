"""Table 2: FOOBAR and PSDP on inadmissible data, and the exploring roll-in that the paper lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyrlo.backward.psdp import PsdpConfig
from hyrlo.core.latents import LatentCounts
from hyrlo.core.regression import LatentProjection
from hyrlo.envs import make
from hyrlo.envs.lock import optimal_success
from hyrlo.experiments.recipes import Scale, recipe
from hyrlo.experiments.runner import Finished, RunSpec, markdown, row_of, write_csv
from hyrlo.runs.intervals import spread

HORIZON = {"smoke": 3, "quick": 10, "paper": 10}
SEEDS = {"smoke": 1, "quick": 2, "paper": 20}
ENVIRONMENTS = ("lock-benign", "lock-adversarial")
EPISODES = {"smoke": 100, "quick": 4000, "paper": 4000}
"""Of every evaluation: one success in ten has to be told from one in twenty."""
PAPER = {  # forward policy, FOOBAR, PSDP
    "lock-benign": ("0.12 (0.1, 0.135)", "1 (1, 1)", "1 (1, 1)"),
    "lock-adversarial": ("0 (0, 0)", "0 (0, 0)", "1.1 (0.95, 1.15)"),
}
EXPLORING_BACKWARD = PsdpConfig(samples=20_000, fit=LatentProjection(decay=0.0005, held_out=0.5))
"""The adversarial lock's first step tells a return of 0.1 from one of 0.05 under noise: more samples, more of them held
out to choose among restarts, less decay."""


SIZES_OF_PAPER = 3
"""Seeds of the runs with the paper's sizes at scale `paper`; the others are quick and take all."""
LABELS = {
    "forward": "FOOBAR, paper (forward)",
    "foobar": "FOOBAR, paper",
    "psdp": "PSDP, paper (reset)",
    "counted": "PSDP, counting (reset)",
    "default": "FOOBAR, no options",
    "exploring": "FOOBAR, exploring",
}


def configs(env: str, scale: Scale) -> dict[str, tuple[str, Any]]:
    """Algorithm and config by name. The samples per step are those of the paper's tables for these experiments."""
    foobar, psdp = recipe("foobar", scale, preset="paper"), recipe("psdp", scale, preset="paper")
    exploring, samples = recipe("foobar", scale, preset="paper", explore=0.5), psdp.samples
    if scale != "smoke":
        fit, samples = replace(psdp.fit, updates=2000), 4000
        psdp = replace(psdp, samples=samples, fit=fit)
        foobar = replace(foobar, backward=replace(foobar.backward, samples=samples, fit=fit))
        exploring = replace(exploring, backward=EXPLORING_BACKWARD)
    found = {
        "foobar": ("foobar", foobar),
        "psdp": ("psdp", psdp),
        "counted": ("psdp", replace(psdp, fit=LatentCounts())),
        "default": ("foobar", recipe("foobar", scale)),
    }
    return {**found, "exploring": ("foobar", exploring)} if env == "lock-adversarial" else found


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    return [
        RunSpec(
            f"{name}-{env}", algo, env, HORIZON[scale], config, seed,
            curve_episodes=EPISODES[scale] // 4, eval_episodes=EPISODES[scale],
        )
        for env in ENVIRONMENTS
        for name, (algo, config) in configs(env, scale).items()
        for seed in (seeds if scale != "paper" or name in ("counted", "default") else seeds[:SIZES_OF_PAPER])
    ]  # fmt: skip


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    rows, table = [], []
    for env in ENVIRONMENTS:
        best = optimal_success(make(env, HORIZON[scale]).env)
        relative: dict[str, list[float]] = {name: [] for name in LABELS}
        for run in (r for r in runs if r.spec.env == env):
            name = run.spec.group.removesuffix(f"-{env}")
            relative[name].append(run.result["success_rate"] / best)
            forward = run.forward_success() / best if name == "foobar" else ""
            if name == "foobar":
                relative["forward"].append(float(forward))
            final = run.result["success_rate"] / best
            rows.append({**row_of(run), "relative_success": final, "forward_relative_success": forward})
        table.append([f"{env}, ours", *(spread(values) if values else "" for values in relative.values())])
        if any(PAPER[env]):
            table.append([f"{env}, paper", *PAPER[env], "", "", ""])
    write_csv(out / "inadmissible.csv", rows)
    return markdown(["", *LABELS.values()], table)
