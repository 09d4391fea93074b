"""Effect sizes from held-out scores, with bootstrap intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hyrlo.distances.two_sample.classifier import Scores
from hyrlo.distances.two_sample.config import TestConfig

EFFECTS = ("gap", "js", "missed", "stray")


class Effects(NamedTuple):
    """Effect sizes of one step, and 95 % intervals of the four in `EFFECTS`."""

    gap: float
    js: float
    missed: float
    stray: float
    data_share: float
    """Share of the data in the region A of the gap."""
    roll_in_share: float
    missed_roll_in: float
    """Share of the roll-in in the region that holds `missed` of the data."""
    stray_data: float
    intervals: dict[str, tuple[float, float]]


def effects(roll_in: Scores, data: Scores, config: TestConfig, rng: np.random.Generator) -> Effects:
    """Effect sizes from the held-out scores of one step. All are functions of means, so the bootstrap only draws weights."""
    far = np.log(config.rare)
    columns = [
        np.stack([s.in_region, -np.logaddexp(0, -sign * s.logits), s.logits > far, s.logits < -far], axis=1)
        for s, sign in ((roll_in, -1.0), (data, 1.0))
    ]

    def sizes(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        js = np.clip(np.log(2) + (ours[..., 1] + theirs[..., 1]) / 2, 0, np.log(2))
        return np.stack([theirs[..., 0] - ours[..., 0], js, theirs[..., 2], ours[..., 3]], axis=-1)

    weights = [rng.multinomial(len(c), np.full(len(c), 1 / len(c)), size=config.resamples) / len(c) for c in columns]
    low, high = np.quantile(sizes(*(w @ c for w, c in zip(weights, columns, strict=True))), [0.025, 0.975], axis=0)
    ours, theirs = (c.mean(axis=0) for c in columns)
    intervals = {name: (float(low[i]), float(high[i])) for i, name in enumerate(EFFECTS)}
    gap, js, missed, stray = (float(x) for x in sizes(ours, theirs))
    there = {"data_share": theirs[0], "roll_in_share": ours[0], "missed_roll_in": ours[2], "stray_data": theirs[3]}
    return Effects(gap, js, missed, stray, **{k: float(v) for k, v in there.items()}, intervals=intervals)
