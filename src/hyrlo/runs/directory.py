"""Runs: where an algorithm reports, and from where it resumes.

`MemoryRun` keeps everything in memory. `RunDirectory` also writes `config.json`, `metrics.jsonl`, `checkpoint/`,
`policy.safetensors` + `policy.json`, `curve.png` and, last, `result.json`, each atomically.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jaxtyping import Array

from hyrlo import __version__
from hyrlo.core.access import Evaluation, Ledger, TraceModel, evaluate
from hyrlo.core.errors import RunError
from hyrlo.core.files import read_json, write_atomically, write_json
from hyrlo.core.policies import Policy
from hyrlo.core.serialize import load_policy, load_tree, save_tree
from hyrlo.runs.progress import Progress

State = TypeVar("State")
FORMAT = 2
"""Version of the run directory. Runs of hyrlo 0.1 have none."""
Listener = Callable[[dict[str, Any]], Any]
"""Called with each new line of metrics; training stops if it returns True. If it has a method `replay`, that is called with
the lines of earlier sessions when a run is resumed."""


class RunPhase(Generic[State]):
    """One pass over the steps; knows what is done and what is still to do."""

    def __init__(self, run: MemoryRun, name: str, order: list[int], state: State, model: TraceModel):
        self.run, self.name, self.order, self.state, self.model = run, name, order, state, model
        self.finished = 0

    def __iter__(self) -> Iterator[int]:
        with self.run.progress.phase(self.name, len(self.order), self.finished) as self.bar:
            yield from self.order[self.finished :]

    def keep(self, rows: tuple[Array, ...]) -> None:
        self.run.keep_rows(self.name, self.finished, rows)

    def kept(self) -> Iterator[tuple[Array, ...]]:
        return (self.run.kept_rows(self.name, number) for number in range(self.finished))

    def done(self, h: int, state: State, evaluate: Policy, **metrics: float) -> None:
        self.state = state
        self.finished += 1
        result = self.run.evaluate(evaluate, self.model)
        line = {
            "phase": self.name,
            "horizon": h,
            "episodes": self.model.ledger.episodes,
            "steps": self.model.ledger.steps,
            "return_mean": result.return_mean,
            "success_rate": result.success_rate,
            "seconds": self.run.seconds(),
            **metrics,
        }
        check_metrics(line, f"{self.name} at step {h}")
        self.run.metrics.append(line)
        self.run.keep(self)
        self.bar.advance(line)
        self.run.tell(line)


class MemoryRun:
    """A run in memory."""

    def __init__(
        self,
        key: Any = None,
        curve_episodes: int = 100,
        progress: Progress | None = None,
        listeners: Sequence[Listener] = (),
    ):
        self.key = jax.random.key(0) if key is None else key
        self.curve_episodes = curve_episodes
        self.progress = progress or Progress(enabled=False)
        self.listeners = list(listeners)
        self.metrics: list[dict[str, Any]] = []
        self.chosen: dict[str, dict[str, str]] = {}
        self.warnings: list[dict[str, Any]] = []
        self.policies: dict[str, Policy] = {}
        self.seconds_before = 0.0
        self.started = time.monotonic()

    def seconds(self) -> float:
        """Wall time, earlier sessions of a resumed run included."""
        return round(self.seconds_before + time.monotonic() - self.started, 3)

    def tell(self, line: dict[str, Any]) -> None:
        """Give a line of metrics to all listeners."""
        answers = [listener(line) for listener in self.listeners]  # all of them, whoever asks to stop
        if any(answer is True for answer in answers):
            raise TrainingStopped(f"a callback stopped training in phase {line['phase']}, step {line['horizon']}")

    def evaluate(self, policy: Policy, model: TraceModel) -> Evaluation:
        """A point of the curve; counted apart from training."""
        return evaluate(model, policy, jax.random.fold_in(self.key, len(self.metrics)), self.curve_episodes)

    def phase(self, name: str, order: Iterable[int], state: State, model: TraceModel) -> RunPhase[State]:
        return RunPhase(self, name, list(order), state, model)

    def keep(self, phase: RunPhase[Any]) -> None:
        """Nothing to write: the state is in memory."""

    def keep_rows(self, phase: str, number: int, rows: tuple[Array, ...]) -> None:
        """Rows of one step of a phase; nothing to write here."""

    def kept_rows(self, phase: str, number: int) -> tuple[Array, ...]:
        raise RunError(f"{phase}: a run in memory keeps no rows of earlier sessions")

    def choose(self, about: str, choice: str, reason: str) -> None:
        """What was chosen by measuring; `config.json` says it as well."""
        self.chosen[about] = {"choice": choice, "reason": reason}
        self.progress.say(f"{about}: {choice} ({reason})")

    def warn(self, what: str, **details: Any) -> None:
        """What went wrong; `result.json` says it as well."""
        self.progress.say(f"warning: {what}")
        self.warnings.append({"what": what, **details})

    def keep_policy(self, name: str, policy: Policy) -> None:
        """A policy made on the way that is of use by itself, such as a roll-in."""
        self.policies[name] = policy

    def kept_policy(self, name: str) -> Policy | None:
        """The policy that was kept under `name`, if one was."""
        return self.policies.get(name)


class TrainingStopped(RunError):
    """A callback asked to stop; a run in a directory can be resumed."""


class RunDirectory(MemoryRun):
    """A run on disk. `resume` continues one that was stopped; the result is the same to the last bit."""

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.path = path
        self.checkpoints = path / "checkpoint"
        self.config = json.loads(json.dumps(config))  # as it will be read back
        self.resumed = self._claim(resume)

    def _claim(self, resume: bool) -> bool:
        config_path = self.path / "config.json"
        if config_path.exists():
            if not resume:
                raise RunError(f"{self.path}: already holds a run; give --resume to continue it, or another --out")
            there = read_config(self.path)
            if "code" in self.config and "code" not in there:
                raise RunError(
                    f"{self.path}: was begun by hyrlo 0.2, which draws other random numbers, so it cannot be resumed to the "
                    "same policy; give another --out"
                )
            difference = first_difference(there, self.config)
            if difference:
                raise RunError(f"{self.path}: holds a run of another config ({difference}); give another --out")
            for folder in (self.path, self.checkpoints):
                for stale in folder.glob(".*.[0-9]*"):  # what a kill in the middle of a write leaves behind
                    stale.unlink()
            return True
        if any(self.path.glob("seed-*/config.json")) or (self.path / "result.json").exists():
            raise RunError(f"{self.path}: already holds other runs; give another --out")
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file, not a folder; give another --out")
        self.made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(config_path, self.config)
        return False

    def phase(self, name: str, order: Iterable[int], state: State, model: TraceModel) -> RunPhase[State]:
        phase = super().phase(name, order, state, model)
        checkpoint = self.checkpoints / f"{name}.safetensors"
        if self.resumed and checkpoint.exists():
            leaves, about = load_tree(checkpoint)
            if not isinstance(leaves, tuple) or _shapes(leaves) != _shapes(jax.tree.leaves(state)):
                raise RunError(f"{checkpoint}: is a checkpoint of another config; give another --out")
            phase.state = jax.tree.unflatten(jax.tree.structure(state), leaves)
            phase.finished = about["finished"]
            model.ledger.episodes, model.ledger.steps = about["episodes"], about["steps"]
            self.metrics = self.read_metrics(about["metrics"])
            self.seconds_before = about["seconds"]
            self.replay(self.metrics)
        return phase

    def replay(self, metrics: list[dict[str, Any]]) -> None:
        """Give the lines of earlier sessions to the listeners that want them."""
        for listener in self.listeners:
            if hasattr(listener, "replay"):
                listener.replay(metrics)

    def replay_metrics(self) -> list[dict[str, Any]]:
        metrics = self.read_metrics()
        self.replay(metrics)
        return metrics

    def read_metrics(self, count: int | None = None) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        lines = path.read_text().splitlines()[:count]
        try:
            metrics = [json.loads(line) for line in lines]
        except ValueError as error:
            raise RunError(f"{path}: cannot be read ({error}); give another --out") from error
        if count is not None and len(metrics) < count:
            raise RunError(f"{path}: has {len(metrics)} lines where the checkpoint counts {count}; give another --out")
        return metrics

    def keep(self, phase: RunPhase[Any]) -> None:
        """Metrics first, then the checkpoint that counts them: a kill in between loses one step and no more."""
        write_atomically(self.path / "metrics.jsonl", "".join(json.dumps(m) + "\n" for m in self.metrics))
        self.checkpoints.mkdir(exist_ok=True)
        ledger: Ledger = phase.model.ledger
        about = {
            "finished": phase.finished,
            "episodes": ledger.episodes,
            "steps": ledger.steps,
            "metrics": len(self.metrics),
            "seconds": self.seconds(),
        }
        # The arrays alone: how they belong together, the algorithm says when it asks for the phase.
        save_tree(self.checkpoints / f"{phase.name}.safetensors", tuple(jax.tree.leaves(phase.state)), about)

    def keep_rows(self, phase: str, number: int, rows: tuple[Array, ...]) -> None:
        """Each step has a file of its own, written once: a checkpoint does not grow with the steps done."""
        self.checkpoints.mkdir(exist_ok=True)
        save_tree(self._rows_path(phase, number), rows, {})

    def kept_rows(self, phase: str, number: int) -> tuple[Array, ...]:
        path = self._rows_path(phase, number)
        if not path.exists():
            raise RunError(f"{path}: is missing, so that the run cannot be resumed; give another --out")
        return load_tree(path)[0]

    def _rows_path(self, phase: str, number: int) -> Path:
        return self.checkpoints / f"{phase}-rows-{number:05d}.safetensors"

    def drop_rows(self) -> None:
        """Once the run has ended, nobody needs the rows: they are most of its size."""
        for path in self.checkpoints.glob("*-rows-[0-9]*.safetensors"):
            path.unlink()

    def choose(self, about: str, choice: str, reason: str) -> None:
        super().choose(about, choice, reason)
        write_json(self.path / "config.json", {**read_json(self.path / "config.json"), "chosen": self.chosen})

    def keep_policy(self, name: str, policy: Policy) -> None:
        """Whole, structure included: `kept_policy` needs no config to make it again."""
        self.checkpoints.mkdir(exist_ok=True)
        save_tree(self.checkpoints / f"{name}.safetensors", policy, {})

    def kept_policy(self, name: str) -> Policy | None:
        return kept_policy(self.path, name)

    def withdraw(self) -> None:
        """Leave nothing behind if it was refused before it began."""
        if not self.resumed and not self.metrics:
            (self.path / "config.json").unlink()
            with suppress(OSError):  # something else is there
                for folder in self.made:
                    folder.rmdir()

    def finished(self) -> dict[str, Any] | None:
        """The result, if the run has ended before."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        self.drop_rows()  # a kill right after the result leaves them behind
        return read_json(path)


