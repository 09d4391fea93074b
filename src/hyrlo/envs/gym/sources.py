"""Where the copies of a Gymnasium environment come from: a registration, a function, or one object.

Worker processes import this module; it works in NumPy and needs no accelerator.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import io
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, load_env_creator, parse_env_id

from hyrlo.core.errors import HyrloError
from hyrlo.envs.gym.answers import answers_within, describe
from hyrlo.envs.gym.wrappers import Absorbing
from hyrlo.envs.registry import CUSTOM, GYM

LIBRARIES = ("gymnasium_robotics",)
"""Of hyrlo's extras: they register environments when they are imported."""
FACTORY = "give a function without arguments that makes the environment"


class Source(Protocol):
    """Makes copies of one environment."""

    @property
    def horizon(self) -> int: ...

    def env(self, **arguments: Any) -> gymnasium.Env:
        """A copy; `arguments` are those of `gymnasium.make`."""
        ...


def build(source: Source, index: int = 0, timeout: float | None = None) -> Absorbing:
    """The copy that plays row `index` of a batch."""
    with answers_within(timeout):
        env = source.env()
    return Absorbing(env, source.horizon, index, timeout)


@dataclass(frozen=True)
class Registered:
    """Copies by `gymnasium.make`. A registered time limit below the horizon does not cut the episode."""

    spec: EnvSpec
    kwargs: dict[str, Any]
    horizon: int

    def env(self, **arguments: Any) -> gymnasium.Env:
        arguments = {**self.kwargs, **arguments}
        return gymnasium.make(self.spec, max_episode_steps=self.horizon, disable_env_checker=True, **arguments)


@dataclass(frozen=True)
class Factory:
    """Copies by calling a function without arguments."""

    make: Callable[[], gymnasium.Env]
    horizon: int

    def env(self, **arguments: Any) -> gymnasium.Env:
        return _expect(call(self.make), arguments)


@dataclass(frozen=True)
class Single:
    """One environment object, of which there are no copies. It stays open: it belongs to the user."""

    played: gymnasium.Env
    horizon: int

    def env(self, **arguments: Any) -> gymnasium.Env:
        return _expect(_Borrowed(self.played), arguments)


class _Borrowed(gymnasium.Wrapper):
    def close(self) -> None:
        """Leave it to the owner."""


def _expect(env: gymnasium.Env, attributes: dict[str, Any]) -> gymnasium.Env:
    """The environment, if its attributes have the values that `gymnasium.make` would have been asked for."""
    for name, value in attributes.items():
        if getattr(env, name, None) != value:
            raise HyrloError(f"its {name} is {getattr(env, name, None)!r}; make the environment with {name}={value!r}")
    return env


def call(factory: Callable[[], Any]) -> gymnasium.Env:
    """The environment that a function makes."""
    env = factory()
    if not isinstance(env, gymnasium.Env):
        raise HyrloError(f"the function made a {type(env).__name__}, not a gymnasium.Env; {FACTORY}")
    return env


def source_of_name(name: str, arguments: dict[str, Any], horizon: int | None) -> Registered:
    """The environment that is called `gym:<id>` or `gym:<module>:<id>`."""
    return _registered(name, find_registration(name), arguments, horizon)


def source_of_object(given: Any, horizon: int | None) -> tuple[str, Source]:
    """The name and the source of an environment object, or of a function that makes one."""
    if isinstance(given, gymnasium.vector.VectorEnv) or not (isinstance(given, gymnasium.Env) or callable(given)):
        raise HyrloError(
            f"make: got a {type(given).__name__}; give the name of an environment, a gymnasium.Env, or a function "
            "without arguments that makes one"
        )
    if isinstance(given, gymnasium.Env):
        name = _name(given)
        if given.spec is not None:
            kwargs = {key: value for key, value in given.spec.kwargs.items() if key != "render_mode"}  # no windows
            return name, _registered(name, dataclasses.replace(given.spec, kwargs=kwargs), kwargs, horizon)
        return name, Single(given, _time_limit(name, given, horizon))
    try:
        env = call(given)
        name = _name(env)
        limit = _time_limit(name, env, horizon)
        env.close()
    except HyrloError as error:
        raise HyrloError(f"make: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit included
        raise HyrloError(f"make: the function raised {describe(error)}; {FACTORY}") from error
    return name, Factory(given, limit)


def _name(env: gymnasium.Env) -> str:
    return f"{CUSTOM}{type(env.unwrapped).__name__}" if env.spec is None else f"{GYM}{env.spec.id}"


def _time_limit(name: str, env: gymnasium.Env, horizon: int | None) -> int:
    limit = env.spec.max_episode_steps if horizon is None and env.spec is not None else horizon
    return _check_horizon(name, limit)


def _check_horizon(name: str, horizon: int | None) -> int:
    if horizon is None:
        raise HyrloError(f"{name}: has no time limit of its own; give --horizon")
    if horizon < 1:
        raise HyrloError(f"{name}: horizon is {horizon}; give at least 1")
    return horizon


def _registered(name: str, spec: EnvSpec, arguments: dict[str, Any], horizon: int | None) -> Registered:
    """An environment that takes a `horizon` is given it; the default of that argument is the last resort."""
    argument = _horizon_argument(spec)
    limits = (horizon, arguments.get("horizon"), spec.max_episode_steps, argument.default if argument else None)
    limit = _check_horizon(name, next((limit for limit in limits if isinstance(limit, int)), None))
    return Registered(spec, {"horizon": limit, **arguments} if argument else arguments, limit)


def _horizon_argument(spec: EnvSpec) -> inspect.Parameter | None:
    """The environment's argument of this name, if its default may be a number of steps."""
    try:
        argument = inspect.signature(creator(spec)).parameters.get("horizon")
    except Exception:  # making the environment will say what is wrong
        return None
    if argument is None or not isinstance(argument.default, int | None | type(inspect.Parameter.empty)):
        return None
    return argument


def creator(spec: EnvSpec) -> Any:
    """The class or function that a registration calls."""
    return load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point


def find_registration(name: str) -> EnvSpec:
    """The registration of `gym:<id>` or `gym:<module>:<id>`; without a version, the newest."""
    module, _, env_id = name.removeprefix(GYM).rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        namespace, short, version = parse_env_id(env_id)
        if not module and find_highest_version(namespace, short) is None:
            load_libraries()
        if version is None and (newest := find_highest_version(namespace, short)) is not None:
            env_id = f"{env_id}-v{newest}"
        return gymnasium.spec(env_id)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit of a module included
        known = isinstance(error, gymnasium.error.Error | ImportError)
        said = str(error).rstrip(".?") if known else describe(error)
        raise HyrloError(
            f"{name}: {said}; give an id that gymnasium.make knows, or gym:MODULE:ID where MODULE registers it"
        ) from error


def load_libraries() -> None:
    """Import the libraries that register more environments, where they are installed, without their messages."""
    with redirect_stderr(io.StringIO()):
        for library in LIBRARIES:
            if importlib.util.find_spec(library):
                importlib.import_module(library)
