"""What the JSON files of a run directory hold, field by field, and the check that what was read is that.

A schema is a `TypedDict`: it names the fields, their types and, as in `hyrlo.core.ranges`, their ranges. Fields that it does
not name are left as they are. `FORMAT` in `hyrlo.runs.directory` is the version of all of them together.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from hyrlo.core.errors import RunError
from hyrlo.core.ranges import (
    Count,
    CountOrZero,
    Finite,
    NonNegative,
    OptionError,
    Range,
    Seed,
    Share,
    check_value,
    shown,
)

Total = Annotated[int, Range(0, 2**63 - 1)]
"""Episodes or steps of a whole run."""
Scalar = str | bool | Finite | None
ASK = "restore the file, or train the run anew"


class DataSource(TypedDict, total=False):
    """The data that a run learned from."""

    source: str
    fingerprint: str


class CodeRecord(TypedDict, total=False):
    """The code that made a run, as in `hyrlo.runs.provenance`."""

    version: str
    commit: str
    dirty: bool
    source: str
    wheel: str


class Session(TypedDict, total=False):
    """With what a run was begun or continued."""

    versions: dict[str, str]
    code: CodeRecord
    machine: dict[str, Scalar]


class RunConfig(Session, total=False):
    """`config.json`."""

    format: Count
    algo: str
    env: str
    env_options: dict[str, Any]
    horizon: Count
    actions: CountOrZero
    seed: Seed
    config: dict[str, Any]
    data: DataSource
    roll_in: dict[str, str]
    curve_episodes: Count
    eval_episodes: Count
    command: str
    chosen: dict[str, Any]
    resumed_with: list[Session]


class MetricsLine(TypedDict):
    """A line of `metrics.jsonl`; its other fields are numbers as well."""

    phase: str
    horizon: CountOrZero
    episodes: Total
    steps: Total
    return_mean: Finite
    success_rate: Share | None
    seconds: NonNegative


class Warned(TypedDict):
    """A line of `warnings`; its other fields say how far off, and where."""

    what: str


class FinalScores(TypedDict):
    """`result.json`: what a run cost and is worth."""

    algo: str
    env: str
    seed: Seed
    horizon: Count
    episodes: Total
    steps: Total
    return_mean: Finite
    success_rate: Share | None
    eval_episodes: Count
    wall_seconds: NonNegative


class RunResult(FinalScores, total=False):
    """`result.json`."""

    spent: dict[str, Total]
    chosen: dict[str, Any]
    warnings: list[Warned]
    versions: dict[str, str]
    code: CodeRecord
    resumed_with: list[Session]


class CheckpointHeader(TypedDict):
    """What a checkpoint says beside its arrays."""

    finished: Total
    episodes: Total
    steps: Total
    metrics: Total
    seconds: NonNegative


def check_config(file: Path, value: Mapping[str, Any]) -> None:
    """Reject a `config.json` of which a field is not what it should be."""
    check_fields(RunConfig, value, str(file))


def check_result(file: Path, value: Any) -> dict[str, Any]:
    """A `result.json` with all its fields."""
    return check_fields(RunResult, value, str(file))


def check_header(file: Path, value: Any, steps: int) -> dict[str, Any]:
    """The header of a checkpoint of a phase that has this number of steps."""
    header = check_fields(CheckpointHeader, value, str(file))
    if header["finished"] > steps:
        raise RunError(f"{file}: finished is {header['finished']}, but the phase has {steps} steps; give another --out")
    return header


def check_line(where: str, value: Any) -> dict[str, Any]:
    """A line of metrics with all its fields."""
    line = check_fields(MetricsLine, value, where)
    for name, one in line.items():
        _check(f"{where}: {shown(name)}", one, Scalar)
    return line


def check_fields(kind: Any, value: Any, where: str) -> dict[str, Any]:
    """The object, if its fields have the types and ranges of a schema; else one line that names the field."""
    if not isinstance(value, dict):
        raise RunError(f"{where}: is {shown(value)}, not an object; {ASK}")
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if name in value:
            _check(f"{where}: {name}", value[name], hint)
        elif name in kind.__required_keys__:
            raise RunError(f"{where}: {name} is missing; {ASK}")
    return value


def _check(where: str, value: Any, hint: Any) -> None:
    """Check one value, and what is in it."""
    if typing.is_typeddict(hint):
        check_fields(hint, value, where)
        return
    try:
        check_value(where, value, hint)
    except OptionError as error:
        raise RunError(str(error)) from None
    for name, inner, of in _inside(value, hint):
        _check(f"{where}: {shown(name)}", inner, of)


def _inside(value: Any, hint: Any) -> Iterable[tuple[Any, Any, Any]]:
    """Names, values and types of what an object or a list holds."""
    kinds = typing.get_args(hint)
    if isinstance(value, dict) and len(kinds) == 2 and kinds[1] is not Any:
        return [(name, inner, kinds[1]) for name, inner in value.items()]
    return [(f"number {i}", inner, kinds[0]) for i, inner in enumerate(value)] if isinstance(value, list) else []
