"""Sizes of the two-sample tests."""

from __future__ import annotations

from dataclasses import dataclass

from hyrlo.core.errors import HyrloError, check_positive


@dataclass(frozen=True)
class TestConfig:
    """Sizes of the tests and of the classifier."""

    __test__ = False  # keeps pytest from collecting this class

    most: int = 500
    """Largest number of states per sample and step in the MMD test. Memory grows with its square."""
    permutations: int = 499
    rare: float = 5.0
    """Density ratio from which on the denser of the two samples counts as uncovered by the other."""
    hidden: int = 32
    """Width of the classifier's hidden layer."""
    updates: int = 900
    features: int = 128
    """Number of random Fourier features, of which the leading principal components are used."""
    components: int = 6
    batch: int = 256
    learning_rate: float = 0.01
    decay: float = 1e-3
    folds: int = 2
    """Number of folds of the cross-fitting: each is scored by a classifier trained on the others."""
    resamples: int = 500
    """Bootstrap resamples for the 95 % intervals."""

    def __post_init__(self) -> None:
        check_positive(self, "permutations", "hidden", "updates", "batch", "learning_rate", "resamples")
        for name, least in (("most", 2), ("folds", 2)):
            if getattr(self, name) < least:
                raise HyrloError(f"{name} is {getattr(self, name)}; give at least {least}")
        if not self.rare > 1:
            raise HyrloError(f"rare is {self.rare}; give a factor above 1")
