"""Errors a user can act on. The command line prints them as one line and exits with code 2."""

import dataclasses
import math
import numbers
from typing import Any


class HyrloError(Exception):
    """Something the user can fix; the message says what is wrong, where, and what to do."""


def check_finite(settings: Any, prefix: str = "--") -> None:
    """Reject non-finite values in a dataclass and in those nested in it, by the names of their options."""
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), prefix + field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            check_finite(value, prefix if field.name == "config" else f"{name}.")
        elif isinstance(value, float) and not math.isfinite(value):
            raise HyrloError(f"{name} is {value}; give a finite number")


def check_seed(seed: int, name: str = "--seed") -> None:
    """Reject seeds that random number generators do not take."""
    whole = isinstance(seed, numbers.Integral) and not isinstance(seed, bool)
    if not (whole and 0 <= seed < 2**63):
        raise HyrloError(f"{name} is {seed if whole else repr(seed)}; give a whole number from 0 to 2^63 - 1")


class AccessError(HyrloError):
    """An algorithm was given a weaker access model than it needs."""


class DataError(HyrloError):
    """State data that cannot be used."""


class RunError(HyrloError):
    """A run directory that cannot be used as asked."""
