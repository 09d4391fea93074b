"""`hyrlo train --config FILE` and `--print-config`: the options of a run in a YAML or JSON file.

A file becomes words of the command line, which are then read like any others. The `config.json` of an earlier run is such a
file, too: its `config` says all fields, and those that differ from the defaults of their variant become options.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hyrlo.backward.variants import IMPROVE, STATIONARY
from hyrlo.cli.parsing import first_positional
from hyrlo.core.errors import HyrloError
from hyrlo.core.names import check_name, nearest
from hyrlo.core.variants import PRESETS, Choice, has_option
from hyrlo.envs.registry import GYM, find
from hyrlo.forward.variants import ESTIMATORS
from hyrlo.forward.witness import DISCRIMINATORS
from hyrlo.runs.algorithms import ALGORITHMS, Algorithm
from hyrlo.runs.training import describe_config
from hyrlo.runs.trust import check_arguments

RECORDED = (
    "format",
    "actions",
    "versions",
    "code",
    "machine",
    "resumed_with",
    "chosen",
    "command",
    "roll_in",
    "data",
    "checksum",
)
"""What `config.json` has besides options; `data` and `roll_in` are read by themselves."""
PRINTED = ("seeds", "preset", "forward", "improve", "discriminator", "explore", "data", "max_episodes", "roll_in",
           "curve_episodes", "eval_episodes", "tensorboard")  # fmt: skip
"""Options that `--print-config` prints if they are given, besides horizon and seed."""
LARGEST = 2**20
"""Bytes of a file."""
VARIANTS: dict[str, Sequence[str]] = {
    "preset": [*PRESETS], "forward": [*ESTIMATORS], "improve": [*dict.fromkeys([*IMPROVE, *STATIONARY])],
    "discriminator": [*DISCRIMINATORS],
}  # fmt: skip
Options = Callable[[Algorithm, str], Any]
"""The dataclass with the options of an algorithm in an environment, those of its config left out."""


def with_config_file(argv: Sequence[str], options: Options) -> list[str]:
    """The words of the command line in place of those and `--config FILE`; what is on the command line comes first."""
    file, rest = _taken(argv, "--config")
    if file is None:
        return list(argv)
    if sum(word.split("=")[0] == "--config" for word in argv) > 1:
        raise HyrloError("--config: is given twice; give one file, and other options on the command line")
    settings = _read(file)
    name = rest[0] if rest and not rest[0].startswith("-") else settings.get("algo")
    if not isinstance(name, str):
        raise HyrloError(f"{file}: names no algorithm; give `algo: foobar` or the like")
    check_name(name, ALGORITHMS, "algorithm")
    algorithm, words = ALGORITHMS[name], rest[1:] if rest and rest[0] == name else list(rest)
    env = _environment(file, settings, algorithm, words, options)
    words = words if env in words else [env, *words]
    given = {re.sub(r"^--(no-)?", "", word.split("=")[0]).replace("-", "_") for word in words if word.startswith("--")}
    found = _options_of(file, settings, algorithm, env, options, given)
    return [name, *words, *(word for key, value in found.items() if key not in given for word in _words(key, value))]


def _taken(argv: Sequence[str], option: str) -> tuple[str | None, list[str]]:
    """The value of an option, and the other words."""
    rest, value, words = [], None, iter(argv)
    for word in words:
        if word == option:
            value = next(words, "")
        elif word.startswith(f"{option}="):
            value = word.partition("=")[2]
        else:
            rest.append(word)
    return value, rest


def _read(file: str) -> dict[str, Any]:
    path = Path(file)
    if not path.is_file():
        raise HyrloError(f"{file}: {'is a folder; give its config.json' if path.is_dir() else 'no such file'}")
    if path.stat().st_size > LARGEST:
        raise HyrloError(f"{file}: is larger than a config; give a YAML or JSON file of options")
    try:
        text = path.read_text(encoding="utf-8")
        settings = json.loads(text) if path.suffix == ".json" else _from_yaml(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        where = f"line {place.line + 1}: " if place else ""
        said = getattr(error, "problem", None) or next(iter(str(error).splitlines()), "")
        raise HyrloError(
            f"{file}: {where}cannot be read as {'JSON' if path.suffix == '.json' else 'YAML'} ({said})"
        ) from None
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise HyrloError(f"{file}: is not a list of options by name, as in `horizon: 10`")
    _check_values(file, settings)
    return settings


def _from_yaml(text: str) -> Any:
    """Without aliases, with which a small text can stand for any number of values."""
    for event in yaml.parse(text):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not read, write them out", problem_mark=event.start_mark)
    return yaml.safe_load(text)


def _check_values(file: str, settings: dict[str, Any]) -> None:
    """Reject what is no option."""
    kinds = (str, bool, int, float, type(None))
    own = {key: value for key, value in settings.items() if "format" not in settings or key not in RECORDED}
    for key, value in _leaves(own):
        if not all(isinstance(one, kinds) for one in (value if isinstance(value, list) else [value])):
            raise HyrloError(f"{file}: {key} is not a number, a text, true, false or a list of them")


def _environment(
    file: str, settings: Mapping[str, Any], algorithm: Algorithm, words: list[str], options: Options
) -> str:
    """The environment of the command line, else that of the file, which must not name code to run."""
    env = settings.get("env")
    kind = options(algorithm, env if isinstance(env, str) else "")
    typed = first_positional(words, kind, algorithm.config(Choice()))
    if typed is not None:
        return typed
    if not isinstance(env, str):
        raise HyrloError(f"{file}: names no environment; give `env: lock` or the like")
    if env.startswith(GYM) and ":" in env.removeprefix(GYM):
        raise HyrloError(
            f"{file}: {env} names a module to import; give it on the command line, as in `hyrlo train {algorithm.name} {env}`"
        )
    return env


def _options_of(
    file: str, settings: dict[str, Any], algorithm: Algorithm, env: str, options: Options, given: set[str]
) -> dict[str, Any]:
    """Options by dotted names, as on the command line."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = key.replace("-", "_")
        if name in ("algo", "env", "config") or ("format" in settings and name in RECORDED):
            continue
        prefix = f"{find(env).option_prefix}." if name == "env_options" else f"{name}."
        if value is not None:
            found |= dict(_leaves(value, prefix)) if isinstance(value, dict) else {name: value}
    if env != settings.get("env"):  # another environment, for which those options are not
        found = {
            key: value
            for key, value in found.items()
            if "env_options" not in settings or not key.startswith(f"{find(env).option_prefix}.")
        }
    fields = settings.get("config", {})
    if not isinstance(fields, dict):
        raise HyrloError(f"{file}: config is {fields!r}; give its fields by name")
    _check_keys(file, found, fields, options(algorithm, env), algorithm)
    if "format" in settings:
        _check_recorded(file, found, given)
        found |= _sources(file, settings, given)
    variant = {name: str(found[name]) for name in VARIANTS if found.get(name) is not None}
    return found | _fields(file, fields, algorithm, variant)


