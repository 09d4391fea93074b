"""The two-sample tests and effect sizes against closed forms, numerical integration and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from scipy.spatial.distance import pdist

from hyrlo.core.errors import HyrloError
from hyrlo.distances.two_sample import (
    PaddedStates,
    TestConfig,
    compare,
    effects,
    held_out_scores,
    mmd_test,
    permutation,
    rank_test,
)
from hyrlo.distances.two_sample.classifier import kernel_components
from hyrlo.distances.two_sample.samples import Pool

RNG = np.random.default_rng(0)
SHIFT = 1.5
SMALL = TestConfig(most=100, permutations=99, updates=60, batch=64, resamples=50)


def normal(*shape, shift=0.0):
    states = RNG.normal(size=shape).astype(np.float32)
    states[..., 0] += shift
    return states


def samples(states, counts=None):
    counts = np.full(len(states), states.shape[1]) if counts is None else counts
    return PaddedStates(jnp.asarray(states), jnp.asarray(counts))


# MMD


def test_the_statistic_is_the_unbiased_one_of_the_definition():
    """Steps of different size: what fills them up must not count."""
    x, y = normal(2, 9, 3), normal(2, 7, 3, shift=1.0)
    counts = np.array([9, 5]), np.array([4, 7])
    found = mmd_test(samples(x, counts[0]), samples(y, counts[1]), 19, seed=0)
    for h in range(2):
        a, b = x[h, : counts[0][h]].astype(float), y[h, : counts[1][h]].astype(float)
        pool = np.concatenate([a, b])
        a, b = ((s - pool.mean(axis=0)) / pool.std(axis=0) for s in (a, b))
        k = lambda p, q: np.exp(-((p[:, None] - q) ** 2).sum(-1) / (2 * float(found.bandwidth[h]) ** 2))  # noqa: B023, E731
        off = lambda m: (m.sum() - np.trace(m)) / (len(m) * (len(m) - 1))  # noqa: E731
        direct = off(k(a, a)) + off(k(b, b)) - 2 * k(a, b).mean()
        assert float(found.mmd2[h]) == pytest.approx(direct, abs=1e-5)


def test_mmd_of_gaussians_is_the_closed_form():
    steps, n, d, shift = 30, 400, 3, 1.0
    found = mmd_test(samples(normal(steps, n, d)), samples(normal(steps, n, d, shift=shift)), 1, seed=0)
    variances = np.ones(d)
    variances[0] = 1 / (1 + shift**2 / 4)  # after scaling by the pool's deviation
    width2 = np.asarray(found.bandwidth)[:, None] ** 2
    within = np.prod((1 + 2 * variances / width2) ** -0.5, axis=1)
    apart = shift**2 * variances[0] / (2 * (width2[:, 0] + 2 * variances[0]))
    exact = 2 * within * (1 - np.exp(-apart))
    assert np.mean(found.mmd2 - exact) == pytest.approx(0, abs=0.05 * exact.mean())
    same = mmd_test(samples(normal(200, 20, d)), samples(normal(200, 20, d)), 1, seed=0).mmd2
    assert abs(np.mean(same)) < 4 * np.std(same) / 200**0.5  # no bias; with the diagonal it would be near 0.05
    assert abs(np.mean(same)) < 0.01


def test_the_permutation_test_keeps_its_level_and_has_power():
    """400 repetitions as if they were steps, some of them partly filled."""
    steps = 400
    counts = np.where(np.arange(steps) % 2, 20, 13)
    null = mmd_test(samples(normal(steps, 20, 2)), samples(normal(steps, 20, 2), counts), 99, seed=1)
    share = float(np.mean(null.p_value <= 0.05))
    assert abs(share - 0.05) < 4 * (0.05 * 0.95 / steps) ** 0.5
    assert abs(np.mean(null.p_value) - 0.5) < 0.07
    shifted = mmd_test(samples(normal(100, 40, 2)), samples(normal(100, 40, 2, shift=1.0)), 99, seed=1)
    assert np.mean(shifted.p_value <= 0.05) > 0.85
    over_floor = np.mean(np.asarray(null.mmd2) > np.asarray(null.null))
    assert abs(over_floor - 0.05) < 4 * (0.05 * 0.95 / steps) ** 0.5


def on_a_line(n, m, shift):
    """Two samples of one dimension, the second with mean 0 and deviation 1. The units of a line do not change an MMD whose
    bandwidth is the median distance."""
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, 1)) + shift, rng.normal(size=(m, 1))
    return x, (y - y.mean()) / y.std()


def kernel_of(pool):
    """The RBF kernel with the median distance as bandwidth, in double precision."""
    return np.exp(-((pool - pool.T) ** 2) / (2 * np.median(pdist(pool)) ** 2))


def unbiased_mmd2(kernel, first):
    """By its definition; `first` marks the rows of the first sample."""
    off = lambda k: (k.sum() - np.trace(k)) / (len(k) * (len(k) - 1))  # noqa: E731
    return off(kernel[first][:, first]) + off(kernel[~first][:, ~first]) - 2 * kernel[first][:, ~first].mean()


@pytest.mark.parametrize("shift", [0.5, 2.0])
def test_the_bandwidth_is_the_median_distance(shift):
    x, y = on_a_line(40, 30, shift)
    pool = np.concatenate([x, y])
    exact = unbiased_mmd2(kernel_of(pool), np.arange(70) < 40)
    found = mmd_test(samples(x[None].astype(np.float32)), samples(y[None].astype(np.float32)), 19, seed=0)
    assert float(found.mmd2[0]) == pytest.approx(exact, rel=1e-3)


def test_the_p_value_counts_the_observed_split_among_the_permuted_ones(monkeypatch):
    """(1 + count) / (1 + N) by brute force over the splits that were drawn: never 0, also where no split comes near."""
    drawn, test = [], permutation._mmd_test
    monkeypatch.setattr(permutation, "_mmd_test", lambda *args: drawn.append(np.asarray(args[2])) or test(*args))
    shifts, n, m, permutations = (0.0, 0.4, 0.8, 5.0), 12, 10, 39
    pairs = [on_a_line(n, m, shift) for shift in shifts]
    x, y = (samples(np.stack(sample).astype(np.float32)) for sample in zip(*pairs, strict=True))
    found = mmd_test(x, y, permutations, seed=0)
    assert drawn[0].shape == (len(shifts), permutations, n + m)
    for h, pair in enumerate(pairs):
        kernel = kernel_of(np.concatenate(pair))
        observed = unbiased_mmd2(kernel, np.arange(n + m) < n)
        count = sum(unbiased_mmd2(kernel, split) >= observed for split in drawn[0][h])
        assert float(found.p_value[h]) == pytest.approx((1 + count) / (1 + permutations), rel=1e-6)
    assert float(found.p_value[-1]) == pytest.approx(1 / (1 + permutations))
    assert float(found.p_value[0]) > 0.1


# The classifier


def test_the_classifier_s_components_are_those_of_kernel_pca_with_the_median_bandwidth():
    """Both samples weigh one half. Random features: the two planes agree but for small angles."""
    x, y = on_a_line(60, 40, 1.0)
    weights, pool = np.repeat([1 / 120, 1 / 80], [60, 40]), np.concatenate([x, y])
    centring, root = np.eye(100) - weights, np.sqrt(weights)
    exact = np.linalg.eigh(root[:, None] * (centring @ kernel_of(pool) @ centring.T) * root)[1][:, -2:]
    one = Pool.of(*(jnp.asarray(v, jnp.float32) for v in (x, 60, y, 40)))
    found = kernel_components(jax.random.key(1), one, 60, TestConfig(features=256, components=2))
    cosines = np.linalg.svd((root[:, None] * np.asarray(found)).T @ exact)[1]
    np.testing.assert_allclose(cosines, 1.0, atol=0.02)


@pytest.mark.parametrize("folds", [2, 3])
def test_the_rank_test_pays_for_looking_at_every_fold(folds):
    """Where all of 4 data are above all of 4 roll-in states, as in one of 70 orders, the least p-value is folds / 70."""
    roll_in, data = np.arange(4 * folds), 100 + np.arange(4 * folds)
    assert rank_test(roll_in, data, folds) == pytest.approx(folds / 70)
    data[1::folds] = -np.arange(1, 5)  # in another fold, all are below: p = 1, and the least counts
    assert rank_test(roll_in, data, folds) == pytest.approx(folds / 70)
    assert rank_test(data, roll_in + 200, folds) == pytest.approx(folds / 70)
    assert rank_test(roll_in + 200, data, folds) == 1.0


def test_the_rank_test_keeps_its_level():
    """Without the factor for four folds, a level of 0.05 would be one of 0.19."""
    rng = np.random.default_rng(0)
    p_values = np.array([rank_test(*rng.normal(size=(2, 120)), folds=4) for _ in range(600)])
    assert abs(np.mean(p_values <= 0.05) - 0.05) < 4 * (0.05 * 0.95 / 600) ** 0.5


@pytest.mark.slow
def test_a_classifier_that_memorises_finds_nothing_where_nothing_is():
    """Many dimensions, few states: on the states it was trained on it would tell the two apart almost perfectly."""
    steps, n = 60, 40
    ours, theirs = samples(normal(steps, n, 30)), samples(normal(steps, n, 30))
    config = TestConfig(updates=30, batch=64)
    scores = [jax.tree.map(np.asarray, s) for s in held_out_scores(jax.random.key(0), ours, theirs, config)]
    gaps = scores[1].in_region.mean(axis=1) - scores[0].in_region.mean(axis=1)
    assert abs(gaps.mean()) < 4 * gaps.std() / steps**0.5
    p_values = np.array([rank_test(scores[0].logits[h], scores[1].logits[h], config.folds) for h in range(steps)])
    assert np.mean(p_values <= 0.05) < 0.05 + 4 * (0.05 * 0.95 / steps) ** 0.5


@pytest.fixture(scope="module")
def known():
    """Four steps: Gaussians that are shifted, the same, a fifth of the data far away, a fifth of the roll-in far away."""
    states = [normal(2500, 2) for _ in range(8)]
    states[4][:, 0] += SHIFT
    for far in (states[6], states[3]):
        far[: len(far) // 5, 1] += 12.0
    states[5] = states[5][:1500]
    return compare(states[:4], states[4:], TestConfig(most=200, permutations=99, updates=300))


def test_gaussians_have_the_divergence_of_numerical_integration(known):
    p, q = scipy.stats.norm(0, 1).pdf, scipy.stats.norm(SHIFT, 1).pdf
    half = lambda f, g: scipy.integrate.quad(lambda x: f(x) * np.log(2 * f(x) / (f(x) + g(x))), -8, 10)[0] / 2  # noqa: E731
    js, tv = half(p, q) + half(q, p), 2 * scipy.stats.norm.cdf(SHIFT / 2) - 1
    shifted, same = known.effects[:2]
    assert shifted.js == pytest.approx(js, abs=0.025)
    assert shifted.gap == pytest.approx(tv, abs=0.04)
    assert shifted.gap == pytest.approx(shifted.data_share - shifted.roll_in_share)
    for name in ("gap", "js"):
        low, high = shifted.intervals[name]
        assert low < getattr(shifted, name) < high
        assert high - low < 0.1
    assert same.js < 0.005
    assert abs(same.gap) < 0.06
    assert known.adjusted[0] <= 0.05 < known.adjusted[1]


def test_what_is_not_covered_is_counted_on_the_right_side(known):
    there, back = known.effects[2:]
    assert there.missed == pytest.approx(0.2, abs=0.02)
    assert there.missed_roll_in < 0.01
    assert there.stray < 0.02
    assert back.stray == pytest.approx(0.2, abs=0.02)
    assert back.stray_data < 0.01
    assert back.missed < 0.02
    assert 0.13 < there.gap < 0.23  # at most the TV distance, 0.2, but for sampling error
    assert 0.13 < back.gap < 0.23


# All together


SHIFTS = [0.0, 0.0, 1.5, 0.0, 0.3, 0.0]
OURS, THEIRS = [normal(150, 2) for _ in SHIFTS], [normal(150, 2, shift=s) for s in SHIFTS]


@pytest.mark.slow
def test_false_alarms_are_controlled_over_steps():
    """Benjamini–Hochberg by its definition: adjusted p_(i) = min over j ≥ i of m p_(j) / j. And same seed, same numbers."""
    found, again = (compare(OURS, THEIRS, SMALL, seed=3) for _ in range(2))
    together = np.minimum(1, 2 * np.minimum(found.mmd.p_value, found.classifier_p))
    np.testing.assert_allclose(found.p_value, together, rtol=1e-6)
    order = np.argsort(together)
    scaled = together[order] * len(SHIFTS) / np.arange(1, len(SHIFTS) + 1)
    expected = np.minimum.accumulate(scaled[::-1])[::-1]
    np.testing.assert_allclose(found.adjusted[order], np.minimum(expected, 1), rtol=1e-6)
    assert found.adjusted[2] == found.adjusted.min() < 0.05
    assert found.effects == again.effects
    np.testing.assert_array_equal(found.mmd.p_value, again.mmd.p_value)


def test_intervals_are_those_of_resampled_shares():
    ours, theirs = (PaddedStates.shuffled(x, 0) for x in (OURS, THEIRS))
    scores = [jax.tree.map(np.asarray, s) for s in held_out_scores(jax.random.key(0), ours, theirs, SMALL)]
    one = [type(s)(s.logits[2], s.in_region[2]) for s in scores]
    found = effects(*one, TestConfig(resamples=4000), np.random.default_rng(0))
    p, q = found.data_share, found.roll_in_share
    deviation = (p * (1 - p) / 150 + q * (1 - q) / 150) ** 0.5
    low, high = found.intervals["gap"]
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_neither_units_nor_constant_dimensions_matter():
    ours, theirs = normal(2, 50, 3), normal(2, 40, 3, shift=0.5)
    plain = mmd_test(samples(ours), samples(theirs), 19, seed=0)
    units = np.array([1000.0, 1.0, 0.01], np.float32)
    scaled = mmd_test(samples(ours * units + 7), samples(theirs * units + 7), 19, seed=0)
    np.testing.assert_allclose(scaled.mmd2, plain.mmd2, atol=1e-3)
    more = [samples(np.pad(x, ((0, 0), (0, 0), (0, 1)), constant_values=5.0)) for x in (ours, theirs)]
    np.testing.assert_allclose(mmd_test(*more, 19, seed=0).mmd2, plain.mmd2, atol=1e-5)


def test_too_few_states_and_bad_settings_are_refused():
    with pytest.raises(HyrloError, match="timestep 1 has 7 states"):
        compare([normal(20, 2)] * 2, [normal(20, 2), normal(7, 2)], SMALL)
    with pytest.raises(HyrloError, match="rare is 1"):
        TestConfig(rare=1.0)
    with pytest.raises(HyrloError, match="folds is 1"):
        TestConfig(folds=1)
