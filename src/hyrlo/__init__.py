"""Hybrid reinforcement learning from offline observation alone."""

from hyrlo.core.access import AccessError, ResetModel, TraceModel, evaluate
from hyrlo.core.errors import DataError, HyrloError, RunError
from hyrlo.core.policies import Policy, Uniform, switch
from hyrlo.core.serialize import load_policy, save_policy
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs import make
from hyrlo.runs.learned_reset import LearnedReset
from hyrlo.runs.training import Trained, evaluate_run, load_run, preset_config, train

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "DataError",
    "HyrloError",
    "LearnedReset",
    "ObservationDataset",
    "Policy",
    "ResetModel",
    "RunError",
    "TraceModel",
    "Trained",
    "TransitionDataset",
    "Uniform",
    "evaluate",
    "evaluate_run",
    "load_policy",
    "load_run",
    "make",
    "preset_config",
    "save_policy",
    "switch",
    "train",
]
