"""Run an experiment and report on it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hyrlo.core.errors import HyrloError, RunError
from hyrlo.core.files import write_atomically
from hyrlo.core.names import check_name
from hyrlo.experiments.recipes import Scale, seeds_of
from hyrlo.experiments.runner import Finished, RunSpec, available, code_line, described, execute, say
from hyrlo.runs.provenance import running_code, short_name


class Experiment(Protocol):
    SEEDS: dict[str, int]

    def runs(self, scale: Scale, seeds: Sequence[int]) -> list[RunSpec]: ...

    def report(self, runs: list[Finished], out: Path, scale: Scale) -> str:
        """Write pictures and CSV to `out`; the table in Markdown."""
        ...


@runtime_checkable
class Computation(Protocol):
    """An experiment without training runs: all of it is computed when it is asked for."""

    SEEDS: dict[str, int]

    def compute(self, scale: Scale, seeds: int, out: Path) -> str:
        """Write pictures and CSV to `out`; the table in Markdown."""
        ...


def find(name: str) -> Experiment | Computation:
    """The module of an experiment."""
    module: Any = import_module(f"hyrlo.experiments.{name.replace('-', '_')}")
    return module


def of_groups(specs: list[RunSpec], only: Sequence[str]) -> list[RunSpec]:
    """The runs of the groups named in `only`; all runs, if it is empty."""
    groups = dict.fromkeys(spec.group for spec in specs)
    for name in only:
        check_name(name, groups, "group of runs")
    return [spec for spec in specs if not only or spec.group in only]


def reproduce(
    name: str, scale: Scale = "quick", seeds: int | None = None, out: str | Path = "runs/reproduce", jobs: int = 1,
    report_only: bool = False, mixed: bool = False, first_seed: int | None = None, only: Sequence[str] = (),
) -> tuple[str, Path]:  # fmt: skip
    """Run what is missing of an experiment and report on it; the table and where everything is.

    `seeds` is their number; they begin at `first_seed`, by default 1000 at scale `paper` and 0 below it. `only` names the
    groups of runs to make and report.

    Runs lie in `out`/`scale`/runs and are shared by experiments; figures and tables in `out`/`scale`/NAME come from the
    stored runs alone. Some reports play their policies once more. Runs of different code are neither reused nor reported
    together, unless `mixed`; the line below the table names the code.
    """
    experiment = find(name)
    seeds = experiment.SEEDS[scale] if seeds is None else seeds
    base = Path(out) / scale
    directory = base / name
    if isinstance(experiment, Computation):
        if first_seed is not None or only:
            raise HyrloError(f"{name} trains nothing; leave out --{'only' if only else 'first-seed'}")
        directory.mkdir(parents=True, exist_ok=True)
        table = f"{experiment.compute(scale, seeds, directory)}\nCode: {described(short_name(running_code()))}.\n"
        write_atomically(directory / f"{name}.md", table)
        return table, directory
    specs = of_groups(experiment.runs(scale, seeds_of(scale, seeds, first_seed)), only)
    if report_only:
        finished = [spec for spec in specs if spec.finished(base / "runs")]
        if not finished:
            raise RunError(f"{base / 'runs'}: none of the {len(specs)} runs has finished; leave out --report-only")
        if len(finished) < len(specs):
            say(f"{len(specs) - len(finished)} of {len(specs)} runs have not finished and are left out")
        specs = finished
    else:
        specs = available(specs, base / "runs")
        if not specs:
            raise RunError(
                f"{name}: no runs are left to report; install what they need, or name other groups with --only"
            )
        execute(specs, base / "runs", jobs, mixed)
    runs = [Finished.read(spec, base / "runs") for spec in specs]
    code = code_line(runs, mixed)
    directory.mkdir(parents=True, exist_ok=True)
    table = f"{experiment.report(runs, directory, scale)}\n{code}"
    write_atomically(directory / f"{name}.md", table)
    return table, directory
