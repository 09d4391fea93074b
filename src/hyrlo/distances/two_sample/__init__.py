"""Do roll-in and data have the same states at every step? Tests, and how far apart they are.

Two tests per step keep their level for any distributions: a permutation test of the unbiased MMD (exact), and a rank test
of the scores of a classifier on held-out states (normal approximation). The Benjamini–Hochberg procedure controls the share
of false alarms over the steps. With enough states every difference is significant, so effect sizes are reported beside the
tests, all from held-out states:

    gap      μ(A) − d(A)  for the region A where the classifier finds the data more likely: at most the TV distance
    js       Jensen–Shannon divergence, natural logarithm
    missed   μ(R)  where the data are at least `rare` times as dense as the roll-in
    stray    d(R′) where the roll-in is at least `rare` times as dense as the data

Here μ is the distribution of the data and d that of the roll-in.

Rank test and adjusted p-values are SciPy's. The permutation test and the bootstrap are written out: they work on a kernel
matrix and on a matrix of weights, which is about twice as fast as `scipy.stats.permutation_test` and `bootstrap`.
"""

from hyrlo.distances.two_sample.classifier import Scores, held_out_scores, rank_test
from hyrlo.distances.two_sample.comparison import Comparison, compare
from hyrlo.distances.two_sample.config import TestConfig
from hyrlo.distances.two_sample.effect_sizes import Effects, effects
from hyrlo.distances.two_sample.permutation import MmdTest, mmd_test
from hyrlo.distances.two_sample.samples import PaddedStates

__all__ = [
    "Comparison",
    "Effects",
    "MmdTest",
    "PaddedStates",
    "Scores",
    "TestConfig",
    "compare",
    "effects",
    "held_out_scores",
    "mmd_test",
    "rank_test",
]
