"""Hybrid reinforcement learning from offline observation alone.

Names are imported when they are first used, so that `import hyrlo` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hyrlo.core.signals import interrupts, is_command

if is_command():
    interrupts.install()  # before the slow imports

__version__ = "0.2.0"

if TYPE_CHECKING:
    from hyrlo.core.access import ResetModel, TraceModel, evaluate
    from hyrlo.core.errors import AccessError, DataError, HyrloError, RunError
    from hyrlo.core.policies import Policy, Uniform, switch
    from hyrlo.core.serialize import load_policy, register, save_policy
    from hyrlo.data.readers import read_states, read_transitions
    from hyrlo.data.states import ObservationDataset
    from hyrlo.data.transitions import TransitionDataset
    from hyrlo.diagnostics import diagnose
    from hyrlo.envs import make
    from hyrlo.runs.agent import Agent, load
    from hyrlo.runs.compare import compare
    from hyrlo.runs.directory import TrainingStopped
    from hyrlo.runs.export import export
    from hyrlo.runs.learned_reset import LearnedReset
    from hyrlo.runs.loading import evaluate_run, load_run
    from hyrlo.runs.numpy_policy import NumpyPolicy
    from hyrlo.runs.training import Trained, config, train

_MODULES = {
    "hyrlo.core.access": ("ResetModel", "TraceModel", "evaluate"),
    "hyrlo.core.errors": ("AccessError", "DataError", "HyrloError", "RunError"),
    "hyrlo.core.policies": ("Policy", "Uniform", "switch"),
    "hyrlo.core.serialize": ("load_policy", "register", "save_policy"),
    "hyrlo.data.readers": ("read_states", "read_transitions"),
    "hyrlo.data.states": ("ObservationDataset",),
    "hyrlo.data.transitions": ("TransitionDataset",),
    "hyrlo.diagnostics": ("diagnose",),
    "hyrlo.envs": ("make",),
    "hyrlo.runs.agent": ("Agent", "load"),
    "hyrlo.runs.compare": ("compare",),
    "hyrlo.runs.directory": ("TrainingStopped",),
    "hyrlo.runs.export": ("export",),
    "hyrlo.runs.learned_reset": ("LearnedReset",),
    "hyrlo.runs.loading": ("evaluate_run", "load_run"),
    "hyrlo.runs.numpy_policy": ("NumpyPolicy",),
    "hyrlo.runs.training": ("Trained", "config", "train"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AccessError",
    "Agent",
    "DataError",
    "HyrloError",
    "LearnedReset",
    "NumpyPolicy",
    "ObservationDataset",
    "Policy",
    "ResetModel",
    "RunError",
    "TraceModel",
    "Trained",
    "TrainingStopped",
    "TransitionDataset",
    "Uniform",
    "compare",
    "config",
    "diagnose",
    "evaluate",
    "evaluate_run",
    "export",
    "load",
    "load_policy",
    "load_run",
    "make",
    "read_states",
    "read_transitions",
    "register",
    "save_policy",
    "switch",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hyrlo' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


importlib.import_module("hyrlo.envs")  # registers the lock with Gymnasium
