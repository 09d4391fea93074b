"""Callbacks that send metrics to Weights & Biases or MLflow.

    hyrlo.train("foobar", world, states, callbacks=[WeightsAndBiases(project="arms", mode="offline")])

A run that is resumed is a new one there, with the lines of earlier sessions: its curve is whole.
"""

from __future__ import annotations

import importlib
from typing import Any

from hyrlo.core.errors import HyrloError


def numbers_of(line: dict[str, Any]) -> dict[str, float]:
    """Every number of a line of metrics, as `phase/name`."""
    return {f"{line['phase']}/{name}": value for name, value in line.items() if isinstance(value, int | float)}


def required(module: str, extra: str) -> Any:
    """A module of one of hyrlo's extras."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise HyrloError(f"{module} is not installed; pip install 'hyrlo[{extra}]'") from error


class Tracker:
    """A listener that sends each line once, those of earlier sessions of a resumed run included."""

    sent = 0

    def send(self, line: dict[str, Any]) -> None:
        raise NotImplementedError

    def __call__(self, line: dict[str, Any]) -> None:
        self.send(line)
        self.sent += 1

    def replay(self, metrics: list[dict[str, Any]]) -> None:
        for line in metrics[self.sent :]:
            self(line)


class WeightsAndBiases(Tracker):
    """Logs to a run of Weights & Biases; the arguments are those of `wandb.init`. Call `run.finish()` at the end."""

    def __init__(self, **init: Any):
        self.run = required("wandb", "wandb").init(**init)

    def send(self, line: dict[str, Any]) -> None:
        self.run.log({**numbers_of(line), "steps": line["steps"]})


class Mlflow(Tracker):
    """Logs to a run of MLflow, to the tracking URI that is set there; the arguments are those of `create_run`."""

    def __init__(self, experiment: str = "Default", **create: Any):
        self.client = required("mlflow", "mlflow").MlflowClient()
        found = self.client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self.client.create_experiment(experiment)
        self.run_id = self.client.create_run(number, **create).info.run_id

    def send(self, line: dict[str, Any]) -> None:
        for name, value in numbers_of(line).items():
            self.client.log_metric(self.run_id, name, float(value), step=line["steps"])
