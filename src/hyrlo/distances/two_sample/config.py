"""Sizes of the two-sample tests."""

from __future__ import annotations

from dataclasses import dataclass

from hyrlo.core.ranges import AboveOne, Count, NonNegative, Options, Positive, TwoOrMore


@dataclass(frozen=True)
class TestConfig(Options):
    """Sizes of the tests and of the classifier."""

    __test__ = False  # keeps pytest from collecting this class

    most: TwoOrMore = 500
    """Largest number of states per sample and step in the MMD test. Memory grows with its square."""
    permutations: Count = 499
    rare: AboveOne = 5.0
    """Density ratio from which on the denser of the two samples counts as uncovered by the other."""
    hidden: Count = 32
    """Width of the classifier's hidden layer."""
    updates: Count = 900
    features: Count = 128
    """Number of random Fourier features, of which the leading principal components are used."""
    components: Count = 6
    batch: Count = 256
    learning_rate: Positive = 0.01
    decay: NonNegative = 1e-3
    folds: TwoOrMore = 2
    """Number of folds of the cross-fitting: each is scored by a classifier trained on the others."""
    resamples: Count = 500
    """Bootstrap resamples for the 95 % intervals."""
