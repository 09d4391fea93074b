"""The two estimators of the forward pass for action vectors, on the same task: importance weights against a learned model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hyrlo.core.serialize import load_policy
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import mmd2
from hyrlo.envs import World, make
from hyrlo.envs.gym.collect import collect_states
from hyrlo.experiments import plots
from hyrlo.experiments.behaviour import SwingUp
from hyrlo.experiments.recipes import HELD_OUT, Scale, smoke
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, write_csv
from hyrlo.forward.density import DensityConfig
from hyrlo.forward.model import VectorModelConfig
from hyrlo.runs.intervals import spread

SEEDS = {"smoke": 1, "quick": 1, "paper": 3}
ENV, HORIZON = "gym:Pendulum-v1", {"smoke": 3, "quick": 20, "paper": 40}
OPTIONS = {"num_envs": 50}
EPISODES = {"smoke": 40, "quick": 500, "paper": 1000}


def logs(world: World, seed: int, scale: Scale) -> ObservationDataset:
    return collect_states(world, [SwingUp()], EPISODES[scale], seed=seed)  # type: ignore[arg-type]


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    return [spec_of(estimator, seed, scale) for estimator in ("importance", "model") for seed in seeds]


def spec_of(estimator: Any, seed: int, scale: Scale) -> RunSpec:
    """The same samples and rounds for both."""
    importance = estimator == "importance"
    config: Any = DensityConfig(samples=200) if importance else VectorModelConfig(samples=200, share_steps=1)
    if scale == "smoke":
        config = smoke(config)
    return RunSpec(
        f"fail-{estimator}", "fail", ENV, HORIZON[scale], config, seed, curve_episodes=2, eval_episodes=50,
        options=OPTIONS, source=(logs, {"scale": scale}),
    )  # fmt: skip


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """The policies of the stored runs are rolled out once more, to compare real states with logs they have not seen."""
    rows, lines = [], {}
    for group, members in by_group(runs).items():
        distances = []
        for run in members:
            world = make(ENV, run.spec.horizon, **OPTIONS)
            unseen, more = (world.prepare(logs(world, offset + run.spec.seed, scale)) for offset in HELD_OUT)
            steps = tuple(range(run.spec.horizon))
            batch = world.trace_model().record(jax.random.key(0), load_policy(run.path), EPISODES[scale], steps)
            for h, states in enumerate(batch.next_states):
                held_out = jnp.asarray(unseen.at(h + 1))
                rows.append(
                    {
                        "estimator": group.removeprefix("fail-"), "seed": run.spec.seed, "step": h,
                        "mmd2": float(mmd2(states, held_out)), "floor": float(mmd2(jnp.asarray(more.at(h + 1)), held_out)),
                        "effective_sample_size": run.metrics[h].get("ess", 1.0), "steps": run.metrics[h]["steps"],
                        "commit": run.code,
                    }
                )  # fmt: skip
            distances.append([row["mmd2"] for row in rows[-run.spec.horizon :]])
        lines[group.removeprefix("fail-")] = distances
    write_csv(out / "estimators.csv", rows)
    plots.estimators(out / "estimators.png", rows)
    floor = [row["floor"] for row in rows]
    table = []
    for name, distances in lines.items():
        late = [d[-1] for d in distances]
        ess = [row["effective_sample_size"] for row in rows if row["estimator"] == name]
        table.append(
            [name, str(len(distances)), spread(np.mean(distances, axis=1).tolist()), spread(late), f"{min(ess):.3f}"]
        )
    table.append(["logs against logs", "", spread(floor), "", ""])
    return markdown(
        ["", "seeds", "MMD², mean over steps", "MMD² at the last step", "least effective sample size"], table
    )
