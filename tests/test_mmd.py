"""MMD against closed forms and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import pdist

from hyrlo.distances.mmd import (
    BLOCK,
    ExactMMD,
    ImportanceMMD,
    cos_sin,
    kernel_mean,
    median_bandwidth,
    mmd2,
    random_features,
    squared_distances,
)
from hyrlo.distances.units import Compared

RNG = np.random.default_rng(0)


median_width = jax.jit(median_bandwidth)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def kernel(x, y, width: float) -> np.ndarray:
    x, y = np.asarray(x, float), np.asarray(y, float)
    return np.exp(-((x[:, None] - y[None]) ** 2).sum(axis=2) / (2 * width**2))


def brute_mmd2(x, y, wx, wy, width: float) -> float:
    def total(a, b, wa, wb):
        terms = 0.0
        for i in range(len(a)):
            for j in range(len(b)):
                terms += wa[i] * wb[j] * np.exp(-np.sum((a[i] - b[j]) ** 2) / (2 * width**2))
        return terms

    x, y = np.asarray(x, float), np.asarray(y, float)
    return total(x, x, wx, wx) + total(y, y, wy, wy) - 2 * total(x, y, wx, wy)


def gaussian_mmd2(gap2: float, s1: float, s2: float, d: int, width: float, n: int, m: int) -> float:
    """Expected V-statistic of n and m draws of N(a, s1²) and N(b, s2²) with |a - b|² = gap2."""
    within = [(width**2 / (width**2 + 2 * s**2)) ** (d / 2) for s in (s1, s2)]
    spread = width**2 + s1**2 + s2**2
    between = (width**2 / spread) ** (d / 2) * np.exp(-gap2 / (2 * spread))
    diagonal = (1 - within[0]) / n + (1 - within[1]) / m
    return within[0] + within[1] - 2 * between + diagonal


@pytest.mark.parametrize(
    ("shift", "s1", "s2", "width"), [(0.0, 1.0, 2.0, 1.5), (1.0, 1.0, 1.0, 1.0), (0.7, 0.5, 1.5, 3.0)]
)
def test_gaussians_match_the_closed_form(shift, s1, s2, width):
    n, m, d = 3000, 2000, 3
    x, y = s1 * normal(n, d), s2 * normal(m, d) + shift
    expected = gaussian_mmd2(d * shift**2, s1, s2, d, width, n, m)
    assert float(mmd2(x, y, bandwidth=width)) == pytest.approx(expected, rel=0.15)


def test_equal_gaussians_leave_only_the_diagonal():
    n, m, d = 3000, 2000, 3
    found = float(mmd2(normal(n, d), normal(m, d), bandwidth=1.0))
    assert found < 4 * gaussian_mmd2(0.0, 1.0, 1.0, d, 1.0, n, m)


@pytest.mark.parametrize("width", [0.5, 2.0])
def test_weighted_mmd_equals_brute_force(width):
    x, y = normal(6, 2), normal(5, 2) + 0.5
    wx, wy = RNG.random(6).astype(np.float32), RNG.random(5).astype(np.float32)  # of no particular sum
    assert float(mmd2(x, y, wx, wy, width)) == pytest.approx(brute_mmd2(x, y, wx, wy, width), rel=1e-4)


def test_plain_mmd_weighs_every_sample_alike():
    x, y = normal(6, 2), normal(5, 2) + 0.5
    expected = brute_mmd2(x, y, np.full(6, 1 / 6), np.full(5, 1 / 5), 1.3)
    assert float(mmd2(x, y, bandwidth=1.3)) == pytest.approx(expected, rel=1e-4)
    width = np.median(pdist(np.concatenate([x, y])))
    expected = brute_mmd2(x, y, np.full(6, 1 / 6), np.full(5, 1 / 5), width)
    assert float(mmd2(x, y)) == pytest.approx(expected, rel=1e-3)


def test_states_of_no_weight_change_nothing():
    x, y = normal(6, 2), normal(5, 2) + 0.5
    filled, weights = np.concatenate([y, y[:2]]), np.array([0.2] * 5 + [0.0] * 2, np.float32)
    found = mmd2(x, filled, None, weights, 1.0)
    assert float(found) == pytest.approx(float(mmd2(x, y, bandwidth=1.0)), abs=1e-6)


@pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, BLOCK + 1, 1100])
def test_blocks_do_not_change_the_kernel_mean(n):
    at, points, weights = normal(n, 4), normal(40, 4), normal(40)
    found = jax.jit(kernel_mean)(at, points, weights, 1.7)
    assert found.shape == (n,)
    np.testing.assert_allclose(found, kernel(at, points, 1.7) @ weights, atol=1e-4)


def test_more_samples_than_a_block_on_both_sides():
    x, y = normal(BLOCK + 1, 2), normal(BLOCK + 3, 2) + 0.3
    expected = kernel(x, x, 1.0).mean() + kernel(y, y, 1.0).mean() - 2 * kernel(x, y, 1.0).mean()
    assert float(mmd2(x, y, bandwidth=1.0)) == pytest.approx(expected, abs=1e-5)


points = st.floats(-10, 10, width=32)


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, (6, 2), elements=points), arrays(np.float32, (5, 2), elements=points))
@example(
    np.full((6, 2), 6e-8, np.float32), np.array([[2, 0], *[[0, 0]] * 4], np.float32)
)  # most are equal but for rounding
def test_mmd_is_symmetric_bounded_and_zero_on_equal_samples(x, y):
    forth, back = float(mmd2(x, y)), float(mmd2(y, x))
    assert forth == pytest.approx(back, abs=1e-4)
    assert 0 <= forth <= 2 + 1e-5
    assert float(mmd2(x, x)) < 1e-5


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, (6, 2), elements=points), arrays(np.float32, (5, 2), elements=points))
def test_squared_distances_are_those_of_numpy_and_never_negative(x, y):
    found = np.asarray(squared_distances(x, y))
    expected = ((x[:, None].astype(float) - y[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert (found >= 0).all()


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, (6, 2), elements=points), st.permutations(range(6)))
def test_order_does_not_matter(x, order):
    y = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    assert float(mmd2(x[order], y, bandwidth=1.0)) == pytest.approx(float(mmd2(x, y, bandwidth=1.0)), abs=1e-5)


def test_far_apart_samples_have_the_largest_mmd():
    x = np.zeros((6, 2), np.float32)
    assert float(mmd2(x, x[:5] + 100, bandwidth=1.0)) == pytest.approx(2.0)


@pytest.mark.parametrize("shift", [100.0, 1000.0])
def test_moving_both_samples_changes_little(shift):
    x, y = normal(200, 3), normal(200, 3) + 0.5
    assert float(mmd2(x + shift, y + shift)) == pytest.approx(float(mmd2(x, y)), rel=0.05)


@pytest.mark.parametrize(("n", "m"), [(10, 8), (1, 2)])
def test_median_bandwidth_is_the_median_distance(n, m):
    """An odd number of pairs, so that there is one in the middle."""
    x, y = normal(n, 3), normal(m, 3) + 1
    distances = pdist(np.concatenate([x, y]))
    assert len(distances) % 2 == 1
    assert float(median_width(x, y)) == pytest.approx(np.median(distances), rel=1e-4)


def test_median_bandwidth_of_an_even_number_of_pairs_lies_between_the_middle_two():
    x, y = normal(7, 3), normal(6, 3)
    distances = np.sort(pdist(np.concatenate([x, y])))
    low, high = distances[len(distances) // 2 - 1 : len(distances) // 2 + 1]
    assert low - 1e-4 <= float(median_width(x, y)) <= high + 1e-4


def test_median_bandwidth_of_many_samples_is_close_to_that_of_all():
    x, y = normal(1500, 4), normal(1100, 4) + 1
    expected = np.median(pdist(np.concatenate([x, y])))
    assert float(median_width(x, y)) == pytest.approx(expected, rel=0.1)


def test_cos_sin_are_cosine_and_sine_with_their_slopes():
    angles = np.random.default_rng(0).uniform(-40, 40, 5000).astype(np.float32)
    exact = np.cos(angles.astype(float)), np.sin(angles.astype(float))
    np.testing.assert_allclose(cos_sin(jnp.asarray(angles)), exact, atol=6e-6)
    slopes = [jax.vmap(jax.grad(lambda x, i=i: cos_sin(x)[i]))(jnp.asarray(angles)) for i in range(2)]
    np.testing.assert_allclose(slopes, (-exact[1], exact[0]), atol=6e-6)


def test_inner_products_of_random_features_approach_the_kernel():
    x, frequencies, width = normal(12, 4), normal(4, 20_000), 1.8
    features = random_features(jnp.asarray(x), jnp.asarray(frequencies), jnp.asarray(width))
    np.testing.assert_allclose(features @ features.T, kernel(x, x, width), atol=5 / 20_000**0.5)
    np.testing.assert_allclose(jnp.sum(features**2, axis=1), 1.0, rtol=1e-4)


@jax.jit
def value(mmd, witness, policy, batch):
    return mmd.inner(mmd.embed(witness, batch), mmd.embed(policy, batch))


@jax.jit
def create_exact(online, actions, offline, offline_weights):
    return ExactMMD.create(Compared.plain(online), actions, Compared.plain(offline), offline_weights)


@pytest.mark.parametrize("batch", [np.arange(60), RNG.integers(60, size=60)], ids=["all", "with repeats"])
def test_importance_and_exact_mmd_agree(batch):
    n, m, actions, d = 60, 50, 4, 3
    online, offline = jnp.asarray(normal(n, d)), jnp.asarray(normal(m, d) + 0.4)
    taken = jnp.asarray(RNG.integers(actions, size=n))
    offline_weights = jnp.asarray(RNG.dirichlet(np.ones(m)), jnp.float32)
    first, second = (jax.nn.softmax(jnp.asarray(normal(len(batch), actions))) for _ in range(2))

    exact = create_exact(online, taken, offline, offline_weights)
    width = exact.bandwidth
    assert float(width) == pytest.approx(np.median(pdist(np.concatenate([online, offline]))), rel=1e-3)
    frequencies = jnp.asarray(normal(d, 40_000))
    features = random_features(online, frequencies, width)
    sampled = ImportanceMMD(features, offline_weights @ random_features(offline, frequencies, width), taken)

    for witness, policy in [(first, first), (first, second), (second, second)]:
        found, expected = (float(value(mmd, witness, policy, batch)) for mmd in (sampled, exact))
        assert found == pytest.approx(expected, abs=0.03)

    weights = actions * np.asarray(first)[np.arange(len(batch)), np.asarray(taken)[batch]] / len(batch)
    expected = brute_mmd2(online[batch], offline, weights, np.asarray(offline_weights), float(width))
    assert float(value(exact, first, first, batch)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1000.3])
def test_data_of_duplicates_only_stay_finite(scale):
    x = np.tile(scale * normal(1, 17), (20, 1))
    assert float(mmd2(x, x)) == pytest.approx(0.0, abs=1e-5)
    exact = create_exact(x, np.zeros(20, int), x, np.full(20, 0.05, np.float32))
    assert np.isfinite(exact.bandwidth)
    assert exact.bandwidth > 0
    policy = np.ones((20, 1), np.float32)
    assert float(value(exact, policy, policy, np.arange(20))) == pytest.approx(0.0, abs=1e-5)


def test_two_piles_of_duplicates_are_told_apart():
    x, y = np.zeros((6, 2), np.float32), np.zeros((5, 2), np.float32)
    assert float(mmd2(x, y + 5)) > 0.5
    y[0] = 5
    assert float(mmd2(x, y)) > 0.01
