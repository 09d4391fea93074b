"""What an environment answers, checked: nothing but states, rewards and ends may pass for them.

Worker processes import this module; it works in NumPy and needs no accelerator.
"""

from __future__ import annotations

import signal
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from jaxtyping import Shaped

from hyrlo.core.errors import HyrloError

FLATTENED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
LONGEST_SHOWN = 60
"""Characters of a value that a message shows."""


class WrongAnswer(Exception):
    """The environment returned something else than Gymnasium's interface says; the message begins with a verb."""


class NoAnswer(BaseException):
    """The environment took too long. Not an `Exception`, so that its own handlers let it pass."""


def unpacked(answer: Any, what: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """The parts of what `reset` or `step` returned; the last is `info`, a dict."""
    if not isinstance(answer, tuple | list) or len(answer) != len(names):
        got = f"{len(answer)} values" if isinstance(answer, tuple | list) else shown(answer)
        raise WrongAnswer(f"returned {got} from {what}, not {', '.join(names)}")
    if not isinstance(answer[-1], Mapping):
        raise WrongAnswer(f"returned {shown(answer[-1])} as info, which is not a dict")
    return tuple(answer)


def number_of(value: Any) -> float:
    """A reward: one real number, also in an array of one element."""
    if type(value) is float:
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise WrongAnswer(f"returned {shown(value)} as reward, which is not one real number")
    return float(array.item())


def truth_of(value: Any, name: str) -> bool:
    """`terminated` or `truncated`."""
    if value is True or value is False:
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "fiub" or array not in (0, 1):
        raise WrongAnswer(f"returned {shown(value)} as {name}, which is neither True nor False")
    return bool(array)


def success_of(value: Any) -> bool:
    """`success` in an `info`: true or false, or an array of which any may be true."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise WrongAnswer(f"returned {shown(value)} as success, which is neither True nor False")
    return bool(array.any())


def flattener(space: spaces.Space) -> Callable[[Any], np.ndarray]:
    """A function from an observation of this space to a vector. Observations of other shapes or types are refused."""
    _check_flattened(space)
    if isinstance(space, spaces.Box):
        shape = space.shape
        return lambda observation: _numbers(observation, shape, "observation").ravel()

    def flat(observation: Any) -> np.ndarray:
        _check_member(observation, space, "observation")
        return np.asarray(flatten(space, observation))

    return flat


def _check_flattened(space: spaces.Space) -> None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for inner in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            _check_flattened(inner)
    elif not isinstance(space, FLATTENED):
        raise HyrloError(
            f"unsupported observation space {space}; Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of "
            "them can be flattened: wrap the environment, register that and give gym:MODULE:ID"
        )
    elif isinstance(space, spaces.Box) and (np.isnan(space.low).any() or np.isnan(space.high).any()):
        raise HyrloError(
            f"observation space {space} has bounds that are not numbers; give bounds, infinite ones if need be"
        )


def _numbers(observation: Any, shape: tuple[int, ...], what: str) -> Shaped[np.ndarray, "*shape"]:
    array = np.asarray(observation)
    if array.dtype.kind not in "fiub":
        raise WrongAnswer(f"returned {shown(observation)} as {what}, which has no real numbers")
    if array.shape != shape:
        raise WrongAnswer(f"returned an {what} of shape {array.shape} where its space has {shape}")
    return array


def _check_member(observation: Any, space: spaces.Space, what: str) -> None:
    """Reject what `flatten` would turn into a vector of another size, or of another meaning."""
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or set(observation) != set(space.spaces):
            raise WrongAnswer(f"returned {shown(observation)} as {what}, which has not the keys of its space {space}")
        for key, inner in space.spaces.items():
            _check_member(observation[key], inner, f"{what} {key}")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(observation, tuple | list) or len(observation) != len(space.spaces):
            raise WrongAnswer(f"returned {shown(observation)} as {what}, which has not the parts of its space {space}")
        for number, inner in enumerate(space.spaces):
            _check_member(observation[number], inner, f"{what} {number}")
    elif isinstance(space, spaces.Box):
        numbers = _numbers(observation, space.shape, what)
        if not np.can_cast(numbers.dtype, space.dtype, "same_kind") and numbers.dtype.kind == "f":
            raise WrongAnswer(f"returned {what} with fractions where its space {space} has whole numbers")
    elif not space.contains(observation):
        raise WrongAnswer(f"returned {shown(observation)} as {what}, which is not in its space {space}")


def shown(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray) and value.size > 4:
        return f"{value.dtype} of shape {value.shape}"
    return shortened(repr, value, LONGEST_SHOWN) or f"a {type(value).__name__}"


def describe(error: BaseException) -> str:
    """An error in one line: its type, message, file and line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = shortened(str, error, 300).rstrip(".")
    return f"{type(error).__name__}{': ' * bool(said)}{said} ({Path(last.filename).name}, line {last.lineno})"


def shortened(form: Callable[[Any], str], value: Any, width: int) -> str:
    """What an object says of itself; nothing if it fails at that."""
    try:
        return textwrap.shorten(form(value), width, placeholder=" …")
    except Exception:
        return ""


def hears_alarms() -> bool:
    """POSIX has alarms, and the main thread of a process hears them."""
    return hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()


@contextmanager
def answers_within(seconds: float | None) -> Iterator[None]:
    """Raise `NoAnswer` in the environment's own code after so long, where an alarm can be heard."""
    if seconds is None or not hears_alarms():
        yield
        return

    def stop(*_: Any) -> None:
        raise NoAnswer(f"gave no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # once more for code that swallows the first
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
