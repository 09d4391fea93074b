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
from jaxtyping import Array

from hyrlo import __version__
from hyrlo.core.access import Evaluation, Ledger, TraceModel, evaluate
from hyrlo.core.errors import RunError
from hyrlo.core.files import DamagedFile, load_json, read_json, remove_temporary, verified, write_json
from hyrlo.core.policies import Policy
from hyrlo.core.serialize import load_policy, load_tree, save_tree
from hyrlo.runs import metrics as metrics_file
from hyrlo.runs.checkpoints import NAMES, Checkpoints
from hyrlo.runs.contents import FILES, INCIDENTAL, check_files_are_own, checksums, identity, read_result
from hyrlo.runs.lock import WriterLock
from hyrlo.runs.progress import Progress
from hyrlo.runs.schema import check_config, check_header

State = TypeVar("State")
FORMAT = 3
"""Version of the run directory. Those of hyrlo 0.1 have none, those of 0.2 are of format 2, without checksums."""
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

    def withdraw(self) -> None:
        """Leave nothing behind if the run was refused before it began; nothing was written here."""

    def release(self) -> None:
        """Let other processes write to where the run is kept; nowhere here."""


class TrainingStopped(RunError):
    """A callback asked to stop; a run in a directory can be resumed."""


class RunDirectory(MemoryRun):
    """A run on disk. `resume` continues one that was stopped; the result is the same to the last bit.

    No other process can write to it before `release`. A damaged newest checkpoint costs the work since the one before it.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], *, resume: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.path = path
        self.config = json.loads(json.dumps(config))  # as it will be read back
        self.lock: WriterLock | None = None
        self.made: list[Path] = []
        self.recovered: list[dict[str, Any]] = []
        self.with_rows: set[str] = set()
        self.resumed = self._claim(resume)
        self.identity = identity(self.config)
        self.checkpoints = Checkpoints(path / "checkpoint", self.identity)
        self.lines, self.trouble = metrics_file.good_lines(path, self.identity) if self.resumed else ([], "")
        """Of earlier sessions: those that can be used, and what is wrong with the one after them."""

    def _claim(self, resume: bool) -> bool:
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file, not a folder; give another --out")
        check_files_are_own(self.path)
        if self._check_begun(resume) and (self.path / "result.json").exists():
            return self._continue()  # nothing is left to write
        self.made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self.lock = WriterLock(self.path)
            return self._continue() if self._check_begun(resume) else self._begin()
        except BaseException:
            self.release()
            self._remove_folders()
            raise

    def _check_begun(self, resume: bool) -> bool:
        """Whether there is a run to continue."""
        begun = (self.path / "config.json").exists()
        if begun and not resume:
            raise RunError(f"{self.path}: already holds a run; give --resume to continue it, or another --out")
        return begun

    def _continue(self) -> bool:
        there = read_config(self.path)
        if "code" in self.config and "code" not in there:
            raise RunError(
                f"{self.path}: was begun by hyrlo 0.2, which draws other random numbers, so it cannot be resumed to the "
                "same policy; give another --out"
            )
        difference = first_difference(there, self.config)
        if difference:
            raise RunError(f"{self.path}: holds a run of another config ({difference}); give another --out")
        if self.lock is not None:
            remove_temporary(self.path)
            remove_temporary(self.path / "checkpoint")
        self.config = there
        return True

    def _begin(self) -> bool:
        found = [name for name in (*FILES, "checkpoint") if (self.path / name).exists()]
        if any(self.path.glob("seed-*/config.json")) or found:
            what = f"files of a run ({', '.join(found)}) without its config.json" if found else "other runs"
            raise RunError(f"{self.path}: already holds {what}; give another --out")
        remove_temporary(self.path)
        write_json(self.path / "config.json", self.config)
        return False

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()

    def phase(self, name: str, order: Iterable[int], state: State, model: TraceModel) -> RunPhase[State]:
        phase = super().phase(name, order, state, model)
        if not self.resumed:
            return phase
        leaves, structure = jax.tree.flatten(state)
        found = self.checkpoints.latest(name, leaves, self._check_lines, lambda what: self.recover(what, phase=name))
        if found is None:
            lost = sum(line.get("phase") == name for line in self.lines[len(self.metrics) :])
            if lost > 1 and not self.recovered:  # the first line is written before the first checkpoint
                self.recover(f"{self.checkpoints.folder}: phase {name} has no checkpoint, and begins anew", phase=name)
        else:
            about = check_header(self.checkpoints.folder / f"{name}.safetensors", found.about, len(phase.order))
            phase.state = jax.tree.unflatten(structure, found.leaves)
            phase.finished = about["finished"]
            model.ledger.episodes, model.ledger.steps = about["episodes"], about["steps"]
            self.metrics = self.lines[: about["metrics"]]
            self.seconds_before = about["seconds"]
            for warning in about["recovered"]:
                if warning not in self.recovered:
                    self.recovered.append(warning)
                    self.warnings.append(warning)
            self.replay(self.metrics)
        return phase

    def _check_lines(self, about: dict[str, Any]) -> None:
        """A checkpoint is of use only with the metrics that it counts."""
        if about["metrics"] > len(self.lines):
            there = f"{self.path / metrics_file.FILE}: has {len(self.lines)} lines"
            raise DamagedFile(self.trouble or f"{there} where the checkpoint counts {about['metrics']}")

    def recover(self, what: str, **details: Any) -> None:
        """A warning that later sessions know of as well."""
        self.warn(what, **details)
        self.recovered.append(self.warnings[-1])

    def replay(self, metrics: list[dict[str, Any]]) -> None:
        """Give the lines of earlier sessions to the listeners that want them."""
        for listener in self.listeners:
            if hasattr(listener, "replay"):
                listener.replay(metrics)

    def replay_metrics(self) -> list[dict[str, Any]]:
        metrics = metrics_file.read_lines(self.path, self.identity)
        self.replay(metrics)
        return metrics

    def keep(self, phase: RunPhase[Any]) -> None:
        """Metrics first, then the checkpoint that counts them: a kill in between loses one step and no more.

        Where a step is repeated after a checkpoint was lost, the lines after it stay: later checkpoints count them.
        """
        self.lines[: len(self.metrics)] = self.metrics
        metrics_file.write_lines(self.path, self.lines, self.identity)
        ledger: Ledger = phase.model.ledger
        about = {
            "finished": phase.finished,
            "episodes": ledger.episodes,
            "steps": ledger.steps,
            "metrics": len(self.metrics),
            "seconds": self.seconds(),
            "rows": phase.name in self.with_rows,
            "recovered": self.recovered,
        }
        # The arrays alone: how they belong together, the algorithm says when it asks for the phase.
        self.checkpoints.keep(phase.name, jax.tree.leaves(phase.state), about)

    def keep_rows(self, phase: str, number: int, rows: tuple[Array, ...]) -> None:
        self.checkpoints.keep_rows(phase, number, rows)
        self.with_rows.add(phase)

    def kept_rows(self, phase: str, number: int) -> tuple[Array, ...]:
        return self.checkpoints.kept_rows(phase, number)

    def choose(self, about: str, choice: str, reason: str) -> None:
        super().choose(about, choice, reason)
        write_json(self.path / "config.json", {**read_json(self.path / "config.json"), "chosen": self.chosen})

    def keep_policy(self, name: str, policy: Policy) -> None:
        """Whole, structure included: `kept_policy` needs no config to make it again."""
        self.checkpoints.folder.mkdir(exist_ok=True)
        save_tree(self.checkpoints.folder / f"{name}.safetensors", policy, {"policy": name, "run": self.identity})

    def kept_policy(self, name: str) -> Policy | None:
        return kept_policy(self.path, name)

    def withdraw(self) -> None:
        if not self.resumed and not self.metrics:
            checkpoints = [file for file in self.checkpoints.folder.glob("*") if NAMES.fullmatch(file.name)]
            for file in [self.path / name for name in FILES] + checkpoints:
                file.unlink(missing_ok=True)
            self.release()
            self.made.insert(0, self.checkpoints.folder)
            self._remove_folders()

    def _remove_folders(self) -> None:
        for folder in self.made:
            with suppress(OSError):  # something else is there, or it was never made
                folder.rmdir()

    def conclude(self, result: Mapping[str, Any]) -> None:
        """The result, once the policy is there; it has the checksums of the other files."""
        metrics_file.write_lines(self.path, self.metrics, self.identity)
        write_json(self.path / "result.json", {**result, "files": checksums(self.path)})
        self.checkpoints.drop_rows(line["phase"] for line in self.metrics)

    def finished(self) -> dict[str, Any] | None:
        """The result, if the run has ended before."""
        if not (self.path / "result.json").exists():
            return None
        result = read_result(self.path)
        self.checkpoints.drop_rows(line["phase"] for line in self.lines)  # a kill after the result leaves them behind
        return result


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
    file = path / "config.json"
    config = load_json(file)
    if not isinstance(config, dict) or any(name not in config for name in wanted):
        raise RunError(f"{file}: is not the config of a hyrlo run; it has {', '.join(wanted)}")
    if "checksum" not in config:
        check_format(path, config)
    config = verified(file, config)
    check_format(path, config)
    check_config(path / "config.json", config)
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
    if not file.exists():
        return None
    policy, about = load_tree(file)
    run = identity(read_config(path, [])) if (path / "config.json").exists() else about.get("run")
    if about != {"policy": name, "run": run}:
        raise RunError(f"{file}: belongs to another run, or was renamed; restore the file, or train it anew")
    return policy


def roll_in_of(path: Path) -> Policy:
    """The forward policy of a run: what `foobar` kept, or else the policy itself."""
    policy = kept_policy(path, "roll_in")
    if policy is not None and not isinstance(policy, Policy):
        raise RunError(f"{path / 'checkpoint' / 'roll_in.safetensors'}: does not hold a policy; train it anew")
    if policy is not None:
        return policy
    config = read_config(path, ["algo"]) if (path / "config.json").exists() else {}
    if config.get("algo") == "foobar" or not (path / "policy.json").exists():
        raise RunError(
            f"{path}: holds no forward policy; give the directory of one finished `fail` run, or of a `foobar` run "
            "whose forward pass has ended"
        )
    return load_policy(path)


def first_difference(old: Any, new: Any, path: str = "", common: bool = False) -> str | None:
    """Where two JSON values first differ, in words; `common` leaves out what only one of them has."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            if common and not (key in old and key in new):
                continue
            if key in INCIDENTAL:
                continue
            inner = first_difference(old.get(key), new.get(key), f"{path}.{key}".lstrip("."), common)
            if inner:
                return inner
        return None
    return None if old == new else f"{path} is {json.dumps(old)} there and {json.dumps(new)} here"
