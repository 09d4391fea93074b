"""Environments by name: `make("lock", horizon=100)`, `make("gym:CartPole-v1")`."""

from __future__ import annotations

import dataclasses
import difflib
import json
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import jax
from jaxtyping import PRNGKeyArray

from hyrlo.core.access import ResetModel, Spec, TraceModel
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxResetModel, JaxTraceModel
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs.gym.world import PREFIX, GymConfig, GymWorld
from hyrlo.envs.hammer import HORIZON as HAMMER_HORIZON
from hyrlo.envs.hammer import NAME as HAMMER
from hyrlo.envs.hammer import HammerConfig, HammerWorld
from hyrlo.envs.lock import (
    Lock,
    LockConfig,
    behaviour_observations,
    behaviour_trajectories,
    inadmissible_observations,
    inadmissible_occupancy,
)
from hyrlo.theory.discounted import NAME as DISCOUNTED
from hyrlo.theory.discounted import DiscountedConfig, DiscountedWorld
from hyrlo.theory.hardness import HARD, HARD_HORIZONS, make_hard

ENVIRONMENTS = {
    "lock": "rich-observation combination lock; any horizon, 10 actions, random search needs 10^H episodes",
    "lock-benign": "the lock with states that no policy can produce, yet harmless; at most 10 steps",
    "lock-adversarial": "such states, and a lock made so that matching them misleads; at most 10 steps, success 0.1 at best",
    HAMMER: "the Adroit hand drives in a nail; 50 steps, 26 joints; states from --data; needs hyrlo[robotics]",
    DISCOUNTED: "a random discounted MDP with an interactive offline distribution; one-hot states, no end",
    **HARD,
    "gym:<id>": "any Gymnasium environment, gym:<module>:<id> included; states from --data",
}
DEFAULT_HORIZONS = {"lock": 100, "lock-benign": 10, "lock-adversarial": 10, HAMMER: HAMMER_HORIZON, **HARD_HORIZONS}
INADMISSIBLE = {"lock-benign", "lock-adversarial"}
"""Environments whose data are drawn from fixed state probabilities; no policy made them."""

SIMULATED = (PREFIX, HAMMER)
"""How the names of environments begin that a simulator steps: far slower than those in JAX."""

gymnasium.register(
    "hyrlo/CombinationLock-v0",
    entry_point="hyrlo.envs.lock_gym:CombinationLock",
    vector_entry_point="hyrlo.envs.lock_gym:VectorCombinationLock",
)


class World(Protocol):
    """A named environment: hands out access models and, where the paper defines them, behaviour data."""

    @property
    def name(self) -> str: ...

    @property
    def env(self) -> Any:
        """What is behind the models, for those who know which environment it is; no algorithm looks at it."""
        ...

    @property
    def spec(self) -> Spec: ...

    @property
    def options(self) -> dict[str, Any]:
        """What `make` needs besides name and horizon to make the same world again."""
        ...

    def trace_model(self) -> TraceModel: ...

    def reset_model(self) -> ResetModel: ...

    def prepare(self, data: ObservationDataset) -> ObservationDataset:
        """States as this world's models show them, checked; data of another environment are refused."""
        ...

    def behaviour_data(
        self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None
    ) -> ObservationDataset: ...

    def behaviour_transitions(
        self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None
    ) -> TransitionDataset: ...


@dataclass(frozen=True)
class LockWorld:
    """A combination lock, with the paper's behaviour data."""

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

    def prepare(self, data: ObservationDataset) -> ObservationDataset:
        return data.for_horizon(self.spec.horizon, self.spec.observation_size)

    def behaviour_data(self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None) -> ObservationDataset:
        """States of the paper's ε-greedy behaviour policy (ε = 1/H unless told).

        For the inadmissible locks `episodes` states of each step, drawn from fixed probabilities.
        """
        if self.name not in INADMISSIBLE:
            observations = behaviour_observations(self.env, _data_key(seed), episodes, epsilon)
            return ObservationDataset.from_trajectories(observations, f"{self.name} behaviour data, seed {seed}")
        if epsilon is not None:
            raise HyrloError(f"{self.name}: epsilon is {epsilon}, but no policy made its data; leave epsilon out")
        states = inadmissible_observations(self.env, _data_key(seed), episodes)
        return ObservationDataset(tuple(states), f"{self.name} inadmissible data, seed {seed}")

    def behaviour_transitions(
        self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None
    ) -> TransitionDataset:
        """The episodes of `behaviour_data`, with the actions and rewards that canonical hybrid RL needs."""
        if self.name in INADMISSIBLE:
            raise HyrloError(
                f"{self.name}: its data are states drawn step by step, no policy made them, so there are no actions "
                "and rewards; use behaviour_data, or the lock"
            )
        trajectories = behaviour_trajectories(self.env, _data_key(seed), episodes, epsilon)
        return TransitionDataset.from_trajectories(*trajectories, f"{self.name} behaviour data, seed {seed}")


def _data_key(seed: int) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(seed), 1)


def make(name: str, horizon: int | None = None, **options: Any) -> World:
    """The environment called `name`; options are the fields of its config, `LockConfig`, `HammerConfig` or `GymConfig`."""
    if name.startswith(PREFIX):
        _check_options(name, options, GymConfig)
        if isinstance(options.get("kwargs"), dict):
            options["kwargs"] = json.dumps(options["kwargs"])
        return GymWorld(name, horizon, GymConfig(**options))
    check_name(name, ENVIRONMENTS, "environment")
    if name == HAMMER:
        _check_options(name, options, HammerConfig)
        return HammerWorld(horizon, HammerConfig(**options))
    if name == DISCOUNTED:
        _check_options(name, options, DiscountedConfig)
        return DiscountedWorld(horizon, DiscountedConfig(**options))
    if name in HARD:
        _check_options(name, options, None)
        return make_hard(name, horizon)
    _check_options(name, options, LockConfig)
    horizon = DEFAULT_HORIZONS[name] if horizon is None else horizon
    lock = Lock.create(horizon, LockConfig(**options), adversarial=name == "lock-adversarial")
    if name in INADMISSIBLE:
        inadmissible_occupancy(lock)  # refuses a horizon that its data do not have
    return LockWorld(name, lock)


def _check_options(name: str, options: dict[str, Any], config: Any) -> None:
    known = [field.name for field in dataclasses.fields(config)] if config else []
    unknown = [option for option in options if option not in known]
    if unknown:
        raise HyrloError(f"{name}: no option {unknown[0]}{nearest(unknown[0], known)}")


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
