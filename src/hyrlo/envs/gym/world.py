"""Any Gymnasium environment behind hyrlo's access models: `make("gym:CartPole-v1")`.

Episodes are played in batches of `num_envs` in lock-step. A roll-out is a function of key, policy and number of episodes
(and of `num_envs`, which decides which episodes draw their actions together), in this process or in workers.
"""

from __future__ import annotations

import functools
import json
import weakref
from dataclasses import dataclass
from typing import Annotated, Any, Self

import gymnasium

from hyrlo.core.access import Spec
from hyrlo.core.errors import DataError, HyrloError
from hyrlo.core.memory import require_memory
from hyrlo.core.ranges import Count, Options, Range
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs.gym.answers import describe
from hyrlo.envs.gym.model import GymResetModel, GymTraceModel
from hyrlo.envs.gym.sources import (
    FACTORY,
    Single,
    Source,
    build,
    creator,
    find_registration,
    source_of_name,
    source_of_object,
)
from hyrlo.envs.gym.vector import Vector
from hyrlo.envs.gym.wrappers import Absorbing, SetState
from hyrlo.envs.registry import FROM_OBJECT, check_options
from hyrlo.envs.world import SIMULATED, Traits, World

Seconds = Annotated[float, Range(0, 86_400, above=True)]
"""Up to a day; what is longer may as well be left out."""
ENV_MEMORY, WORKER_MEMORY = 2**14, 2**25
"""Bytes that the smallest environment takes, here and in a process of its own."""


@dataclass(frozen=True)
class GymConfig(Options):
    """How a Gymnasium environment is made and played."""

    num_envs: Count = 16
    """Episodes at a time; more amortise the policy better."""
    asynchronous: bool = False
    """Each environment in a worker process: for environments whose step takes far longer than a message, 0.1 ms."""
    kwargs: str = "{}"
    """Arguments of the environment, as a JSON object: '{"goal_velocity": 0.1}'."""
    timeout: Seconds | None = None
    """Seconds that one reset or step may take (default: any time)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arguments()

    def arguments(self) -> dict[str, Any]:
        """The environment's arguments."""
        try:
            arguments = json.loads(self.kwargs)
        except (ValueError, RecursionError) as error:
            shown = self.kwargs if len(self.kwargs) < 100 else f"{self.kwargs[:100]} …"
            raise HyrloError(f"kwargs is {shown!r}, which is not JSON ({error}); give a JSON object") from None
        if not isinstance(arguments, dict):
            raise HyrloError(f"kwargs is {self.kwargs!r}; give a JSON object, as '{{\"goal_velocity\": 0.1}}'")
        return arguments


class GymWorld(World):
    """A Gymnasium environment. Its access models share one vector of environments.

    An environment class may say which settings suit it, in a class attribute `hyrlo_traits`: a dict with fields of
    `Traits`, such as `{"eval_episodes": 1000}`.
    """

    env: Absorbing
    config: GymConfig
    default_traits = SIMULATED

    def __init__(self, name: str, source: Source, config: GymConfig, from_object: bool = False):
        self.name, self.source, self.config, self.from_object = name, source, config, from_object
        self.horizon = source.horizon
        self.env = self._first()
        self._check_memory()
        self.says_success = False
        """Whether any episode so far said something about success."""
        self._vector: Vector | None = None

    @classmethod
    def create(cls, name: str, horizon: int | None, config: GymConfig) -> Self:
        return cls(name, source_of_name(name, config.arguments(), horizon), config)

    @classmethod
    def traits_of(cls, name: str) -> Traits:
        try:
            made = creator(find_registration(name))
        except ImportError as error:  # the environment needs a library that is not installed
            raise HyrloError(f"{name}: cannot be made: {describe(error)}; check the id and --gym.kwargs") from error
        return SIMULATED.updated(name, getattr(made, "hyrlo_traits", {}))

    @property
    def traits(self) -> Traits:
        return SIMULATED.updated(self.name, getattr(self.env.unwrapped, "hyrlo_traits", {}))

    def _first(self) -> Absorbing:
        """The environment that is looked at for its sizes; played itself only if there are no copies."""
        try:
            return build(self.source, timeout=self.config.timeout)
        except HyrloError as error:
            raise HyrloError(f"{self.name}: {error}") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit included
            do = FACTORY if self.from_object else "check the id and --gym.kwargs"
            raise HyrloError(f"{self.name}: cannot be made: {describe(error)}; {do}") from error

    def _check_memory(self) -> None:
        """Reject more environments than fit."""
        count, each = self.config.num_envs, WORKER_MEMORY if self.config.asynchronous else ENV_MEMORY
        what = f"{self.name}: {count:,} environments"
        require_memory(count * (each + 16 * self.env.size), what, "give a smaller --gym.num-envs")

    @property
    def spec(self) -> Spec:
        space: Any = self.env.action_space
        discrete = isinstance(space, gymnasium.spaces.Discrete)
        actions, size = (int(space.n), 0) if discrete else (0, space.shape[0])
        return Spec(self.horizon, self.env.size + 1, actions, size, ends=True)

    @property
    def spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        return self.env.env.observation_space, self.env.env.action_space

    @property
    def options(self) -> dict[str, Any]:
        options = {**super().options, **({FROM_OBJECT: True} if self.from_object else {})}
        return {name: value for name, value in options.items() if value is not None}

    def trace_model(self) -> GymTraceModel:
        return GymTraceModel(self)

    def reset_model(self, set_state: SetState | None = None) -> GymResetModel:
        """`set_state(env, observation)` puts `env` into the state of `observation`; known environments need none."""
        try:
            return GymResetModel(self, set_state=set_state)
        except (HyrloError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise HyrloError(f"{self.name}: raised {describe(error)} when it was reset; fix the environment") from error

    def prepare(self, data: ObservationDataset) -> ObservationDataset:
        """Data of this environment's own observations, with the flag and absorbing states."""
        self._check_size(data)
        return data.with_ended(self.horizon)

    def prepare_transitions(self, data: TransitionDataset) -> TransitionDataset:
        """Tuples of this environment's own observations as its models record them: with the flag."""
        self._check_size(data)
        return super().prepare_transitions(data.with_ended(self.horizon))

    def _check_size(self, data: ObservationDataset | TransitionDataset) -> None:
        if data.observation_size != self.env.size:
            raise DataError(
                f"{data.source}: states have {data.observation_size} dimensions but {self.name} has {self.env.size}; "
                "give the environment's own observations, flattened"
            )

    def vector(self) -> Vector:
        """The environments, made when they are first needed, and again if a worker has died."""
        if self._vector is None or self._vector.closed:
            make = [functools.partial(build, self.source, i, self.config.timeout) for i in range(self.config.num_envs)]
            self._vector = Vector(self.name, make, self.config.asynchronous, self.config.timeout)
            weakref.finalize(self, Vector.close, self._vector)
        return self._vector

    def render_env(self) -> gymnasium.Env:
        return self.source.env(render_mode="rgb_array")


def world_of_object(given: Any, horizon: int | None, options: dict[str, Any]) -> GymWorld:
    """The world of an environment object, or of a function that makes environments."""
    name, source = source_of_object(given, horizon)
    check_options(name, options, GymConfig)
    if "kwargs" in options:
        raise HyrloError(f"{name}: kwargs are for environments by name; give them to the environment itself")
    if isinstance(source, Single):
        options = {"num_envs": 1, **options}
        if options["num_envs"] != 1 or options.get("asynchronous"):
            raise HyrloError(f"{name}: is one environment, of which no copies can be made; {FACTORY}")
    return GymWorld(name, source, GymConfig(**options), from_object=True)