def check_metrics(line: Mapping[str, Any], where: str) -> None:
    """Reject non-finite values: everything after them would be non-finite as well."""
    for name, value in line.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise RunError(
                f"{where}: {name} is {value}; training has diverged: give a lower learning rate, or other data"
            )


def read_config(
    path: Path, wanted: Sequence[str] = ("algo", "env", "env_options", "horizon", "seed")
) -> dict[str, Any]:
    """What a run says of itself, at least what is wanted."""
    config = read_json(path / "config.json")
    if not isinstance(config, dict) or any(name not in config for name in wanted):
        raise RunError(f"{path / 'config.json'}: is not the config of a hyrlo run; it has {', '.join(wanted)}")
    check_format(path, config)
    return config


def check_format(path: Path, config: Mapping[str, Any]) -> None:
    """Reject run directories of other versions."""
    if config.get("format") != FORMAT:
        made_by = config["versions"].get("hyrlo", "") if isinstance(config.get("versions"), dict) else ""
        raise RunError(
            f"{path}: was made by hyrlo {made_by or 'of another version'}; hyrlo {__version__} cannot read it: "
            "use that version, or train again with another --out"
        )


def kept_policy(path: Path, name: str) -> Policy | None:
    """The policy that a run kept under `name`, if it did."""
    file = path / "checkpoint" / f"{name}.safetensors"
    return load_tree(file)[0] if file.exists() else None


