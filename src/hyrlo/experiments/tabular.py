"""How closely the default forward pass matches: random finite MDPs whose states are seen through noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import Spec
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.policies import Policy, Step
from hyrlo.data.states import ObservationDataset
from hyrlo.experiments.recipes import FIRST_SEED, Scale, seeds_of
from hyrlo.experiments.runner import markdown, say, write_csv
from hyrlo.forward.choose import MeasuredConfig
from hyrlo.forward.fail import fail
from hyrlo.runs.directory import MemoryRun
from hyrlo.runs.intervals import spread
from hyrlo.runs.training import config as configure
from hyrlo.theory.finite import Distributions, FiniteMDP, Table

SEEDS = {"smoke": 1, "quick": 10, "paper": 50}
HORIZON, ACTIONS, STATES, NOISE = 6, 4, (5, 20), 0.1
OFFLINE = {"smoke": 200, "quick": 2000, "paper": 2000}
"""Offline states per step."""
CLOSE = 0.05


class NoisyMDP(FiniteMDP):
    """A finite MDP whose states are seen as points with Gaussian noise."""

    points: Float[np.ndarray, "states obs"]

    @classmethod
    def create(cls, seed: int) -> NoisyMDP:
        """5 to 20 states at random points of unit length, in 8 to 40 dimensions."""
        rng = np.random.default_rng(seed)
        states, size = int(rng.integers(STATES[0], STATES[1] + 1)), int(rng.integers(8, 41))
        mdp = FiniteMDP.random(seed, HORIZON, states, ACTIONS)
        points = rng.normal(size=(states, size))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        return cls(mdp.initial_distribution, mdp.successors, mdp.probabilities, mdp.rewards, points.astype(np.float32))

    @property
    def spec(self) -> Spec:
        return Spec(self.horizon, self.points.shape[1], self.actions)

    def observe(self, key: PRNGKeyArray, latent: Int[Array, " n"], h: Step) -> Float[Array, "n obs"]:
        noise = jax.random.normal(key, (len(latent), self.points.shape[1]))
        return jnp.asarray(self.points)[latent] + NOISE * noise / jnp.sqrt(noise.shape[1] / 8)

    def behaviour(self, seed: int) -> Table:
        """A random policy."""
        return np.random.default_rng(seed).dirichlet(np.full(self.actions, 0.5), size=(self.horizon, self.states))

    def data(self, policy: Table, n: int, seed: int) -> tuple[ObservationDataset, Distributions]:
        """`n` states of every step, and their exact shares."""
        rng, key = np.random.default_rng(seed), jax.random.key(seed)
        drawn = [rng.choice(self.states, size=n, p=d / d.sum()) for d in self.occupancy(policy)]
        seen = [np.asarray(self.observe(jax.random.fold_in(key, h), jnp.asarray(z), h)) for h, z in enumerate(drawn)]
        shares = np.stack([np.bincount(z, minlength=self.states) / n for z in drawn])
        return ObservationDataset(tuple(seen), f"noisy MDP, seed {seed}"), shares

    def table_of(self, policy: Policy, draws: int = 2000) -> Table:
        """The action probabilities of a policy in every state, averaged over the noise."""
        latent = jnp.repeat(jnp.arange(self.states), draws)
        table = np.zeros(self.rewards.shape)
        for h in range(self.horizon):
            key = jax.random.fold_in(jax.random.key(0), h)
            taken = np.asarray(policy.act(key, self.observe(key, latent, h), h)).reshape(self.states, draws)
            table[h] = (taken[..., None] == np.arange(self.actions)).mean(axis=1)
        return table


def measure(seed: int, offline: int) -> dict[str, Any]:
    """Train FAIL as `hyrlo train fail` does and compare its exact occupancy with the shares of its data."""
    mdp = NoisyMDP.create(seed)
    behaviour = mdp.behaviour(seed)
    data, shares = mdp.data(behaviour, offline, seed)
    model, run = JaxTraceModel(mdp), MemoryRun(jax.random.key(seed))
    config: MeasuredConfig = configure("fail")
    occupancy = mdp.occupancy(mdp.table_of(fail(model, data, config, jax.random.key(seed), run)))
    distance, to_truth = (
        0.5 * np.abs(occupancy - other).sum(axis=1)[1:] for other in (shares, mdp.occupancy(behaviour))
    )
    return {
        "seed": seed, "states": mdp.states, "dimensions": mdp.points.shape[1], "choice": run.chosen["forward"]["choice"],
        "episodes": model.ledger.episodes, "tv_mean": distance.mean(), "tv_max": distance.max(), "tv_last": distance[-1],
        "tv_behaviour_max": to_truth.max(), "warnings": len(run.warnings),
    }  # fmt: skip


def compute(scale: Scale, seeds: int, out: Path) -> str:
    rows = []
    for seed in seeds_of(scale, seeds, FIRST_SEED[scale]):
        rows.append(measure(seed, OFFLINE[scale]))
        jax.clear_caches()  # every MDP has shapes of its own; compiled programs of all of them would not fit into memory
        say(f"{len(rows)}/{seeds}  {rows[-1]['states']} states: TV {rows[-1]['tv_max']:.3f} at most")
    write_csv(out / "tabular.csv", rows)
    names = {"tv_mean": "mean over steps", "tv_max": "worst step", "tv_last": "last step"}
    table = [
        [text, spread([r[name] for r in rows]), f"{max(r[name] for r in rows):.3f}",
         f"{sum(r[name] <= CLOSE for r in rows)} of {len(rows)}"]
        for name, text in names.items()
    ]  # fmt: skip
    table.append(["training episodes", spread([r["episodes"] for r in rows]), "", ""])
    return markdown(["total variation to the data", "MDPs", "worst", f"at most {CLOSE}"], table)
