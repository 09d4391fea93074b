"""Short help: `--help` shows the usual options of a config, `--help-all` all of them.

A config class names its other options in `expert`. They are accepted all the same.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import docstring_parser


def usual(config: Any) -> Any:
    """The config with its usual options only, for help: a dataclass of its own, with the same names, defaults and texts."""
    kind, texts = type(config), docstrings(type(config))
    hints, fields = typing.get_type_hints(kind, include_extras=True), []
    for field in dataclasses.fields(config):
        if field.name in getattr(kind, "expert", ()):
            continue
        value, hint = getattr(config, field.name), hints[field.name]
        if dataclasses.is_dataclass(value):
            value = usual(value)
            hint = type(value)
        text = {"help": texts.get(field.name, "")}
        fields.append((field.name, hint, dataclasses.field(default=value, metadata=text)))
    made: Any = dataclasses.make_dataclass(kind.__name__, fields, frozen=True)
    made.__doc__ = kind.__doc__
    return made()


def docstrings(kind: type) -> dict[str, str]:
    """The texts below the fields of a dataclass, inherited ones included."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            described = docstring_parser.parse_from_object(base).params
            texts |= {param.arg_name: param.description or "" for param in described}
    return texts


def count(config: Any) -> int:
    """The number of options of a config."""
    values = [getattr(config, field.name) for field in dataclasses.fields(config)]
    return sum(count(value) if dataclasses.is_dataclass(value) else 1 for value in values)
