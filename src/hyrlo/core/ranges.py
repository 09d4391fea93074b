"""Options that are checked when they are made: the type and the range of a field stand in its annotation.

`batch: Count = 128` is a whole number of at least 1. A dataclass that extends `Options` refuses anything else with one line
that names the field, so that nothing unchecked reaches JAX or an environment. `read_options` does the same for values
that were read from a file.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from hyrlo.core.errors import HyrloError
from hyrlo.core.names import nearest

MOST_WHOLE = 2**31 - 1
"""What arrays are indexed with has 32 bits."""
MOST_FLOAT = 3.4e38
"""Of single precision."""
LONGEST = 60
"""Characters of a value that an error shows."""


class OptionError(HyrloError):
    """A value that a field does not take."""

    field: str = ""
    """The name of the field."""


@dataclass(frozen=True)
class Range:
    """The numbers that a field takes: from `low` to `high`, without the ends themselves if `above` or `below`."""

    low: float
    high: float
    _: dataclasses.KW_ONLY
    above: bool = False
    below: bool = False

    def __contains__(self, value: Any) -> bool:
        enough = value > self.low if self.above else value >= self.low
        return bool(enough and (value < self.high if self.below else value <= self.high))

    def rule(self, whole: bool) -> str:
        """What to give, in words."""
        kind = "a whole number" if whole else "a finite number"
        low = f"above {self.low:g}" if self.above else f"of at least {int(self.low) if whole else f'{self.low:g}'}"
        if self.high >= MOST_FLOAT:
            return kind if self.low <= -MOST_FLOAT else f"{kind} {low}"
        if whole:
            return f"{kind} from {int(self.low)} to {int(self.high)}"
        if self.above and self.below:
            return f"a number between {self.low:g} and {self.high:g}"
        if self.above:
            return f"a number above {self.low:g} and up to {self.high:g}"
        return f"a number from {self.low:g} to {'below ' if self.below else ''}{self.high:g}"


Count = Annotated[int, Range(1, MOST_WHOLE)]
CountOrZero = Annotated[int, Range(0, MOST_WHOLE)]
TwoOrMore = Annotated[int, Range(2, MOST_WHOLE)]
Seed = Annotated[int, Range(0, 2**63 - 1)]
Finite = Annotated[float, Range(-MOST_FLOAT, MOST_FLOAT)]
Positive = Annotated[float, Range(0, MOST_FLOAT, above=True)]
NonNegative = Annotated[float, Range(0, MOST_FLOAT)]
Share = Annotated[float, Range(0, 1)]
"""From 0 to 1, both included."""
AboveOne = Annotated[float, Range(1, MOST_FLOAT, above=True)]
PositiveShare = Annotated[float, Range(0, 1, above=True)]
ShareBelowOne = Annotated[float, Range(0, 1, below=True)]
InnerShare = Annotated[float, Range(0, 1, above=True, below=True)]
"""Between 0 and 1, neither included."""


@dataclass(frozen=True)
class Options:
    """A dataclass whose values are checked by the annotations of its fields."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, hint in hints_of(kind).items():
            check_value(name, getattr(self, name), hint)


Kind = TypeVar("Kind", bound=Options)


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of a dataclass's fields, ranges included."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def read_options(kind: type[Kind], values: Mapping[str, Any], where: str) -> Kind:
    """The dataclass with values of a file; one line that begins with `where` if they do not fit."""
    known = {field.name: field for field in dataclasses.fields(kind)}
    for name in values:
        if name not in known:
            raise OptionError(f"{where}: no option {shown(name)}{nearest(str(name), known)}")
    for name, field in known.items():
        if name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise OptionError(f"{where}: {name} is missing")
    try:
        return kind(**values)
    except OptionError as error:
        raise _named(OptionError(f"{where}: {error}"), error.field) from None


def check_value(name: str, value: Any, hint: Any) -> None:
    """Reject a value that is not of the annotated type and range."""
    if not _fits(value, hint):
        raise _named(OptionError(f"{name} is {shown(value)}; give {_rule(hint)}"), name)


def shown(value: Any) -> str:
    """A value as an error shows it: short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 100:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return "an object"
    text = "null" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"


def _named(error: OptionError, field: str) -> OptionError:
    error.field = field
    return error


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    return any(_fits_one(value, one) for one in _alternatives(hint))


def _fits_one(value: Any, hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        kind, *extras = typing.get_args(hint)
        ranges = [extra for extra in extras if isinstance(extra, Range)]
        return _fits(value, kind) and all(value in one for one in ranges)
    if typing.get_origin(hint) is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is float:  # a whole number may be too large to be turned into one
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return real and (isinstance(value, numbers.Integral) or math.isfinite(value))
    if hint is None:
        return value is None
    origin = typing.get_origin(hint) or hint
    return not isinstance(origin, type) or isinstance(value, origin)


def _rule(hint: Any) -> str:
    """What to give, in words; that it may be left out needs none."""
    return " or ".join(_rule_of_one(one) for one in _alternatives(hint) if one is not type(None))


def _rule_of_one(hint: Any) -> str:
    if typing.get_origin(hint) is Annotated:
        kind, *extras = typing.get_args(hint)
        ranges = [extra for extra in extras if isinstance(extra, Range)]
        return ranges[0].rule(whole=kind is int) if ranges else _rule(kind)
    if typing.get_origin(hint) is Literal:
        return " or ".join(typing.get_args(hint))
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text", dict: "an object",
             list: "a list"}  # fmt: skip
    kind = typing.get_origin(hint) or hint
    return names.get(kind, f"a {getattr(kind, '__name__', hint)}")
