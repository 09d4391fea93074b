"""Environments by name: `make("lock", horizon=100)`."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax

from hyrlo.access import JaxResetModel, JaxTraceModel, Spec
from hyrlo.data import ObservationDataset
from hyrlo.envs.lock import Lock, LockConfig, behaviour_observations
from hyrlo.errors import HyrloError

ENVIRONMENTS = {
    "lock": "rich-observation combination lock; any horizon, 10 actions, random search needs 10^H episodes",
}
DEFAULT_HORIZON = 100

gymnasium.register(
    "hyrlo/CombinationLock-v0",
    entry_point="hyrlo.envs.gym_lock:CombinationLock",
    vector_entry_point="hyrlo.envs.gym_lock:VectorCombinationLock",
)


@dataclass(frozen=True)
class World:
    """A named environment: hands out access models and, where the paper defines them, behaviour data."""

    name: str
    env: Lock

    @property
    def spec(self) -> Spec:
        return self.env.spec

    @property
    def options(self) -> dict[str, Any]:
        return dataclasses.asdict(self.env.config)

    def trace_model(self) -> JaxTraceModel:
        return JaxTraceModel(self.env)

    def reset_model(self) -> JaxResetModel:
        return JaxResetModel(self.env)

    def behaviour_data(self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None) -> ObservationDataset:
        """States of the paper's ε-greedy behaviour policy (ε = 1/H unless told)."""
        key = jax.random.fold_in(jax.random.key(seed), 1)
        observations = behaviour_observations(self.env, key, episodes, epsilon)
        return ObservationDataset.from_trajectories(observations, f"{self.name} behaviour data, seed {seed}")


def make(name: str, horizon: int | None = None, **options: Any) -> World:
    """The environment called `name`; options are the fields of its config."""
    check_name(name, ENVIRONMENTS, "environment")
    unknown = [o for o in options if o not in {f.name for f in dataclasses.fields(LockConfig)}]
    if unknown:
        raise HyrloError(
            f"{name}: no option {unknown[0]}{nearest(unknown[0], [f.name for f in dataclasses.fields(LockConfig)])}"
        )
    return World(name, Lock.create(DEFAULT_HORIZON if horizon is None else horizon, LockConfig(**options)))


def nearest(name: str, known: Any) -> str:
    """`; did you mean …?`, if something is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f"; did you mean {close[0]}?" if close else ""


def check_name(name: str, known: Any, kind: str) -> None:
    if name not in known:
        hint = nearest(name, known)
        raise HyrloError(
            f"unknown {kind} {name!r}{hint}{' (see' if hint else '; see'} `hyrlo list`{')' if hint else ''}"
        )
