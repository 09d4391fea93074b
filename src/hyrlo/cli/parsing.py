"""tyro's parser with errors of one line, and options that depend on the chosen environment."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import field
from typing import Any, TypeVar

import tyro

from hyrlo.core.errors import HyrloError, check_finite
from hyrlo.core.ranges import OptionError
from hyrlo.envs.registry import ENVIRONMENTS, find

Args = TypeVar("Args")
HELP = ("-h", "--help", "--help-all")


def parse(kind: type[Args], argv: Sequence[str], prog: str, description: str | None = None) -> Args:
    """The options as an instance of the dataclass `kind`; tyro's errors are folded into one line."""
    return _parse(kind, argv, prog, description, unknown=False)


def parse_known(kind: type[Args], argv: Sequence[str], prog: str) -> Args:
    """As `parse`, but options that `kind` does not have are skipped, `--help` among them."""
    return _parse(kind, [word for word in argv if word not in HELP], prog, None, unknown=True)[0]


def unknown_options(kind: Any, argv: Sequence[str], prog: str) -> list[str]:
    """The options that `kind` does not have, as dotted names of fields."""
    words = _parse(kind, [word for word in argv if word not in HELP], prog, None, unknown=True)[1]
    given = [word.split("=")[0].removeprefix("--no-").removeprefix("--") for word in words if word.startswith("--")]
    return [name.replace("-", "_") for name in given]


def _parse(kind: Any, argv: Sequence[str], prog: str, description: str | None, unknown: bool) -> Any:
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            cli: Any = tyro.cli  # its overloads ask for a literal return_unknown_args
            args = cli(
                kind, args=list(argv), prog=prog, description=description, return_unknown_args=unknown,
                config=(tyro.conf.AvoidSubcommands,),
            )  # fmt: skip
    except SystemExit as stop:
        if not stop.code:
            raise
        raise HyrloError(f"{prog}: {_one_line(captured.getvalue())}; see `{prog} --help`") from None
    except OptionError as error:
        raise HyrloError(_by_option(error, argv)) from None
    check_finite(args[0] if unknown else args)
    return args


def _by_option(error: OptionError, argv: Sequence[str]) -> str:
    """The error with the name of the option as it was given."""
    given = [word.split("=")[0] for word in argv if word.startswith("--")]
    options = [option for option in given if option[2:].split(".")[-1].replace("-", "_") == error.field]
    return str(error).replace(error.field, options[0], 1) if len(options) == 1 else str(error)


def _one_line(box: str) -> str:
    """The first section of tyro's error box, and the option it suggests. tyro has no other way to get at its errors."""
    lines = [line.strip("│| \n") for line in box.splitlines() if not line.startswith(("╭", "╰", "+"))]
    sections = " ".join("\0" if line and set(line) <= set("─-") else line for line in lines).split("\0")
    said = [section.strip() for section in sections if section.strip()]
    # Without box corners a title comes first.
    wrong = said[1] if len(said) > 1 and len(said[0].split()) <= 2 else said[0]
    if value := re.search(r"Error parsing (--\S+): .*?\['(.*?)'\]", box.replace("\n", " ")):
        wrong = f"{value[1]} cannot be {value[2]!r}"
    meant = re.search(r"Perhaps you meant: (--\S+)", " ".join(lines))
    return wrong + (f"; did you mean {meant[1]}?" if meant else "")


def flags_of(kind: Any, prefix: str = "--") -> set[str]:
    """The options of a dataclass, or of those nested in an instance, that take no value."""
    found = set()
    for one in dataclasses.fields(kind):
        name, value = prefix + one.name.replace("_", "-"), getattr(kind, one.name, None)
        if one.type in (bool, "bool"):
            found.add(name)
        elif dataclasses.is_dataclass(value):
            found |= flags_of(value, f"{name}.")
    return found


def first_positional(argv: Sequence[str], kind: Any, *configs: Any) -> str | None:
    """The first word that is neither an option nor the value of one."""
    flags = set(HELP).union(*(flags_of(one) for one in (kind, *configs)))
    value_follows = False
    for word in argv:
        if word.startswith("-"):
            value_follows = "=" not in word and word not in flags and not word.startswith("--no-")
        elif value_follows:
            value_follows = False
        else:
            return word
    return None


def with_environment(kind: type[Args], env: str | None, argv: Sequence[str] = ()) -> type[Args]:
    """`kind` with the options of an environment, as `--lock.*` for the locks; those of others are errors."""
    environment = find(env) if env else None
    if env:
        check_prefixes(env, argv)
        search_here(env)
    config = environment.config_class() if environment else None
    if environment is None or config is None or environment.option_prefix is None:
        return kind
    return extended(kind, [(environment.option_prefix, config, field(default_factory=config))])


def search_here(env: str) -> None:
    """Look in the current folder as well for the MODULE of a `gym:MODULE:ID` that the user has typed."""
    if ":" in env.partition(":")[2] and "" not in sys.path:
        sys.path.append("")


def extended(
    kind: type[Args], fields: list[Any], mixins: Sequence[type] = (), before: Sequence[type] = ()
) -> type[Args]:
    """A dataclass with the fields of `before`, of `kind`, of `mixins`, and `fields`."""
    bases = (*reversed(mixins), kind, *before)
    made: Any = dataclasses.make_dataclass(kind.__name__, fields, bases=bases, kw_only=True)
    made.__doc__ = kind.__doc__
    return made


def check_prefixes(env: str, argv: Sequence[str]) -> None:
    """Reject the options of other environments."""
    own = find(env).option_prefix
    for prefix in {e.option_prefix for e in ENVIRONMENTS.values()} - {own, None}:
        if any(word.startswith(f"--{prefix}.") for word in argv):
            raise HyrloError(f"{env}: --{prefix}.* options are for other environments; leave them out")


def environment_options(args: Any) -> dict[str, Any]:
    """The options of the chosen environment, for `make`."""
    prefix = find(args.env).option_prefix
    return dataclasses.asdict(getattr(args, prefix)) if prefix else {}
