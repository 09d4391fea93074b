"""Environments by name. Imports neither JAX nor MuJoCo: a world is loaded when it is made."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyrlo.core.errors import HyrloError
from hyrlo.core.memory import require_memory
from hyrlo.core.names import check_name, load_object, nearest
from hyrlo.core.ranges import Count, check_value
from hyrlo.envs.world import Traits, World

if TYPE_CHECKING:
    import gymnasium

LOCK_ID = "hyrlo/CombinationLock-v0"
"""The lock in Gymnasium's own registry."""
GYM, CUSTOM = "gym:", "custom:"
"""How the names of Gymnasium environments begin, and of those that are known by no name."""
FROM_OBJECT = "from_object"
"""The option of worlds that were made from an environment object: a name alone does not make them again."""


LEAST_STEP = 64
"""Bytes of a step of the smallest world."""


@dataclass(frozen=True)
class Environment:
    """A line of the table: what to load for a name."""

    name: str
    summary: str
    load: str
    """`module:class` of the world."""
    config: str | None = None
    """`module:class` of its options; None if it has none."""
    option_prefix: str | None = None
    """Its options on the command line are `--PREFIX.*`."""
    horizon: int | None = None
    """The default; None if the world itself knows one."""

    def world_class(self) -> type[World]:
        return load_object(self.load)

    def config_class(self) -> type | None:
        return None if self.config is None else load_object(self.config)


LOCK, LOCK_OPTIONS = "hyrlo.envs.lock_world:LockWorld", "hyrlo.envs.lock:LockConfig"
HARD = "hyrlo.theory.hardness:HardWorld"
ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment(
            "lock",
            "rich-observation combination lock; any horizon, 10 actions, random search needs 10^H episodes",
            LOCK, LOCK_OPTIONS, "lock", 100,
        ),
        Environment(
            "lock-benign",
            "the lock with states that no policy can produce, yet harmless; at most 10 steps",
            LOCK, LOCK_OPTIONS, "lock", 10,
        ),
        Environment(
            "lock-adversarial",
            "such states, and a lock made so that matching them misleads; at most 10 steps, success 0.1 at best",
            LOCK, LOCK_OPTIONS, "lock", 10,
        ),
        Environment(
            "hammer-binary",
            "the Adroit hand drives in a nail; 50 steps, 26 joints; states from --data; needs hyrlo[robotics]",
            "hyrlo.envs.hammer:HammerWorld", "hyrlo.envs.hammer:HammerConfig", "hammer", 50,
        ),
        Environment(
            "discounted",
            "a random discounted MDP with an interactive offline distribution; one-hot states, no end",
            "hyrlo.theory.discounted:DiscountedWorld", "hyrlo.theory.discounted:DiscountedConfig", "discounted",
        ),
        Environment(
            "hard-tree",
            "a tree with states that no policy can produce: matching them takes 2^(H-1) episodes, with resets 4 a step do",
            HARD, horizon=4,
        ),
        Environment(
            "hard-tv",
            "two steps; the deterministic policy closest to the data in total variation misses all reward; 0.1 at best",
            HARD, horizon=2,
        ),
        Environment(
            "gym:<id>",
            "any Gymnasium environment, gym:<module>:<id> included; states from --data",
            "hyrlo.envs.gym.world:GymWorld", "hyrlo.envs.gym.world:GymConfig", "gym",
        ),
    )
}  # fmt: skip


def find(name: str) -> Environment:
    """The line of an environment name; `gym:<id>` for all that begin with `gym:`."""
    if name.startswith(GYM):
        return ENVIRONMENTS["gym:<id>"]
    check_name(name, ENVIRONMENTS, "environment")
    return ENVIRONMENTS[name]


def config_class(name: str) -> type | None:
    """The dataclass of an environment's options; None if it has none."""
    return find(name).config_class()


def traits_of(name: str) -> Traits:
    """The settings that suit an environment, without making it."""
    return find(name).world_class().traits_of(name)


def make(
    source: str | gymnasium.Env | Callable[[], gymnasium.Env], horizon: int | None = None, **options: Any
) -> World:
    """The world of an environment name, of a Gymnasium environment, or of a function that makes one.

    Options are the fields of the environment's config, such as `LockConfig` or `GymConfig`. An environment object that
    has a `spec` is copied with `gymnasium.make(env.spec)`. One without is played itself, an episode at a time; a function
    without arguments is called for each copy.
    """
    check_value("horizon", horizon, Count | None)
    if not isinstance(source, str):
        return load_object("hyrlo.envs.gym.world:world_of_object")(source, horizon, options)
    if options.get(FROM_OBJECT) or source.startswith(CUSTOM):
        raise HyrloError(f"{source}: was made from an environment object; pass the world")
    environment = find(source)
    kind = environment.config_class()
    check_options(source, options, kind)
    if horizon is not None:  # of every step at least a state is kept
        require_memory(horizon * LEAST_STEP, f"{source}: horizon {horizon:,}", "give a smaller --horizon")
    if isinstance(options.get("kwargs"), dict):
        options["kwargs"] = json.dumps(options["kwargs"])
    config = None if kind is None else kind(**options)
    return environment.world_class().create(source, environment.horizon if horizon is None else horizon, config)


def check_options(name: str, options: Iterable[str], config: Any) -> None:
    """Reject options that are not fields of the config."""
    known = [field.name for field in dataclasses.fields(config)] if config else []
    for option in options:
        if option not in known:
            raise HyrloError(f"{name}: no option {option}{nearest(option, known)}")
