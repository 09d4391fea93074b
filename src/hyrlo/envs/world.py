"""What an environment is to the rest of hyrlo: access models, data, and the settings that suit it."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from hyrlo.core.errors import AccessError, HyrloError

if TYPE_CHECKING:  # this module stays light: the registry needs it, and it is read for every `--help`
    import gymnasium

    from hyrlo.core.access import ResetModel, Spec, TraceModel
    from hyrlo.data.states import ObservationDataset
    from hyrlo.data.transitions import TransitionDataset


@dataclass(frozen=True)
class Traits:
    """The settings that suit a world when the user does not choose."""

    curve_episodes: int = 200
    """Episodes of each evaluation along the learning curve."""
    eval_episodes: int = 1000
    """Episodes of the final evaluation."""
    horizon_from_data: bool = True
    """Whether the horizon of the data is the default horizon."""

    def updated(self, source: str, changes: Mapping[str, Any]) -> Traits:
        """With some of them changed; an unknown name or another type is an error of `source`."""
        known = {field.name: type(getattr(self, field.name)) for field in dataclasses.fields(self)}
        if not isinstance(changes, Mapping):
            raise HyrloError(f"{source}: hyrlo_traits is of type {type(changes).__name__}; give a dict")
        for name, value in changes.items():
            if name not in known:
                raise HyrloError(f"{source}: hyrlo_traits has {name!r}; the traits are {', '.join(known)}")
            if type(value) is not known[name] or value < 0:
                raise HyrloError(
                    f"{source}: {name} of hyrlo_traits is {value!r}; its type is {known[name].__name__}, from 0"
                )
        return dataclasses.replace(self, **changes)


SIMULATED = Traits(curve_episodes=20, eval_episodes=100)
"""For worlds that a simulator steps, far slower than those in JAX."""


class World(ABC):
    """An environment with its access models and, where it is defined, its behaviour data.

    A new environment is a subclass and a line in `hyrlo.envs.registry`. `create`, `spec` and `trace_model` are its own;
    the rest has defaults.
    """

    name: str
    env: Any
    """The environment behind the models. No algorithm looks at it."""
    config: Any = None
    """The dataclass of the options it was made with; None if it has no options."""
    default_traits = Traits()

    @classmethod
    @abstractmethod
    def create(cls, name: str, horizon: int | None, config: Any) -> Self:
        """The world called `name`; `config` is an instance of its config class, None if it has no options."""

    @classmethod
    def traits_of(cls, name: str) -> Traits:
        """The traits of the world called `name`, known before it is made."""
        return cls.default_traits

    @property
    def traits(self) -> Traits:
        """The settings that suit this world."""
        return self.default_traits

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """Horizon and sizes of states and actions."""

    @property
    def spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """The environment's own spaces of observations and actions."""
        from gymnasium import spaces

        spec, infinity = self.spec, float("inf")
        vectors = spec.action_size > 0
        actions = spaces.Box(-1.0, 1.0, (spec.action_size,)) if vectors else spaces.Discrete(spec.actions)
        return spaces.Box(-infinity, infinity, (spec.observation_size,)), actions

    @property
    def options(self) -> dict[str, Any]:
        """What `make` needs besides name and horizon to make the same world again."""
        return {} if self.config is None else dataclasses.asdict(self.config)

    @abstractmethod
    def trace_model(self) -> TraceModel:
        """Episodes from the initial distribution."""

    def reset_model(self) -> ResetModel:
        """Episodes from given states."""
        raise AccessError(
            f"{self.name}: an observation does not hold the simulator's state, so that there is no reset model; "
            "use an algorithm with trace access such as foobar"
        )

    def prepare(self, data: ObservationDataset) -> ObservationDataset:
        """The data as the states of this world's models, checked. Data of another environment are an error."""
        return data.for_horizon(self.spec.horizon, self.spec.observation_size)

    def prepare_transitions(self, data: TransitionDataset) -> TransitionDataset:
        """The same for tuples."""
        spec = self.spec
        return data.for_horizon(spec.horizon, spec.observation_size, spec.actions, spec.action_size)

    def behaviour_data(self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None) -> ObservationDataset:
        """Offline states that belong to this world."""
        raise self._no_behaviour_data()

    def behaviour_transitions(
        self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None
    ) -> TransitionDataset:
        """The same with actions and rewards."""
        raise self._no_behaviour_data()

    def _no_behaviour_data(self) -> HyrloError:
        return HyrloError(f"{self.name} has no behaviour data of its own; give --data")

    def render_env(self) -> gymnasium.Env:
        """One Gymnasium environment of this world with `render_mode="rgb_array"`."""
        raise HyrloError("cannot be rendered: it has no Gymnasium environment")
