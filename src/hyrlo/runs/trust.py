"""The environment that a run directory names. What the files of others name is not imported unless the user trusts them.

Names of hyrlo's table and ids that installed packages register with Gymnasium need no trust. `gym:MODULE:ID` does: making it
imports MODULE. So do arguments of an environment with text that could name a module or a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyrlo.core import strict_json
from hyrlo.core.errors import HyrloError
from hyrlo.core.ranges import read_options, shown
from hyrlo.envs import World, make
from hyrlo.envs.registry import CUSTOM, FROM_OBJECT, GYM, config_class

PLAIN = re.compile(r"[A-Za-z0-9_ -]{0,60}")
"""Text that names no module, file or address."""
HOW = "if you trust whoever made this run, add --trust (in Python: trust=True)"


def world_of_run(file: Path, settings: Mapping[str, Any], trust: bool = False) -> World:
    """The environment that `file`, a run's `config.json`, describes in its `settings`."""
    name, options = settings["env"], dict(settings["env_options"])
    if not options.get(FROM_OBJECT) and not name.startswith(CUSTOM):  # else `make` says what to do
        if not trust:
            check_untrusted(file, name, options)
        check_options_of(file, name, options)
    try:
        return make(name, settings["horizon"], **options)
    except HyrloError as error:
        modules = "; modules are not looked for in the current folder: set PYTHONPATH"
        missing = trust and isinstance(error.__cause__, ImportError)
        raise HyrloError(f"{file}: {error}{modules if missing else ''}") from error
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise HyrloError(f"{file}: does not describe an environment ({error}); restore the file") from error


def check_options_of(file: Path, name: str, options: Mapping[str, Any]) -> None:
    """Reject options that an environment does not have, or values that they do not take."""
    try:
        kind: Any = config_class(name)
    except HyrloError as error:
        raise HyrloError(f"{file}: env: {error}") from None
    if kind is not None:
        read_options(kind, options, f"{file}: env_options")
    elif options:
        raise HyrloError(f"{file}: env_options: {name} has no options; restore the file")


def check_untrusted(file: Path, name: str, options: Mapping[str, Any]) -> None:
    """Reject what only a user who trusts the file may make."""
    if name.startswith(GYM) and ":" in name.removeprefix(GYM):
        module = name.removeprefix(GYM).rpartition(":")[0]
        raise HyrloError(f"{file}: env is {shown(name)}, which would import module {shown(module)}; {HOW}")
    check_arguments(file, options)


def check_arguments(file: Path, options: Mapping[str, Any]) -> None:
    """Reject arguments of the environment that may name a module or a file."""
    for text in _texts(_arguments(options.get("kwargs"))):
        if not PLAIN.fullmatch(text):
            raise HyrloError(
                f"{file}: env_options: kwargs have the text {shown(text)}, which may name a module or file; {HOW}"
            )


def _arguments(kwargs: Any) -> Any:
    """The arguments of an environment, written as JSON in JSON; other values are errors elsewhere."""
    try:
        return strict_json.parse(kwargs.encode()) if isinstance(kwargs, str) else kwargs
    except ValueError:
        return kwargs


def _texts(value: Any) -> list[str]:
    """All text in a JSON value, the names of fields included."""
    if isinstance(value, dict):
        return [text for part in (*value.keys(), *value.values()) for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []
