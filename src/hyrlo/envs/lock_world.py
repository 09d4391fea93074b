"""The combination locks as worlds, with the paper's offline data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxResetModel, JaxTraceModel
from hyrlo.core.keys import Keys
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs.lock import (
    Lock,
    LockConfig,
    behaviour_observations,
    behaviour_trajectories,
    inadmissible_observations,
    inadmissible_occupancy,
)
from hyrlo.envs.registry import LOCK_ID
from hyrlo.envs.world import World

if TYPE_CHECKING:
    import gymnasium

INADMISSIBLE = {"lock-benign", "lock-adversarial"}
"""Locks whose data are drawn from fixed state probabilities; no policy produced them."""


class LockWorld(World):
    """A combination lock, with the paper's behaviour data."""

    env: Lock
    config: LockConfig

    def __init__(self, name: str, lock: Lock):
        self.name, self.env, self.config = name, lock, lock.config

    @classmethod
    def create(cls, name: str, horizon: int | None, config: LockConfig) -> Self:
        lock = Lock.create(100 if horizon is None else horizon, config, adversarial=name == "lock-adversarial")
        if name in INADMISSIBLE:
            inadmissible_occupancy(lock)  # rejects a horizon that its data do not have
        return cls(name, lock)

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def trace_model(self) -> JaxTraceModel:
        return JaxTraceModel(self.env)

    def reset_model(self) -> JaxResetModel:
        return JaxResetModel(self.env)

    def behaviour_data(self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None) -> ObservationDataset:
        """States of the paper's ε-greedy behaviour policy; ε is 1/H by default.

        For the inadmissible locks `episodes` states of each step, drawn from fixed probabilities.
        """
        if self.name not in INADMISSIBLE:
            observations = behaviour_observations(self.env, Keys.of_seed(seed).data, episodes, epsilon)
            return ObservationDataset.from_trajectories(observations, f"{self.name} behaviour data, seed {seed}")
        if epsilon is not None:
            raise HyrloError(f"{self.name}: epsilon is {epsilon}, but no policy made its data; leave epsilon out")
        states = inadmissible_observations(self.env, Keys.of_seed(seed).data, episodes)
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
        trajectories = behaviour_trajectories(self.env, Keys.of_seed(seed).data, episodes, epsilon)
        return TransitionDataset.from_trajectories(*trajectories, f"{self.name} behaviour data, seed {seed}")

    def render_env(self) -> gymnasium.Env:
        if self.env.adversarial:
            raise HyrloError("cannot be rendered: it has no Gymnasium environment; lock and lock-benign have")
        import gymnasium

        arguments = {"render_mode": "rgb_array", "horizon": self.env.horizon, **self.options}
        return gymnasium.make(LOCK_ID, disable_env_checker=True, **arguments)
