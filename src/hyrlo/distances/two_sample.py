"""Do roll-in and data have the same states at every step? Tests, and how far apart they are.

Two tests a step that keep their level whatever the distributions: a permutation test of the unbiased MMD (exact), and a
rank test of what a classifier says about states it was not trained on (normal approximation). Over the steps the
Benjamini–Hochberg procedure keeps the share of false alarms. With many states everything is significant, so there are
effect sizes beside the tests, all from held-out states:

    gap      μ(A) − d(A)  for the region A where the classifier finds the data more likely: at most the TV distance
    js       Jensen–Shannon divergence, natural logarithm
    missed   μ(R)  where the data are `rare` times as dense as the roll-in: covered thinly, or not at all
    stray    d(R′) where the roll-in is `rare` times as dense as the data

Here μ is the distribution of the data and d that of the roll-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.stats
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.errors import HyrloError, check_positive
from hyrlo.core.networks import MLP, whiten
from hyrlo.distances.mmd import random_features, squared_distances

NEIGHBOURS = 100  # of each sample, for the median distance
CHECKED = 4  # one of so many states that a classifier may see is kept for choosing
SCALES = (1.0, 1.4, 2.0, 2.8, 4.0)
CHECKS = 15  # how often in a fit the loss of the states kept for it is looked at


@dataclass(frozen=True)
class TestConfig:
    """Sizes of the tests and of the classifier."""

    __test__ = False  # no test case, whatever pytest thinks of the name

    most: int = 500
    """States of each kind and step in the MMD test, whose memory grows with the square of this."""
    permutations: int = 499
    rare: float = 5.0
    """Where one of the two is so many times as dense as the other, that one hardly covers it."""
    hidden: int = 32
    """Width of the classifier's hidden layer."""
    updates: int = 900
    features: int = 128
    """Random Fourier features of the kernel, of which the leading components are used."""
    components: int = 6
    batch: int = 256
    learning_rate: float = 0.01
    decay: float = 1e-3
    folds: int = 2
    """The classifier is trained without each of so many parts in turn, and judged on the part left out."""
    resamples: int = 500
    """Of the bootstrap behind the 95 % intervals."""

    def __post_init__(self) -> None:
        check_positive(self, "permutations", "hidden", "updates", "batch", "learning_rate", "resamples")
        for name, least in (("most", 2), ("folds", 2)):
            if getattr(self, name) < least:
                raise HyrloError(f"{name} is {getattr(self, name)}; give at least {least}")
        if not self.rare > 1:
            raise HyrloError(f"rare is {self.rare}; give a factor above 1")


