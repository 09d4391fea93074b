"""Latent states of rich observations, found in the observations alone.

Two observations are of the same latent state if there is no valley of density between them:

1. a state that is seen again and again, to the last digit, is a latent state of its own;
2. the others are partitioned finely by k-means; cells are merged as long as the line between two has no valley, and
   what was merged is partitioned again;
3. what does not split is cut along single dimensions with deep valleys, such as a position on a grid, and tried again.

The number of latent states follows from the data. States that fill a region without holes have no valley and stay one.
The encoder is linear: discriminants of the latent states, `softmax(E s + c)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from hyrlo.core.networks import LatentQ
from hyrlo.core.ranges import Count, Options

VALLEY = 0.4
"""Two cells are merged if the density between them is at least this share of the lesser one's."""
DEEP = 0.25
"""The same for cuts of a single dimension, of which there are many to choose from."""
PRIOR = 5.0
"""Samples added to a valley: an empty stretch among few samples proves nothing."""
FEW = 8
"""Fewer samples make no latent state."""
REPEATED = 4
"""Where states are seen this often on average, every different one is a latent state."""
CELLS, PARTS = 40, 12
"""Cells of the first partition, and of those that follow."""
MOST_DIRECTIONS, MOST_STATES = 32, 2500
SIDE, BINS = 6, 9
"""Bins of width 1/6 on the line between two centres, from −4.5/6 on; the first 6 are a cell's own side."""
SHARP = 20.0
"""The least difference between the logits of two latent states at the centre of one: states are counted by the likeliest."""
Labels = Int[np.ndarray, " n"]


@dataclass(frozen=True)
class Latents:
    """An encoder of latent states."""

    encoder: Float[np.ndarray, "obs+1 latents"]

    @property
    def count(self) -> int:
        return self.encoder.shape[1]

    def label(self, states: Float[np.ndarray, "n obs"]) -> Labels:
        """The likeliest latent state of each state."""
        return np.argmax(np.asarray(states) @ self.encoder[:-1] + self.encoder[-1], axis=1)

    def padded(self, count: int) -> Float[np.ndarray, "obs+1 count"]:
        """With latent states that never occur, up to `count`."""
        never = np.zeros((len(self.encoder), count - self.count), np.float32)
        never[-1] = -NEVER
        return np.concatenate([self.encoder, never], axis=1)


NEVER = 1e9  # logit of a latent state that no state is in


def discover(sources: Sequence[Float[np.ndarray, "n obs"]], most: int, seed: int) -> Latents:
    """The latent states among states of one step, at most `most`; of every source, no more states than needed."""
    rng = np.random.default_rng(seed)
    states = np.concatenate([thinned(rng, np.asarray(states)) for states in sources]).astype(np.float64)
    units = Units.of(states)
    label = keep_largest(units(states), latent_states(states, units, seed), most)
    return discriminants(units, units(states), label)


def thinned(rng: np.random.Generator, states: Float[np.ndarray, "n obs"]) -> Float[np.ndarray, "m obs"]:
    """As many of the states as needed, at random: their order may mean something."""
    if len(states) <= MOST_STATES:
        return states
    return states[np.sort(rng.choice(len(states), MOST_STATES, replace=False))]


def latent_states(states: Float[np.ndarray, "n obs"], units: Units, seed: int) -> Labels:
    """A label for each state."""
    _, first, row, times = np.unique(states, axis=0, return_index=True, return_inverse=True, return_counts=True)
    row = row.reshape(-1)
    if len(first) * REPEATED <= len(states):
        return row
    label = np.where(times >= FEW, np.arange(len(first)), len(first))[row]
    rest = np.flatnonzero(label == len(first))
    if len(rest):
        label[rest] += parts(states[rest], units, CELLS, seed)
    label = np.unique(label, return_inverse=True)[1]
    return keep_largest(units(states), label, int(np.sum(np.bincount(label) >= FEW)))


def parts(states: Float[np.ndarray, "n obs"], units: Units, cells: int, seed: int) -> Labels:
    """Split all dimensions together; what does not split, cut along single ones and try again."""
    label = split(units(states), cells, seed)
    if label.max() == 0:
        label = cut_dimensions(states)
        if label.max() == 0:
            return label
    return refined(label, lambda rows: parts(states[rows], units, PARTS, seed))


def refined(label: Labels, again: Callable[[Labels], Labels]) -> Labels:
    """The parts of every part."""
    finer, count = np.zeros(len(label), int), 0
    for part in range(label.max() + 1):
        rows = np.flatnonzero(label == part)
        finer[rows] = count + again(rows)
        count = finer[rows].max() + 1
    return finer


