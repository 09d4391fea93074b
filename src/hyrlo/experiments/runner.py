"""Runs of an experiment: each in a directory of its own, skipped when done, resumed when stopped."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hyrlo.core.errors import RunError
from hyrlo.core.files import read_json, write_atomically
from hyrlo.core.plain import visible
from hyrlo.core.policies import Policy
from hyrlo.core.serialize import policy_fingerprint
from hyrlo.core.signals import children_ignore_interrupts, interrupts
from hyrlo.envs import make
from hyrlo.runs.contents import identity, read_result
from hyrlo.runs.directory import first_difference, read_config, roll_in_of
from hyrlo.runs.metrics import read_lines
from hyrlo.runs.progress import Progress
from hyrlo.runs.provenance import UNKNOWN, running_code, short_name
from hyrlo.runs.schema import Session, check_fields
from hyrlo.runs.training import describe_config, train


class Library(NamedTuple):
    """A library that hyrlo itself does not need, and the extra that installs it."""

    module: str
    extra: str


@dataclass(frozen=True)
class RunSpec:
    """One training run. `group` names what is the same for all seeds, and is the directory above theirs."""

    group: str
    algo: str
    env: str
    horizon: int
    config: Any
    seed: int
    curve_episodes: int = 200
    eval_episodes: int = 1000
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the environment."""
    source: tuple[Callable[..., Any], Mapping[str, Any]] | None = None
    """A function of (world, seed) and further arguments that makes what to learn from; by default the environment's own."""

    roll_in: str | None = None
    """The group whose run of the same seed gives the roll-in to learn from; it is done first."""

    member: str = ""
    """Names the run in its group, where the seed does not."""
    trainer: Callable[[RunSpec, Path], dict[str, Any]] | None = None
    """Trains it in place of hyrlo: writes the run directory and returns the result."""
    needs: Library | None = None
    """The run is left out where this is not installed."""

    @property
    def name(self) -> str:
        return self.member or f"seed-{self.seed}"

    def path(self, base: Path) -> Path:
        return base / f"{self.group}-h{self.horizon}" / self.name

    def begins_from(self, base: Path) -> Path | None:
        """The run with the roll-in."""
        return replace(self, group=self.roll_in).path(base) if self.roll_in else None

    def finished(self, base: Path) -> bool:
        return (self.path(base) / "result.json").exists()

    def done(self, base: Path, mixed: bool = False) -> bool:
        """Finished before, with the same settings as far as both versions know them.

        A run of other code is an error, also one that has only begun; `mixed` allows it.
        """
        path = self.path(base)
        if (path / "config.json").exists() and not mixed:
            check_code(path)
        if not self.finished(base):
            return False
        settings = {"algo": self.algo, "env_options": self.options, "config": describe_config(self.config)}
        wanted = json.loads(json.dumps(settings))
        first = self.begins_from(base)
        if first and (first / "result.json").exists():
            wanted["roll_in"] = policy_fingerprint(roll_in_of(first))
        difference = first_difference(read_config(path, ["algo", "config"]), wanted, common=True)
        if difference:
            raise RunError(f"{path}: holds a run of another config ({difference}); give another --out")
        return True


def check_code(path: Path) -> None:
    """Reject a stored run of other code than that of this process."""
    there, here = code_name(path), short_name(running_code())
    if there != here:
        raise RunError(
            f"{path}: was made by {there}, but this is {here}; train again with another --out, or reuse it with --mixed "
            "(--report-only reports what there is)"
        )


def code_name(path: Path) -> str:
    """The code that made a run; both, if it was begun and finished by different code."""
    files = [path / name for name in ("config.json", "result.json")]
    codes = [check_fields(Session, read_json(file), str(file)).get("code") for file in files if file.exists()]
    return " then ".join(dict.fromkeys(short_name(code) for code in codes))


def execute(specs: list[RunSpec], base: Path, jobs: int = 1, mixed: bool = False) -> None:
    """Do what is not done yet, `jobs` at a time, in processes of their own if there are several."""
    todo = sorted((spec for spec in specs if not spec.done(base, mixed)), key=lambda spec: spec.roll_in is not None)
    say(f"{len(specs)} runs, {len(specs) - len(todo)} done before")
    interrupts.then("the same command continues")
    if jobs == 1:
        for number, spec in enumerate(todo, 1):
            tell(number, len(todo), spec, run_one(spec, base, f"{spec.group} H={spec.horizon} {spec.name}  ", mixed))
        return
    number = 0
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for later in (False, True):
            now = [spec for spec in todo if (spec.roll_in is not None) == later]
            with children_ignore_interrupts():  # they are started here
                futures = {pool.submit(run_one, spec, base, None, mixed): spec for spec in now}
            for future in as_completed(futures):
                number += 1
                tell(number, len(todo), futures[future], future.result())


