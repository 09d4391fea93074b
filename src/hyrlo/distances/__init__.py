"""Integral probability metrics between samples of states."""

from hyrlo.distances.mmd import (
    ExactMMD,
    ImportanceMMD,
    RegressedMMD,
    median_bandwidth,
    mmd2,
    random_features,
)

__all__ = ["ExactMMD", "ImportanceMMD", "RegressedMMD", "median_bandwidth", "mmd2", "random_features"]