def cut_dimensions(states: Float[np.ndarray, "n obs"], bins: int = 64) -> Labels:
    """Parts by the deep valleys of single dimensions."""
    low, high = states.min(axis=0), states.max(axis=0)
    width = np.where(high > low, high - low, 1.0) / bins
    at = np.minimum((states - low) / width, bins - 1).astype(int) + bins * np.arange(states.shape[1])
    count = np.bincount(at.ravel(), minlength=bins * states.shape[1]).reshape(-1, bins)
    smooth = (np.pad(count, ((0, 0), (1, 1)))[:, np.arange(bins)[:, None] + np.arange(3)]).mean(axis=2)
    left, right = np.maximum.accumulate(smooth, axis=1), np.maximum.accumulate(smooth[:, ::-1], axis=1)[:, ::-1]
    valley = (count + PRIOR) / (np.minimum(left, right) + 0.5) < DEEP
    valley[:, [0, -1]] = False  # beyond the first and the last bin there is nothing
    label = np.zeros(len(states), int)
    for d in np.flatnonzero(valley.any(axis=1)):
        step = np.diff(valley[d].astype(int))
        starts, ends = np.flatnonzero(step > 0) + 1, np.flatnonzero(step < 0) + 1
        cuts = low[d] + width[d] * (starts + ends) / 2
        label = np.unique(label * (len(cuts) + 1) + np.searchsorted(cuts, states[:, d]), return_inverse=True)[1]
    return label