def available(specs: list[RunSpec], base: Path) -> list[RunSpec]:
    """Without the runs whose library is not installed, unless they have finished; one line for each group."""
    missing = [s for s in specs if s.needs and not s.finished(base) and find_spec(s.needs.module) is None]
    for group, library in dict.fromkeys((spec.group, spec.needs) for spec in missing):
        assert library is not None
        say(f"{group} is left out: it needs {library.module}; pip install 'hyrlo[{library.extra}]'")
    return [spec for spec in specs if spec not in missing]


def run_one(spec: RunSpec, base: Path, label: str | None, mixed: bool = False) -> dict[str, Any]:
    if spec.trainer:
        return spec.trainer(spec, spec.path(base))
    world = make(spec.env, spec.horizon, **spec.options)
    source = spec.source[0](world, spec.seed, **spec.source[1]) if spec.source else None
    first = spec.begins_from(base)
    roll_in = roll_in_of(first) if first else source if isinstance(source, Policy) else None
    return train(
        spec.algo, world, None if roll_in else source, roll_in=roll_in, config=spec.config, seed=spec.seed,
        out=spec.path(base), resume=True, anyway=mixed, curve_episodes=spec.curve_episodes, eval_episodes=spec.eval_episodes,
        progress=Progress(enabled=label is not None, label=label or ""),
    ).result  # fmt: skip


def tell(number: int, of: int, spec: RunSpec, result: dict[str, Any]) -> None:
    success = "" if result["success_rate"] is None else f"success {result['success_rate']:.3f}, "
    say(
        f"{number}/{of}  {spec.group} H={spec.horizon} {spec.name}: {success}return {result['return_mean']:.3f} after "
        f"{result['episodes']:,} episodes, {result['wall_seconds']:.0f} s"
    )


def say(line: str) -> None:
    print(visible(line), flush=True)


@dataclass(frozen=True)
class Finished:
    """What a finished run left behind."""

    spec: RunSpec
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    path: Path = Path()
    code: str = UNKNOWN
    """The code that made it, in short."""

    @classmethod
    def read(cls, spec: RunSpec, base: Path) -> Finished:
        path = spec.path(base)
        config = read_config(path, ["algo"])  # rejects runs of other versions
        return cls(spec, read_result(path), read_lines(path, identity(config)), path, code_name(path))

    def solved_after(self, level: float = 0.9) -> int | None:
        """Training episodes at the first evaluation with at least this success; None if there was none."""
        return next((line["episodes"] for line in self.metrics if (line["success_rate"] or 0.0) >= level), None)

    def forward_success(self) -> float:
        """Of the whole forward policy, at the end of its pass."""
        return [line["success_rate"] for line in self.metrics if line["phase"] == "forward"][-1]


def code_line(runs: list[Finished], mixed: bool = False) -> str:
    """The line below a table that names the code of its runs; runs of different code are an error, unless `mixed`."""
    codes: dict[str, list[Finished]] = {}
    for run in runs:
        codes.setdefault(run.code, []).append(run)
    if len(codes) > 1 and not mixed:
        (one, first), (other, second), *_ = ((code, members[0].path) for code, members in codes.items())
        raise RunError(
            f"runs of different code: {first} by {one}, {second} by {other}; train again with another --out, or report "
            "them together with --mixed"
        )
    if len(codes) > 1:
        return (
            f"Runs of different code: {', '.join(f'{len(rs)} by {described(code)}' for code, rs in codes.items())}.\n"
        )
    return f"Code: {described(*codes)}.\n"


def described(code: str) -> str:
    return f"{code} (uncommitted changes)" if "+" in code else code


def by_group(runs: list[Finished]) -> dict[str, list[Finished]]:
    groups: dict[str, list[Finished]] = {}
    for run in runs:
        groups.setdefault(run.spec.group, []).append(run)
    return groups


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    if not rows:
        raise RunError(
            f"{path}: these runs make no row of the table; name more groups with --only, or train them first"
        )
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def row_of(run: Finished) -> dict[str, Any]:
    """A line of an experiment's CSV."""
    return {
        "group": run.spec.group,
        **{k: run.result[k] for k in ("algo", "env", "horizon", "seed", "episodes", "steps")},
        "solved_after": "" if run.solved_after() is None else run.solved_after(),
        **{k: run.result[k] for k in ("success_rate", "return_mean", "eval_episodes", "wall_seconds")},
        "commit": run.code,
    }
