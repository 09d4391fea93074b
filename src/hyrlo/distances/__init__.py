"""Integral probability metrics between samples of states."""

from hyrlo.distances.mmd import (
    ExactMMD,
    ImportanceMMD,
    RegressedMMD,
    compared_bandwidth,
    compared_features,
    median_bandwidth,
    mmd2,
    random_features,
)
from hyrlo.distances.units import Compared, StateUnits

__all__ = [
    "Compared",
    "ExactMMD",
    "ImportanceMMD",
    "RegressedMMD",
    "StateUnits",
    "compared_bandwidth",
    "compared_features",
    "median_bandwidth",
    "mmd2",
    "random_features",
]