def split(points: Float[np.ndarray, "n k"], cells: int, seed: int) -> Labels:
    """Cells of a fine partition, merged where there is no valley between them."""
    cells = min(cells, len(points) // (4 * FEW))
    if cells < 2:
        return np.zeros(len(points), int)
    label = k_means(points, cells, np.random.default_rng(seed))
    return merged(points, np.unique(label, return_inverse=True)[1])


def k_means(points: Float[np.ndarray, "n k"], cells: int, rng: np.random.Generator, rounds: int = 8) -> Labels:
    """Lloyd's algorithm from k-means++ centres; by matrix products, several times faster than SciPy's."""
    norms = np.sum(points * points, axis=1)
    centres = points[rng.integers(len(points), size=1)]
    nearest = np.full(len(points), np.inf)
    for _ in range(cells - 1):
        nearest = np.minimum(nearest, np.maximum(norms - 2 * points @ centres[-1] + centres[-1] @ centres[-1], 0.0))
        total = nearest.sum()
        following = rng.choice(len(points), p=nearest / total) if total > 0 else rng.integers(len(points))
        centres = np.append(centres, points[following][None], axis=0)
    for _ in range(rounds):
        label = np.argmin(np.sum(centres * centres, axis=1) - 2 * points @ centres.T, axis=1)
        sizes = np.bincount(label, minlength=cells)
        sums = (label == np.arange(cells)[:, None]).astype(points.dtype) @ points
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return label


def merged(points: Float[np.ndarray, "n k"], label: Labels) -> Labels:
    """The labels once every two cells have a valley between them, and none is too small."""
    while label.max() > 0:
        ratios = valleys(points, label)
        if ratios.max() < VALLEY:
            break
        best, cell = ratios.argmax(axis=1), np.arange(len(ratios))
        mutual = (best[best] == cell) & (ratios[cell, best] >= VALLEY)  # the best two of all are among them
        into = np.where(mutual, np.minimum(best, cell), cell)
        label = np.unique(into[label], return_inverse=True)[1]
    return keep_largest(points, label, int(np.sum(np.bincount(label) >= FEW)))


def valleys(points: Float[np.ndarray, "n k"], label: Labels) -> Float[np.ndarray, "c c"]:
    """For every two cells, the least density between them relative to that of the lesser cell.

    Points are counted in bins along the line from the centre of their own cell to that of the other. The own centre is
    taken without the point itself: with it, points would crowd around it.
    """
    sizes = np.bincount(label)
    cells = len(sizes)
    centres = means(points, label)
    size = sizes[label][:, None]
    own = (size * centres[label] - points) / np.maximum(size - 1, 1)
    own_own, own_other = np.sum(own * own, axis=1)[:, None], own @ centres.T
    length = np.maximum(own_own - 2 * own_other + np.sum(centres * centres, axis=1), 1e-12)
    along = points @ centres.T - np.sum(points * own, axis=1)[:, None] - own_other + own_own
    bins = np.floor(SIDE * along / length + 4.5)
    inside = (bins >= 0) & (bins < BINS)
    pair = (label[:, None] * cells + np.arange(cells))[inside]
    flat = np.bincount(pair * BINS + bins[inside].astype(int), minlength=cells * cells * BINS)
    there = flat.reshape(cells, cells, BINS)
    back = there.transpose(1, 0, 2)
    side = np.minimum(there[..., :SIDE].max(axis=2), back[..., :SIDE].max(axis=2))
    between = (there[..., SIDE:] + back[..., : SIDE - 1 : -1]).min(axis=2)
    ratios = (between + PRIOR) / (side + 0.5)
    np.fill_diagonal(ratios, -1.0)
    return ratios


def means(points: Float[np.ndarray, "n k"], label: Labels) -> Float[np.ndarray, "c k"]:
    """The mean of the points with each label."""
    sums = (label == np.arange(label.max() + 1)[:, None]).astype(points.dtype) @ points
    return sums / np.bincount(label)[:, None]


@dataclass(frozen=True)
class Units:
    """Coordinates of states: each dimension in units of its spread; of many dimensions, the directions above the noise."""

    mean: Float[np.ndarray, " obs"]
    directions: Float[np.ndarray, "obs k"]

    @classmethod
    def of(cls, states: Float[np.ndarray, "n obs"]) -> Units:
        (n, size), mean, spread = states.shape, states.mean(axis=0), states.std(axis=0)
        inverse = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
        times = np.unique(states, axis=0, return_counts=True)[1]
        if size <= MOST_DIRECTIONS or 2 * times[times > 1].sum() > n:  # states that are seen again have no noise
            return cls(mean, np.diag(inverse))
        white = (states - mean) * inverse
        variances, directions = np.linalg.eigh(white.T @ white / n)
        typical = np.median(variances[variances >= 1e-6 * variances[-1]])
        noise = 1.1 * (1 + np.sqrt(size / n)) ** 2 * typical  # the largest variance that pure noise gives
        leading = int(np.clip(np.sum(variances > noise), 1, MOST_DIRECTIONS))
        return cls(mean, inverse[:, None] * directions[:, -leading:])

    def __call__(self, states: Float[np.ndarray, "n obs"]) -> Float[np.ndarray, "n k"]:
        return (states - self.mean) @ self.directions


def keep_largest(points: Float[np.ndarray, "n k"], label: Labels, most: int) -> Labels:
    """The `most` largest latent states; the states of others go to the nearest of these."""
    sizes = np.bincount(label)
    if len(sizes) <= max(most, 1):
        return label
    kept = np.sort(np.argsort(sizes, kind="stable")[-max(most, 1) :])
    centres = np.stack([points[label == z].mean(axis=0) for z in kept])
    nearest = np.argmin(np.sum(centres * centres, axis=1) - 2 * points @ centres.T, axis=1)
    at = np.searchsorted(kept, label)
    return np.where(np.isin(label, kept), np.minimum(at, len(kept) - 1), nearest)


def discriminants(units: Units, points: Float[np.ndarray, "n k"], label: Labels) -> Latents:
    """Linear discriminants: borders lie midway between the centres, in units of the spread within latent states."""
    centres = means(points, label)
    within = points - centres[label]
    size = points.shape[1]
    spread = within.T @ within / len(points)
    least = 1e-3 * np.trace(spread) / size + 1e-4
    weights = np.linalg.solve(spread + least * np.eye(size), centres.T)
    weights *= sharpness(centres @ weights)
    encoder = units.directions @ weights
    offset = -0.5 * np.sum(centres.T * weights, axis=0) - units.mean @ encoder
    return Latents(np.append(encoder, offset[None], axis=0).astype(np.float32))


def sharpness(products: Float[np.ndarray, "c c"]) -> float:
    """The factor with which no two latent states are closer than `SHARP`; `products` are those of their centres."""
    norms = np.diag(products)
    apart = 0.5 * (norms[:, None] + norms) - products  # the difference of logits at the centre of either
    closest = apart[~np.eye(len(apart), dtype=bool)].min(initial=np.inf)
    return max(1.0, SHARP / max(closest, 1e-6))


@dataclass(frozen=True)
class LatentCounts(Options):
    """Q-functions without regression: the mean target of every latent state and action."""

    latents: Count = 64
    """Most latent states."""


def counted_q(
    states: Float[np.ndarray, "n obs"],
    actions: Int[np.ndarray, " n"],
    targets: Float[np.ndarray, " n"],
    action_count: int,
    config: LatentCounts,
) -> LatentQ:
    """The mean target of every latent state and action. What was never tried is worth less than all that was."""
    latents = discover((states,), config.latents, seed=0)
    label, shape = latents.label(states), (config.latents, action_count)
    tries, sums = np.zeros(shape), np.zeros(shape)
    np.add.at(tries, (label, actions), 1)
    np.add.at(sums, (label, actions), targets)
    head = np.where(tries > 0, sums / np.maximum(tries, 1), targets.min() - (np.ptp(targets) or 1.0))
    encoder = jnp.asarray(latents.padded(config.latents))
    return LatentQ(encoder, jnp.asarray(head, jnp.float32), jnp.zeros(()))
