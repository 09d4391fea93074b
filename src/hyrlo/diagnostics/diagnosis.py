"""One diagnosis: read the states and the run, try to match, compare, report."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hyrlo.core.access import Ledger
from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.core.policies import Policy
from hyrlo.core.ranges import Count, check_value
from hyrlo.data.readers import as_states
from hyrlo.data.states import ObservationDataset
from hyrlo.diagnostics.admissibility import DiagnoseConfig, StepReport, forward_passes, reach
from hyrlo.diagnostics.report import DiagnosisReport, describe_data
from hyrlo.diagnostics.verdict import about_data, advice, alarming, verdict
from hyrlo.envs import World
from hyrlo.forward.fail import ForwardConfig
from hyrlo.runs.directory import read_config, roll_in_of
from hyrlo.runs.fit import misfit
from hyrlo.runs.progress import Progress
from hyrlo.runs.training import config as configure

SLOW_EPISODES = 500
"""Default number of roll-out episodes where the environment runs in a simulator."""


@dataclass(frozen=True)
class RunRollIn:
    """The forward policy of a finished run, and the run's settings."""

    path: str
    policy: Policy
    settings: dict[str, Any]
    """`config.json`; empty if the directory holds only a policy."""

    @property
    def horizon(self) -> int | None:
        return self.settings.get("horizon")

    @classmethod
    def read(cls, path: str | Path, env: str, horizon: int | None = None) -> RunRollIn:
        """The roll-in of a run on `env`, with this horizon if one is given."""
        path = Path(path)
        if not path.is_dir():
            raise HyrloError(f"{path}: no such run directory; give the directory of a `fail` or `foobar` run")
        if any(path.glob("seed-*/config.json")):
            raise HyrloError(f"{path}: holds runs of several seeds; give one of them, as {path / 'seed-0'}")
        settings = read_config(path, ["algo", "env", "horizon"]) if (path / "config.json").exists() else {}
        if settings and settings["env"] != env:
            raise HyrloError(f"{path}: is a run of {settings['env']}, not of {env}; give the environment of the run")
        run = cls(str(path), roll_in_of(path), settings)
        if run.horizon is not None and horizon not in (None, run.horizon):
            raise HyrloError(f"{path}: is a run with horizon {run.horizon}, not {horizon}; leave out --horizon")
        return run

    def check_fits(self, world: World) -> None:
        if problem := misfit(self.policy, world.spec, world.name):
            raise HyrloError(f"{self.path}: {problem}")

    def notes(self, prepared: ObservationDataset) -> list[str]:
        """A warning if the run was trained on other data."""
        if "data" not in self.settings:
            return []
        config, data = self.settings.get("config", {}), self.settings["data"]
        forward = config.get("forward")
        most = (forward if isinstance(forward, dict) else config).get("offline_samples", len(prepared.at(0)))
        check_value(f"{Path(self.path) / 'config.json'}: offline_samples", most, Count | None)
        same = prepared.subsample(most, self.settings.get("seed", 0)).fingerprint() == data.get("fingerprint")
        return [] if same else [f"The run was trained on other data ({data.get('source')}) than these."]


def diagnose(
    world: World,
    data: ObservationDataset | np.ndarray | str | Path | None = None,
    run: RunRollIn | str | Path | None = None,
    *,
    config: DiagnoseConfig | None = None,
    forward: ForwardConfig | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool | Progress = False,
) -> DiagnosisReport:
    """Can the data be reached, does a roll-in cover them, and what to expect of a backward pass.

    `data` are states: a dataset, trajectories (N, H+1, *obs), or a path; None takes the world's behaviour data. `run` is
    the directory of a `fail` or `foobar` run whose roll-in is compared with them. Without it, forward passes with the
    config `forward` are made. `out` is where to write the report.
    """
    check_seed(seed)
    progress = progress if isinstance(progress, Progress) else Progress(enabled=progress)
    states = world.behaviour_data(seed) if data is None else as_states(data)
    prepared = world.prepare(states)
    config = _suited_config(world, config or DiagnoseConfig())
    if run is not None and not isinstance(run, RunRollIn):
        run = RunRollIn.read(run, world.name, world.spec.horizon)
    if run is not None:
        run.check_fits(world)
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)  # an error here should come before the long work
    model = world.trace_model()
    if run is not None:
        policies = {"roll-in": run.policy}
    else:
        policies = forward_passes(model, prepared, forward or forward_config(world), config.passes, seed, progress)
    trained = replace(model.ledger)
    with _status(progress):
        steps = reach(model, prepared, policies, config, seed)
    played = Ledger(model.ledger.episodes - trained.episodes, model.ledger.steps - trained.steps)
    report = _report(world, states, prepared, run, steps, config, seed, tuple(policies), trained, played)
    if out is not None:
        report.write(Path(out))
    return report


def _report(
    world: World, states: ObservationDataset, prepared: ObservationDataset, run: RunRollIn | None,
    steps: list[StepReport], config: DiagnoseConfig, seed: int, policies: tuple[str, ...], forward: Ledger, roll_out: Ledger,
) -> DiagnosisReport:  # fmt: skip
    spec, path = world.spec, run.path if run else None
    rows = describe_data(states, prepared, spec)
    notes = run.notes(prepared) if run else []
    return DiagnosisReport(
        env=world.name,
        horizon=spec.horizon,
        observation_size=spec.observation_size,
        source=states.source,
        seed=seed,
        run=path,
        policies=policies,
        forward=dataclasses.asdict(forward),
        roll_out=dataclasses.asdict(roll_out),
        config=dataclasses.asdict(config),
        data=rows,
        steps=steps,
        verdict=[*notes, *verdict(steps, config, path), *about_data(rows)],
        advice=advice(steps, config, world.name, path, spec),
        alarming=alarming(steps, config, path),
    )


def _status(progress: Progress | None) -> AbstractContextManager[Any]:
    if progress is None or not progress.enabled:
        return nullcontext()
    return progress.console.status("comparing roll-in and data …")


def _suited_config(world: World, config: DiagnoseConfig) -> DiagnoseConfig:
    """Fewer roll-out episodes by default where a simulator steps the environment."""
    if world.traits.eval_episodes < SLOW_EPISODES and config.episodes == DiagnoseConfig.episodes:
        return replace(config, episodes=SLOW_EPISODES)
    return config


def forward_config(
    world: World, forward: str | None = None, preset: str | None = None, samples: int | None = None
) -> ForwardConfig:
    """The config of the forward passes.

    By default importance weights where actions are few and the environment is quick, else a learned model. Not regression,
    which is a good roll-in but a poor match: its policies hardly ever hedge between two actions.
    """
    if forward is None and preset is None:
        forward = "model" if world.spec.action_size or world.spec.ends else "importance"
    config: ForwardConfig = configure("fail", world=world, forward=forward, preset=preset)
    return config if samples is None else replace(config, samples=samples)
