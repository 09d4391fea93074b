"""Hybrid reinforcement learning from offline observation alone."""

from hyrlo.access import AccessError, ResetModel, TraceModel, evaluate
from hyrlo.data import ObservationDataset
from hyrlo.envs import make
from hyrlo.errors import DataError, HyrloError, RunError
from hyrlo.learned_reset import LearnedReset
from hyrlo.policies import Policy, Uniform, switch
from hyrlo.serialize import load_policy, save_policy
from hyrlo.training import Trained, evaluate_run, load_run, preset_config, train
from hyrlo.transitions import TransitionDataset

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
