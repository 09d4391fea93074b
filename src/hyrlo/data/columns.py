"""Which columns of a table are the state, and which say when and in which episode it was.

A column that looks like an index, a time or the end of an episode is asked about: it is a part of the state only if it is
named in `observations`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.data.formats import OBSERVATIONS, TIMESTEPS

EPISODE_WORDS = {"episode", "episodes", "ep", "traj", "trajectory", "demo", "demonstration", "rollout"}
INDEX_WORDS = EPISODE_WORDS | {
    "index",
    "idx",
    "id",
    "frame",
    "row",
    "unnamed",
    "step",
    "steps",
    "timestep",
    "timesteps",
}
TIME_WORDS = {
    "time",
    "timestamp",
    "timestamps",
    "stamp",
    "sec",
    "secs",
    "seconds",
    "nsec",
    "nsecs",
    "nanosec",
    "ros",
    "header",
}
END_WORDS = {"is", "next", "done", "dones", "terminal", "terminals", "terminated", "terminations"}
CUT_WORDS = {"is", "next", "timeout", "timeouts", "truncated", "truncation", "truncations"}
OTHER_WORDS = {"action", "actions", "reward", "rewards"}
LEROBOT = ("episode_index", "frame_index")
"""Columns of LeRobot's tables: they number the episodes and the states of each. The states are `observation.…`."""
LEROBOT_STATES = "observation."
COUNTED_ROWS, COUNTED_EPISODES = 8, 3
"""Rows that a counter has at least, and different numbers of episodes, before their values give them away."""
COUNTS = ("an episode number", "an index", "the number of a row")
"""What `--episode` may be the answer to."""
SHOWN = 8
"""Columns that a message lists."""


@dataclass(frozen=True)
class ColumnOptions:
    """What the user says of the columns (or arrays) of a source; `timesteps` None is the default name."""

    observations: str | None = None
    timesteps: str | None = None
    episode: str | None = None
    time: str | None = None
    rate: float | None = None
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise DataError(f"--rate is {self.rate:g}; give the number of steps per second, above 0")
        if self.time is not None and self.timesteps is not None:
            raise DataError("--time and --timesteps: give one of them, seconds or whole-numbered steps")

    @classmethod
    def of(
        cls,
        observations: str,
        timesteps: str,
        episode: str | None,
        time: str | None,
        rate: float | None,
        ignore: str | Iterable[str],
    ) -> ColumnOptions:
        """From the options of `read_states`; `ignore` may be a comma list."""
        ignored = [ignore] if isinstance(ignore, str) else list(ignore)
        return cls(
            None if observations == OBSERVATIONS else observations,
            None if timesteps == TIMESTEPS else timesteps,
            episode, time, rate, tuple(name for word in ignored for name in names_in(word)),
        )  # fmt: skip

    def given(self) -> list[str]:
        """The options that are not left at their defaults."""
        return [f"--{name}" for name, value in vars(self).items() if value not in (None, ())]


@dataclass(frozen=True)
class Roles:
    """What each column is for. `named` says that the user has named those of the state."""

    states: list[str]
    timesteps: str | None = None
    seconds: str | None = None
    episode: str | None = None
    ended: str | None = None
    left_out: tuple[str, ...] = ()
    named: bool = False

    @property
    def numbers(self) -> list[str]:
        """Columns to read as numbers."""
        return list(dict.fromkeys([*filter(None, (self.timesteps, self.seconds)), *self.states]))

    @property
    def labels(self) -> list[str]:
        """Columns to read as they are written."""
        return [name for name in (self.episode, self.ended) if name is not None]


def names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def choose(source: str, options: ColumnOptions, found: Sequence[str], no_numbers: Sequence[str] = ()) -> Roles:
    """The roles of the columns `found`; `no_numbers` are those whose type is not numeric."""
    for name, times in Counter(found).items():
        if times > 1:
            raise DataError(f"{source}: has {times} columns named {name}; give each a name of its own")
    for option, given in (("--episode", options.episode), ("--time", options.time)):
        if given is not None:
            _check_there(source, given, found, f"give another {option}")
    for name in options.ignore:
        _check_there(source, name, found, "leave it out of --ignore")
    lerobot = set(LEROBOT) <= set(found) and TIMESTEPS not in found
    episode = options.episode or (LEROBOT[0] if lerobot and LEROBOT[0] not in options.ignore else None)
    seconds = _seconds(source, found, options)
    timesteps = None if seconds else _timesteps(source, found, options, episode)
    ended = next((n for n in found if episode and _made_of(n, END_WORDS) and n not in options.ignore), None)
    roles = {n for n in (timesteps, seconds, episode, ended) if n is not None}
    cuts = {name for name in found if episode and _made_of(name, CUT_WORDS)}  # nothing that the last rows do not say
    rest = [name for name in found if name not in {*roles, *cuts, *options.ignore}]
    if options.observations is not None:
        states = _named_states(source, found, options.observations)
    else:
        states = [n for n in rest if n.startswith(LEROBOT_STATES) and n not in no_numbers] if lerobot else []
        states = states or rest
    if not states:
        but = ", ".join(sorted(roles)) or "those to ignore"
        raise DataError(f"{source}: has no column but {but}; give one for each dimension of the state")
    left_out = tuple(name for name in found if name not in roles and name not in states)
    named = options.observations is not None or (lerobot and states is not rest)
    return Roles(states, timesteps, seconds, episode, ended, left_out, named)


