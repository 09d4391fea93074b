"""States of a roll-in against data at every step: tests, adjusted p-values and effect sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Float

from hyrlo.core.errors import HyrloError
from hyrlo.distances.two_sample.classifier import Scores, held_out_scores, rank_test
from hyrlo.distances.two_sample.config import TestConfig
from hyrlo.distances.two_sample.effect_sizes import Effects, effects
from hyrlo.distances.two_sample.permutation import MmdTest, mmd_test
from hyrlo.distances.two_sample.samples import PaddedStates


class Comparison(NamedTuple):
    """Roll-in against data; arrays have one entry per step."""

    mmd: MmdTest
    floor: Float[np.ndarray, " steps"]
    """95 % quantile of the squared MMD between random halves of the data."""
    classifier_p: Float[np.ndarray, " steps"]
    p_value: Float[np.ndarray, " steps"]
    """Of both tests (Bonferroni)."""
    adjusted: Float[np.ndarray, " steps"]
    """`p_value` after Benjamini–Hochberg over the steps."""
    effects: list[Effects]


def compare(
    roll_in: Sequence[np.ndarray] | np.ndarray,
    data: Sequence[np.ndarray],
    config: TestConfig,
    seed: int = 0,
    ends: bool = False,
) -> Comparison:
    """Compare the states of a roll-in with data, step by step. `ends`: their last dimension says whether the episode ended."""
    for h, states in enumerate(data):
        if len(states) < 4 * config.folds:
            raise HyrloError(
                f"data: timestep {h} has {len(states)} states; comparing needs at least {4 * config.folds} at every step"
            )
    ours, theirs = PaddedStates.shuffled(roll_in, seed), PaddedStates.shuffled(data, seed + 1)
    mmd = mmd_test(ours.at_most(config.most), theirs.at_most(config.most), config.permutations, seed, ends)
    floor = mmd_test(*theirs.at_most(2 * config.most).halves(), config.permutations, seed, ends).null
    scores = jax.tree.map(np.asarray, held_out_scores(jax.random.key(seed), ours, theirs, config, ends))
    rng = np.random.default_rng(seed)
    ranks, sizes = [], []
    for h, (n, m) in enumerate(zip(np.asarray(ours.counts), np.asarray(theirs.counts), strict=True)):
        step = [Scores(s.logits[h, :k], s.in_region[h, :k]) for s, k in zip(scores, (n, m), strict=True)]
        ranks.append(rank_test(step[0].logits, step[1].logits, config.folds))
        sizes.append(effects(step[0], step[1], config, rng))
    together = np.minimum(1.0, 2 * np.minimum(np.asarray(mmd.p_value, float), ranks))
    adjusted = scipy.stats.false_discovery_control(together)
    return Comparison(jax.tree.map(np.asarray, mmd), np.asarray(floor), np.array(ranks), together, adjusted, sizes)