def _check_recorded(file: str, found: Mapping[str, Any], given: set[str]) -> None:
    """The config of a run may be someone else's: what its environment is given must name no code or file."""
    if "gym.kwargs" in found and "gym.kwargs" not in given:
        try:
            check_arguments(Path(file), {"kwargs": found["gym.kwargs"]})
        except HyrloError as error:
            said = str(error).rpartition("; ")[0]
            raise HyrloError(f"{said}; if it should, give --gym.kwargs on the command line") from None


def _leaves(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted names; the names of types are left out."""
    for key, value in values.items():
        name = f"{prefix}{str(key).replace('-', '_')}"
        if isinstance(value, dict):
            yield from _leaves(value, f"{name}.")
        elif key != "type":
            yield name, value


def _check_keys(
    file: str, found: Mapping[str, Any], fields: Mapping[str, Any], kind: Any, algorithm: Algorithm
) -> None:
    """Reject keys that are no options, with the name that was probably meant."""
    known = set(_names(kind))
    configs = [config for _, config in _variants(algorithm)]
    dotted = {name for config in configs for name, _ in _leaves(describe_config(config))}
    for key in (*found, *(name for name, _ in _leaves(fields))):
        if key not in known and key not in dotted:
            raise HyrloError(f"{file}: unknown key {key}{nearest(key, known | dotted)}")


def _names(kind: Any, prefix: str = "") -> Iterator[str]:
    for field in dataclasses.fields(kind):
        inner = field.default_factory if field.default_factory is not dataclasses.MISSING else None
        if dataclasses.is_dataclass(inner):
            yield from _names(inner, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def _sources(file: str, settings: Mapping[str, Any], given: set[str]) -> dict[str, str]:
    """Data and roll-in of an earlier run. The environment's own data are made anew; a roll-in is known by its command."""
    found: dict[str, str] = {}
    command = shlex.split(settings["command"]) if isinstance(settings.get("command"), str) else []
    for option in ("data", "roll_in"):
        told = _taken(command, f"--{option.replace('_', '-')}")[0]
        record = settings.get(option)
        if told is not None:
            found[option] = told
        elif option == "data" and isinstance(record, dict) and not re.search(r", seed \d+$", str(record.get("source"))):
            found[option] = str(record.get("source"))
        elif (
            option == "roll_in"
            and isinstance(record, dict)
            and record.get("policy") != "Uniform"
            and option not in given
        ):
            raise HyrloError(f"{file}: does not say where its roll-in is; give --roll-in DIR")
    return found


def _variants(algorithm: Algorithm) -> Iterator[tuple[Choice, Any]]:
    """Every variant of an algorithm, those that nothing asks for first."""
    names = [name for name in VARIANTS if name == "preset" or name in algorithm.choices]
    explore: tuple[float | None, ...] = (None, 0.5) if "explore" in algorithm.choices else (None,)
    values: list[Sequence[Any]] = [explore, (False, True), (False, True), *((None, *VARIANTS[name]) for name in names)]
    for combination in itertools.product(*values):
        choice = Choice(**dict(zip(("explore", "tuned", "vectors", *names), combination, strict=True)))
        try:
            yield choice, algorithm.config(choice)
        except HyrloError:  # no such combination
            continue


def _fields(file: str, fields: dict[str, Any], algorithm: Algorithm, variant: Mapping[str, str]) -> dict[str, Any]:
    """The variant with these fields, and those that differ from its defaults."""
    if not fields:
        return {}
    leaves = dict(_leaves(fields))
    if "type" not in fields:
        return leaves
    best: tuple[int, dict[str, Any]] | None = None
    for choice, config in _variants(algorithm):
        asked = {name: value for name in VARIANTS if (value := getattr(choice, name)) is not None}
        described = json.loads(json.dumps(describe_config(config)))
        if _types(described) != _types(fields) or any(asked.get(name) != value for name, value in variant.items()):
            continue
        defaults = dict(_leaves(described))
        different = {name: value for name, value in leaves.items() if defaults.get(name) != value}
        if choice.tuned:  # asked for by the options that only this variant has
            open_config = algorithm.config(dataclasses.replace(choice, tuned=False))
            different |= {name: value for name, value in leaves.items() if not has_option(open_config, name)}
        if choice.explore is not None:
            asked["explore"] = leaves.get("exploration.share", choice.explore)
        cost = len(different) + len(asked)
        if best is None or cost < best[0]:
            best = cost, {**asked, **different}
    if best is None:
        raise HyrloError(
            f"{file}: {algorithm.name} has no variant of type {fields['type']} with these parts; leave out config"
        )
    return best[1]


def _types(described: Any) -> Any:
    """The names of the types of a config and its parts."""
    parts = {name: _types(value) for name, value in described.items() if isinstance(value, dict)}
    return described.get("type"), parts


def _words(key: str, value: Any) -> list[str]:
    """An option as words of the command line."""
    name = key.replace("_", "-")
    if isinstance(value, bool):
        before, _, last = name.rpartition(".")
        return [f"--{name}" if value else f"--{f'{before}.' if before else ''}no-{last}"]
    if isinstance(value, list):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}={value}"]


def print_format(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """`yaml` or `json` if `--print-config` is asked for, and the other words."""
    found = [word for word in argv if word.split("=")[0] == "--print-config"]
    if not found:
        return None, list(argv)
    kind = found[-1].partition("=")[2] or "yaml"
    if kind not in ("yaml", "json"):
        raise HyrloError(f"--print-config={kind}: give yaml or json")
    return kind, [word for word in argv if word not in found]


def printed(algorithm: Algorithm, args: Any, horizon: int, kind: str) -> str:
    """The file that repeats a command. Where the run is kept is not a part of it."""
    prefix = find(args.env).option_prefix
    settings: dict[str, Any] = {"algo": algorithm.name, "env": args.env}
    if prefix:
        settings["env_options"] = dataclasses.asdict(getattr(args, prefix))
    settings |= {"horizon": horizon, "seed": args.seed}
    settings |= {name: value for name in PRINTED if (value := getattr(args, name, None)) not in (None, False)}
    settings["config"] = describe_config(args.config)
    settings = json.loads(json.dumps(settings))
    if kind == "json":
        return json.dumps(settings, indent=2)
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).rstrip()