def _check_there(source: str, name: str, found: Sequence[str], then: str) -> None:
    if name not in found:
        raise DataError(f"{source}: has no column named {name} (found {', '.join(found) or 'nothing'}); {then}")


def _seconds(source: str, found: Sequence[str], options: ColumnOptions) -> str | None:
    if options.time is not None or options.rate is None:
        return options.time
    if options.timesteps is not None:
        raise DataError("--rate is for seconds, --timesteps for whole numbers; give --time NAME for the seconds")
    times = [name for name in found if _made_of(name, TIME_WORDS)]
    if len(times) != 1:
        raise DataError(
            f"{source}: --rate needs a column of seconds, but {_listed(times) if times else 'no column'} looks like one "
            f"(found {', '.join(found)}); give --time NAME"
        )
    return times[0]


def _timesteps(source: str, found: Sequence[str], options: ColumnOptions, episode: str | None) -> str | None:
    """The column of the timesteps; with episodes none is needed, the order of the rows will do."""
    if options.timesteps is None and TIMESTEPS not in found and episode is not None:
        frames = LEROBOT[1]
        return frames if frames in found and frames not in options.ignore else None
    name = options.timesteps or TIMESTEPS
    _check_there(
        source, name, found,
        "rename it, or use `hyrlo data import --timesteps NAME`, for seconds --time NAME --rate HZ, for rows in their order "
        "--episode NAME",
    )  # fmt: skip
    return name


def _named_states(source: str, found: Sequence[str], observations: str) -> list[str]:
    """The columns of a comma list; `x` also stands for columns `x[0]`, `x[1]`, …"""
    states: list[str] = []
    for name in names_in(observations):
        parts = [one for one in found if re.fullmatch(re.escape(name) + r"\[\d+\]", one)]
        if name not in found and not parts:
            _check_there(source, name, found, "rename it, or use `hyrlo data import --observations NAME,NAME,…`")
        states += [name] if name in found else parts
    return states


def check_states(source: str, roles: Roles, numbers: Mapping[str, np.ndarray], timesteps: np.ndarray | None) -> None:
    """Ask about columns that look like anything but a state. Columns that the user has named are what they are."""
    if roles.named:
        return
    looks = {name: _looks_like(name, numbers[name], timesteps) for name in roles.states}
    asked = {name: what for name, what in looks.items() if what}
    if asked:
        first, what = next(iter(asked.items()))
        others = f" (also {_listed(list(asked)[1:])})" if len(asked) > 1 else ""
        states = [name for name in roles.states if name not in asked]
        raise DataError(
            f"{source}: column {first} looks like {what}, not like a state{others}; with `hyrlo data import` give "
            f"{_answer(first, what)}--ignore {','.join(asked)}, or name the columns of the state: "
            f"--observations {','.join(states[:SHOWN]) or first}{',…' if len(states) > SHOWN else ''}"
        )


def _answer(name: str, what: str) -> str:
    if what == "a time":
        return f"--time {name} --rate HZ if it says when a row was, or "
    return f"--episode {name} if it numbers the episodes, or " if what in COUNTS else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _looks_like(name: str, values: np.ndarray, timesteps: np.ndarray | None) -> str | None:
    """What else a column may be, in words, by its name and its values."""
    words = _words(name)
    if _made_of(name, TIME_WORDS):
        return "a time"
    if _made_of(name, END_WORDS) or _made_of(name, CUT_WORDS):
        return "the end of an episode"
    if words and (words[0] in OTHER_WORDS or words[-1] in OTHER_WORDS - {"action", "actions"}):
        return "an action or a reward"
    if values.ndim > 1 or values.size == 0 or not _is_whole(values):
        return None
    if EPISODE_WORDS & set(words):
        return "an episode number"
    if INDEX_WORDS & set(words):
        return "an index"
    return _by_values(values, timesteps)


def _by_values(values: np.ndarray, timesteps: np.ndarray | None) -> str | None:
    changes = np.diff(values)
    if len(values) >= COUNTED_ROWS and values[0] in (0, 1) and (changes == 1).all():
        return "the number of a row"
    if timesteps is not None and len(values) >= COUNTED_ROWS and np.array_equal(values, timesteps):
        return "a copy of the timesteps"
    different = 1 + int((changes == 1).sum())
    counting = ((changes == 0) | (changes == 1)).all() and COUNTED_EPISODES <= different <= len(values) / 2
    if not counting or timesteps is None:
        return "an episode number" if counting else None
    # Within an episode, no timestep comes twice.
    pairs = np.stack([values, timesteps])
    order = np.lexsort(pairs)
    return None if (np.diff(pairs[:, order]) == 0).all(axis=0).any() else "an episode number"


def _is_whole(values: np.ndarray) -> bool:
    head = values[:1000]
    if not (np.isfinite(head).all() and (head == np.rint(head)).all()):
        return False
    return bool(np.isfinite(values).all() and (values == np.rint(values)).all())


def _words(name: str) -> list[str]:
    """`Unnamed: 0` and `trajId_2` as words, without numbers."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def _made_of(name: str, words: set[str]) -> bool:
    """Whether a name consists of these words, one of which is more than a prefix."""
    own = set(_words(name))
    return own <= words and bool(own - {"is", "next", "ros", "header"})