class Samples(NamedTuple):
    """States of every step in random order, filled up to the same number; the first `counts[h]` of step h are real."""

    states: Float[Array, "steps n obs"]
    counts: Int[Array, " steps"]

    @classmethod
    def shuffled(cls, steps: Sequence[np.ndarray] | np.ndarray, seed: int) -> Samples:
        rng = np.random.default_rng(seed)
        mixed = [np.asarray(states)[rng.permutation(len(states))] for states in steps]
        counts = [len(states) for states in mixed]
        filled = [np.pad(states, ((0, max(counts) - len(states)), (0, 0))) for states in mixed]
        return cls(jnp.asarray(np.stack(filled)), jnp.asarray(counts))

    def at_most(self, most: int) -> Samples:
        return Samples(self.states[:, :most], jnp.minimum(self.counts, most))

    def halves(self) -> tuple[Samples, Samples]:
        """Every second state, and the others."""
        return (
            Samples(self.states[:, ::2], (self.counts + 1) // 2),
            Samples(self.states[:, 1::2], self.counts // 2),
        )


class Pool(NamedTuple):
    """Both kinds of states of one step on a common scale: roll-in first, then data."""

    states: Float[Array, "p obs"]
    is_data: Bool[Array, " p"]
    real: Bool[Array, " p"]

    @classmethod
    def of(cls, roll_in: Array, n: Array, data: Array, m: Array) -> Pool:
        states = jnp.concatenate([roll_in, data])
        is_data = jnp.arange(len(states)) >= len(roll_in)
        real = jnp.concatenate([jnp.arange(len(roll_in)) < n, jnp.arange(len(data)) < m])
        shift = jnp.mean(states, axis=0, where=real[:, None])
        scale = jnp.std(states, axis=0, where=real[:, None])
        varies = scale > 1e-6 * (1 + jnp.abs(shift))
        return cls(jnp.where(varies, whiten(states, shift, jnp.where(varies, scale, 1.0)), 0.0), is_data, real)


class MmdTest(NamedTuple):
    """For every step: the unbiased squared MMD, its p-value, and what 95 % of random divisions of the pool stay below."""

    mmd2: Float[Array, " steps"]
    p_value: Float[Array, " steps"]
    null: Float[Array, " steps"]
    bandwidth: Float[Array, " steps"]
    """Of the kernel, in standard deviations of the pool."""


def mmd_test(roll_in: Samples, data: Samples, permutations: int, seed: int) -> MmdTest:
    """Permutation test of the unbiased MMD, one step after the other: memory for one kernel matrix only."""
    rng = np.random.default_rng(seed)
    real = [
        np.concatenate([np.arange(x.states.shape[1]) < x.counts[h] for x in (roll_in, data)])
        for h in range(len(data.counts))
    ]
    drawn = np.zeros((len(real), permutations, len(real[0])), bool)
    for h, rows in enumerate(real):
        first = np.arange(rows.sum()) < roll_in.counts[h]
        drawn[h][:, rows] = rng.permuted(np.tile(first, (permutations, 1)), axis=1)
    return _mmd_test(roll_in, data, jnp.asarray(drawn))


@jax.jit
def _mmd_test(roll_in: Samples, data: Samples, drawn: Bool[Array, "steps b p"]) -> MmdTest:
    """`drawn` are the rows of the first of two samples in random divisions of the pool."""

    def one_step(step: tuple[Array, Array, Array, Array, Array]) -> MmdTest:
        x, n, y, m, first = step
        pool = Pool.of(x, n, y, m)
        width = _median_distance(pool, len(x))
        kernel = jnp.exp(-squared_distances(pool.states, pool.states) / (2 * width**2))
        kernel *= (pool.real[:, None] & pool.real) & ~jnp.eye(len(kernel), dtype=bool)  # unbiased: no diagonal
        everything = kernel.sum()

        def statistic(first: Float[Array, "b p"]) -> Float[Array, " b"]:
            """With `first` the rows of the first of the two samples, all others that are real in the second."""
            towards = first @ kernel
            within = jnp.sum(towards * first, axis=1)
            between = towards.sum(axis=1) - within
            others = everything - within - 2 * between
            return within / (n * (n - 1.0)) + others / (m * (m - 1.0)) - 2 * between / (n * m)

        observed = statistic(1.0 * (~pool.is_data & pool.real)[None])[0]
        permuted = statistic(1.0 * first)
        p_value = (1 + jnp.sum(permuted >= observed)) / (len(first) + 1)
        return MmdTest(observed, p_value, jnp.quantile(permuted, 0.95), width)

    return jax.lax.map(one_step, (*roll_in, *data, drawn))


def _median_distance(pool: Pool, n: int) -> Float[Array, ""]:
    """Between some of the `n` first rows and of the others, those that are real; 1 if more than half are the same."""
    rows = np.concatenate([np.arange(len(pool.states))[part][:NEIGHBOURS] for part in (slice(0, n), slice(n, None))])
    states, real = pool.states[rows], pool.real[rows]
    pairs = (real[:, None] & real) & (rows[:, None] < rows)
    median = jnp.nanmedian(jnp.where(pairs, squared_distances(states, states), jnp.nan))
    return jnp.where(median > 1e-6, jnp.sqrt(median), 1.0)


class Scores(NamedTuple):
    """What classifiers say of states that they were not trained on."""

    logits: Float[Array, "steps p"]
    """log μ/d."""
    in_region: Bool[Array, "steps p"]
    """Whether the state is in the region A where the data are more likely."""


@eqx.filter_jit
def held_out_scores(key: PRNGKeyArray, roll_in: Samples, data: Samples, config: TestConfig) -> tuple[Scores, Scores]:
    """Classifiers of roll-in against data, both kinds given the same weight: the logit is the log density ratio."""
    n = roll_in.states.shape[1]

    def one_step(step: tuple[Array, Array, Array, Array, Array]) -> Scores:
        key, x, n_real, y, m_real = step
        pool = Pool.of(x, n_real, y, m_real)
        number = jnp.concatenate([jnp.arange(len(x)), jnp.arange(len(y))])
        part = number % config.folds
        components = kernel_components(key, pool, len(x), config)

        def one_fold(fold: Array) -> Scores:
            known = pool.real & (part != fold)
            to_check = known & ((number // config.folds) % CHECKED == 0)
            fold_key = jax.random.fold_in(key, fold)
            return classify(fold_key, pool, components, known & ~to_check, to_check, config)

        by_fold = jax.vmap(one_fold)(jnp.arange(config.folds))
        return jax.tree.map(lambda x: jnp.take_along_axis(x, part[None], axis=0)[0], by_fold)

    keys = jax.random.split(key, len(roll_in.states))
    scores = jax.lax.map(one_step, (keys, *roll_in, *data))
    return jax.tree.map(lambda x: x[:, :n], scores), jax.tree.map(lambda x: x[:, n:], scores)


def kernel_components(key: PRNGKeyArray, pool: Pool, n: int, config: TestConfig) -> Float[Array, "p c"]:
    """Leading principal components of the kernel's features, of variance one: kinds of states, where there are kinds."""
    frequencies = jax.random.normal(key, (pool.states.shape[1], config.features // 2))
    features = random_features(pool.states, frequencies, _median_distance(pool, n))
    weights = _balanced(pool.real, pool.is_data)
    centred = features - weights @ features
    variances, directions = jnp.linalg.eigh((centred * weights[:, None]).T @ centred)
    count = min(config.components, len(variances))
    return centred @ (directions[:, -count:] / jnp.sqrt(jnp.maximum(variances[-count:], 1e-6)))


def classify(
    key: PRNGKeyArray,
    pool: Pool,
    components: Float[Array, "p c"],
    to_train: Bool[Array, " p"],
    to_check: Bool[Array, " p"],
    config: TestConfig,
) -> Scores:
    """Two classifiers, of which the one with the least loss on the states `to_check` is taken, at its best moment.

    A network of the states finds any difference, given enough of them; a linear function of the kernel's components finds
    small differences in how often each kind of state occurs. The region A is cut where it tells most on `to_check`, and
    not where the data are less likely.
    """
    checked = _balanced(to_check, pool.is_data)
    sizes = (pool.states.shape[1], config.hidden, 1), (components.shape[1], 1)
    trained = _balanced(to_train, pool.is_data)
    fits = [
        fit_classifier(jax.random.fold_in(key, i), size, inputs, pool.is_data, trained, checked, config)
        for i, (size, inputs) in enumerate(zip(sizes, (pool.states, components), strict=True))
    ]
    logits = jnp.where(fits[0][1] < fits[1][1], fits[0][0], fits[1][0])
    sign = jnp.where(pool.is_data, 1.0, -1.0)
    losses = jnp.stack([checked @ jax.nn.softplus(-sign * scale * logits) for scale in SCALES])
    logits = logits * jnp.asarray(SCALES)[jnp.argmin(losses)]  # stopped early, they are too small
    order = jnp.argsort(-logits)
    gaps = jnp.cumsum((checked * sign)[order])
    return Scores(logits, logits >= jnp.maximum(logits[order][jnp.argmax(gaps)], 0.0))


def fit_classifier(
    key: PRNGKeyArray,
    sizes: tuple[int, ...],
    inputs: Float[Array, "p d"],
    is_data: Bool[Array, " p"],
    trained: Float[Array, " p"],
    checked: Float[Array, " p"],
    config: TestConfig,
) -> tuple[Float[Array, " p"], Float[Array, ""]]:
    """Logits of the network with the least `checked` loss on its way, and that loss; it starts out knowing nothing."""
    start_key, batch_key = jax.random.split(key)
    sign = jnp.where(is_data, 1.0, -1.0)
    schedule = optax.cosine_decay_schedule(config.learning_rate, config.updates)
    optimiser = optax.adamw(schedule, weight_decay=config.decay)
    network = MLP.create(start_key, sizes, last_scale=0.01)
    cumulated = jnp.cumsum(trained)

    def loss(network: MLP, rows: Int[Array, " b"]) -> Float[Array, ""]:
        return jnp.mean(jax.nn.softplus(-sign[rows] * network(inputs[rows])[:, 0]))

    def update(carry: tuple, t: Int[Array, ""]) -> tuple[tuple, None]:
        network, state = carry
        draw = jax.random.uniform(jax.random.fold_in(batch_key, t), (config.batch,))
        rows = jnp.minimum(jnp.searchsorted(cumulated, draw), len(sign) - 1)
        updates, state = optimiser.update(jax.grad(loss)(network, rows), state, network)
        return (optax.apply_updates(network, updates), state), None

    def updates_and_check(carry: tuple, ts: Int[Array, " updates"]) -> tuple[tuple, None]:
        learner, best, least = carry
        learner, _ = jax.lax.scan(update, learner, ts)
        logits = learner[0](inputs)[:, 0]
        now = jnp.sum(checked * jax.nn.softplus(-sign * logits))
        return (learner, jnp.where(now < least, logits, best), jnp.minimum(now, least)), None

    checks = min(CHECKS, config.updates)
    rounds = jnp.arange(config.updates - config.updates % checks).reshape(checks, -1)
    start = ((network, optimiser.init(network)), network(inputs)[:, 0], jnp.log(2.0))
    (_, best, least), _ = jax.lax.scan(updates_and_check, start, rounds)
    return best, least


def _balanced(rows: Bool[Array, " p"], is_data: Bool[Array, " p"]) -> Float[Array, " p"]:
    """Weights of the rows that sum to one half for each kind."""
    kinds = jnp.stack([rows & ~is_data, rows & is_data])
    return (kinds / jnp.maximum(2 * kinds.sum(axis=1, keepdims=True), 1)).sum(axis=0)


def rank_test(roll_in: Float[Array, " n"], data: Float[Array, " m"], folds: int) -> float:
    """p-value of held-out logits being larger on data than on the roll-in: Mann–Whitney a fold, times the folds."""
    each = [
        scipy.stats.mannwhitneyu(data[k::folds], roll_in[k::folds], alternative="greater").pvalue for k in range(folds)
    ]
    return float(min(1.0, folds * min(each)))


EFFECTS = ("gap", "js", "missed", "stray")


class Effects(NamedTuple):
    """How far apart roll-in and data are at one step, and the 95 % intervals of the four effect sizes."""

    gap: float
    js: float
    missed: float
    stray: float
    data_share: float
    """Of the data, in the region A of the gap."""
    roll_in_share: float
    missed_roll_in: float
    """Share of the roll-in where `missed` of the data are."""
    stray_data: float
    intervals: dict[str, tuple[float, float]]


def effects(roll_in: Scores, data: Scores, config: TestConfig, rng: np.random.Generator) -> Effects:
    """From held-out scores of one step. All are means over states, so the bootstrap reweights them."""
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


class Comparison(NamedTuple):
    """Roll-in against data, a row a step."""

    mmd: MmdTest
    floor: Float[np.ndarray, " steps"]
    """Squared MMD that 95 % of the divisions of the data into two halves stay below."""
    classifier_p: Float[np.ndarray, " steps"]
    p_value: Float[np.ndarray, " steps"]
    """Of both tests together (Bonferroni)."""
    adjusted: Float[np.ndarray, " steps"]
    """The same after Benjamini–Hochberg over the steps: below 0.05 for at most 5 % false alarms."""
    effects: list[Effects]


def compare(
    roll_in: Sequence[np.ndarray] | np.ndarray, data: Sequence[np.ndarray], config: TestConfig, seed: int = 0
) -> Comparison:
    """States of a roll-in against data, step by step."""
    for h, states in enumerate(data):
        if len(states) < 4 * config.folds:
            raise HyrloError(
                f"data: timestep {h} has {len(states)} states; comparing needs at least {4 * config.folds} at every step"
            )
    ours, theirs = Samples.shuffled(roll_in, seed), Samples.shuffled(data, seed + 1)
    mmd = mmd_test(ours.at_most(config.most), theirs.at_most(config.most), config.permutations, seed)
    floor = mmd_test(*theirs.at_most(2 * config.most).halves(), config.permutations, seed).null
    scores = jax.tree.map(np.asarray, held_out_scores(jax.random.key(seed), ours, theirs, config))
    rng = np.random.default_rng(seed)
    ranks, sizes = [], []
    for h, (n, m) in enumerate(zip(np.asarray(ours.counts), np.asarray(theirs.counts), strict=True)):
        step = [Scores(s.logits[h, :k], s.in_region[h, :k]) for s, k in zip(scores, (n, m), strict=True)]
        ranks.append(rank_test(step[0].logits, step[1].logits, config.folds))
        sizes.append(effects(step[0], step[1], config, rng))
    together = np.minimum(1.0, 2 * np.minimum(np.asarray(mmd.p_value, float), ranks))
    adjusted = scipy.stats.false_discovery_control(together)
    return Comparison(jax.tree.map(np.asarray, mmd), np.asarray(floor), np.array(ranks), together, adjusted, sizes)