def roll_in_of(path: Path) -> Policy:
    """The forward policy of a run: what `foobar` kept, or else the policy itself."""
    policy = kept_policy(path, "roll_in")
    if policy is not None:
        return policy
    config = read_config(path, ["algo"]) if (path / "config.json").exists() else {}
    if config.get("algo") == "foobar" or not (path / "policy.json").exists():
        raise RunError(
            f"{path}: holds no forward policy; give the directory of one finished `fail` run, or of a `foobar` run "
            "whose forward pass has ended"
        )
    return load_policy(path)


def _shapes(leaves: Iterable[Any]) -> list[Any]:
    return [(x.shape, str(x.dtype)) for x in leaves]


def first_difference(old: Any, new: Any, path: str = "", common: bool = False) -> str | None:
    """Where two JSON values first differ, in words; `common` leaves out what only one of them has."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            if common and not (key in old and key in new):
                continue
            if key in ("versions", "code", "source", "command", "chosen"):  # data are compared by their fingerprint
                continue
            inner = first_difference(old.get(key), new.get(key), f"{path}.{key}".lstrip("."), common)
            if inner:
                return inner
        return None
    return None if old == new else f"{path} is {json.dumps(old)} there and {json.dumps(new)} here"


def seed_directories(path: Path) -> list[Path]:
    """The run in `path`, or the runs of several seeds below it."""
    return _seeds_below(path) or [path]


def _seeds_below(path: Path) -> list[Path]:
    numbers = {p.parent: p.parent.name.removeprefix("seed-") for p in path.glob("seed-*/config.json")}
    return sorted((p for p, number in numbers.items() if number.isdecimal()), key=lambda p: int(numbers[p]))


def check_seeds(path: Path, seeds: Sequence[int]) -> None:
    """Refuse a directory for several seeds that holds something else: its summary speaks of all that is there."""
    if (path / "config.json").exists():
        raise RunError(f"{path}: already holds a run of a single seed; give another --out")
    others = [p.name for p in _seeds_below(path) if p.name not in {f"seed-{s}" for s in seeds}]
    if others:
        raise RunError(f"{path}: already holds other seeds ({', '.join(others)}); give another --out")


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and 25–75 % over seeds of what a result counts and measures."""
    summary: dict[str, Any] = {k: results[0][k] for k in ("algo", "env", "horizon", "eval_episodes")}
    summary["seeds"] = [r["seed"] for r in results]
    for name in ("episodes", "steps", "return_mean", "success_rate", "wall_seconds"):
        values = [r[name] for r in results]
        if None in values:
            summary[name] = None
        else:
            low, median, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
            summary[name] = {"median": median, "q25": low, "q75": high}
    return summary
