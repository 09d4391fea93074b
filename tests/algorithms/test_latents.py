"""Latent states: as many as there are, the same whatever the units, and Q-functions that are means of counts."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from hyrlo.core import latents
from hyrlo.core.errors import HyrloError
from hyrlo.core.latents import (
    FEW,
    MOST_STATES,
    PRIOR,
    VALLEY,
    LatentCounts,
    Latents,
    Units,
    counted_q,
    cut_dimensions,
    discover,
    k_means,
    keep_largest,
    latent_states,
    merged,
    valleys,
)
from hyrlo.core.networks import latent_state


def gaussians(count, size, n=1500, seed=0, apart=8.0):
    """The kind of each state, and the states: unit Gaussians around orthogonal centres."""
    rng = np.random.default_rng(seed)
    centres = apart * np.linalg.qr(rng.standard_normal((size, count)))[0].T
    kind = rng.integers(count, size=n)
    return kind, (centres[kind] + rng.standard_normal((n, size))).astype(np.float32)


def same_up_to_names(one, other):
    """Whether two labellings are the same partition."""
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len(set(one.tolist())) == len(set(other.tolist()))


@pytest.mark.parametrize("size", [5, 60])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_separate_gaussians_are_as_many_latent_states(size, count, seed):
    kind, states = gaussians(count, size, seed=seed)
    found = discover((states,), 64, seed)
    assert found.count == count
    assert same_up_to_names(kind, found.label(states))


def test_kinds_within_kinds_are_found_though_they_are_more_than_the_cells():
    """Ten groups far apart, of six kinds each: sixty in all, where the first partition has forty cells."""
    rng = np.random.default_rng(0)
    group, kind = rng.integers(10, size=2500), rng.integers(6, size=2500)
    places = np.append(100 * np.eye(10)[group], 10 * np.eye(6)[kind], axis=1)
    states = places + rng.standard_normal(places.shape)
    found = discover((states,), 128, 0)
    assert latents.CELLS < found.count == 60
    assert same_up_to_names(6 * group + kind, found.label(states))


def test_states_that_were_not_seen_belong_to_the_nearest_gaussian():
    kind, states = gaussians(5, 60, n=4000)
    found = discover((states[:1000],), 64, 0)
    assert same_up_to_names(kind[1000:], found.label(states[1000:]))


@pytest.mark.parametrize("size", [1, 2, 5, 60])
@pytest.mark.parametrize("n", [30, 300, 3000])
def test_states_that_vary_smoothly_are_one_latent_state(size, n):
    """Whatever the sample: a few empty stretches among few states are no valleys."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        for states in (rng.standard_normal((n, size)), rng.uniform(size=(n, size))):
            found = discover((states,), 64, seed)
            assert found.count == 1
            assert not found.label(states).any()


@pytest.mark.parametrize("size", [5, 60])
def test_units_and_offsets_of_dimensions_change_no_label(size):
    _, states = gaussians(4, size, seed=2)
    rng = np.random.default_rng(3)
    scale, offset = 10.0 ** rng.uniform(-3, 3, size), 100 * rng.standard_normal(size)
    plain, other = discover((states,), 64, 0), discover((states * scale + offset * scale,), 64, 0)
    assert plain.count == other.count == 4
    assert same_up_to_names(plain.label(states), other.label(states * scale + offset * scale))


@pytest.mark.parametrize("copies", [4, 30])
def test_states_that_repeat_exactly_are_latent_states_of_their_own(copies):
    """No valley could be found among ten states at equal distances."""
    states = np.repeat(np.eye(10, dtype=np.float32), copies, axis=0)
    found = discover((states,), 64, 0)
    assert found.count == 10
    assert same_up_to_names(np.repeat(np.arange(10), copies), found.label(states))
    close = np.repeat(1e-3 * np.eye(10, dtype=np.float32) + 5, copies, axis=0)
    assert same_up_to_names(found.label(states), discover((close,), 64, 0).label(close))


def test_a_state_that_repeats_is_told_from_those_that_vary():
    """An end that is always the same, in the midst of states that vary."""
    rng = np.random.default_rng(0)
    states = np.concatenate([rng.standard_normal((1000, 3)), np.zeros((200, 3))])
    label = latent_states(states, Units.of(states), 0)
    assert same_up_to_names(np.arange(1200) >= 1000, label)


def test_positions_on_a_grid_are_told_apart_despite_distractors():
    """Five positions by four, with noise of a tenth of the distance between them; a third dimension is all noise."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(5, size=4000), rng.integers(4, size=4000)
    states = np.stack([x + 0.05 * rng.standard_normal(4000), 50 * y + rng.standard_normal(4000)], axis=1)
    states = np.append(states, rng.standard_normal((4000, 1)), axis=1)
    found = discover((states[:2000],), 64, 0)
    assert found.count == 20
    assert same_up_to_names(4 * x + y, found.label(states))


def test_cuts_lie_in_the_gaps_of_a_single_dimension():
    """Among dimensions without gaps, only the one with gaps is cut, at every gap."""
    rng = np.random.default_rng(1)
    states = rng.standard_normal((3000, 4))
    position = rng.integers(3, size=3000)
    assert cut_dimensions(states).max() == 0
    states[:, 2] = 10 * position - 70 + rng.uniform(-1, 1, 3000)
    assert same_up_to_names(position, cut_dimensions(states))


def test_no_more_latent_states_than_asked_for_and_the_largest_stay():
    rng = np.random.default_rng(0)
    sizes = [400, 20, 300, 30, 500]
    kind = np.repeat(np.arange(5), sizes)
    states = 20.0 * np.eye(5)[kind] + rng.standard_normal((len(kind), 5))
    found = discover((states,), 3, 0)
    large = np.isin(kind, [0, 2, 4])
    assert found.count == 3
    assert same_up_to_names(kind[large], found.label(states)[large])
    assert discover((states,), 1, 0).count == 1


def test_what_is_left_out_goes_to_the_nearest():
    """Centres at 0, 10 and 13: the third is the smallest."""
    label = np.repeat([0, 1, 2], [30, 40, 20])
    points = np.array([0.0, 10.0, 13.0])[label][:, None]
    np.testing.assert_array_equal(keep_largest(points, label, 2), np.repeat([0, 1, 1], [30, 40, 20]))
    np.testing.assert_array_equal(keep_largest(points, label, 3), label)
    assert not keep_largest(points, label, 1).any()


def test_a_dozen_states_far_away_prove_no_valley_and_a_few_more_do():
    """Nothing lies between, so the ratio is the prior by the size of the far cell: below the bar from 13 states on."""
    rng = np.random.default_rng(0)
    least = int(np.floor(PRIOR / VALLEY - 0.5)) + 1
    assert least == 13
    for far in (least - 1, least):
        points = np.append(rng.uniform(-1, 1, (400, 3)), rng.uniform(-1, 1, (far, 3)) + np.array([1e3, 0, 0]), axis=0)
        label = (np.arange(400 + far) >= 400).astype(int)
        assert valleys(points, label)[0, 1] == pytest.approx(PRIOR / (far + 0.5))
        np.testing.assert_array_equal(merged(points, label), label if far >= least else 0)


def test_a_state_seen_less_often_than_needed_is_no_latent_state():
    """Among states that vary; one more time and it is one."""
    rng = np.random.default_rng(0)
    for times in (FEW - 1, FEW):
        states = np.concatenate([rng.standard_normal((400, 3)), np.full((times, 3), 0.1)])
        assert latent_states(states, Units.of(states), 0).max() == (times >= FEW)


def test_latent_states_that_only_fill_up_are_never_chosen():
    _, states = gaussians(3, 5)
    found = discover((states,), 64, 0)
    padded = found.padded(8)
    assert padded.shape == (6, 8)
    anywhere = np.concatenate([states, 1e3 * states, np.zeros((1, 5), np.float32)])
    weights = np.asarray(latent_state(jnp.asarray(anywhere), jnp.asarray(padded)))
    assert weights[:, 3:].max() == 0.0
    np.testing.assert_array_equal(weights.argmax(axis=1), found.label(anywhere))
    np.testing.assert_array_equal(Latents(padded).label(anywhere), found.label(anywhere))


def test_a_kind_that_only_online_states_have_is_found():
    """Ninety of a hundred online states are of a kind that two thousand offline states lack."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=2000)
    offline = 8.0 * np.eye(5)[kind] + rng.standard_normal((2000, 5))
    away = np.arange(100) < 90
    online = 8.0 * np.eye(5)[np.where(away, 4, 0)] + rng.standard_normal((100, 5))
    found = discover((offline, online), 64, 0)
    assert found.count == 3
    everything, true = np.concatenate([offline, online]), np.concatenate([kind, np.where(away, 4, 0)])
    assert same_up_to_names(true, found.label(everything))


def test_a_large_source_does_not_crowd_out_a_small_one():
    """Of a hundred thousand states no more are used than needed; two hundred others are a tenth of them, not a thousandth."""
    rng = np.random.default_rng(0)
    large, small = rng.standard_normal((100_000, 3)), rng.standard_normal((200, 3)) + np.array([9.0, 0.0, 0.0])
    found = discover((large, small), 64, 0)
    assert found.count == 2
    assert len(set(found.label(small).tolist())) == 1
    assert found.label(large).mean() == pytest.approx(found.label(large[:1])[0], abs=1e-3)


def test_valleys_of_two_gaussians_in_closed_form():
    """The ratio between bins on a line, for large samples: the least of the three in the middle by the largest of a side.

    Bins have a sixth of the distance and the three in the middle are centred at half of it. The least of them is an outer
    one, counted from both sides together, or the middle one.
    """
    rng, apart, n = np.random.default_rng(0), 6.0, 200_000
    label = np.repeat([0, 1], n)
    points = rng.standard_normal((2 * n, 3)) + np.array([apart, 0.0, 0.0]) * label[:, None]
    ratios = valleys(points, label)
    edges = apart * (np.arange(10) - 4.5) / 6
    below = 0.5 * (1 + erf(edges / 2**0.5))
    there = np.diff(below)
    between = min(there[6] + there[8], 2 * there[7])
    assert ratios[0, 1] == pytest.approx(between / there[:6].max(), rel=0.05)


def test_valleys_are_the_same_from_both_sides():
    """Whatever the sizes of the cells."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((700, 4))
    label = rng.choice(4, size=700, p=[0.1, 0.2, 0.3, 0.4])
    points[:, 0] += label
    ratios = valleys(points, label)
    np.testing.assert_allclose(ratios, ratios.T)
    np.testing.assert_array_equal(np.diag(ratios), -1.0)
    order = np.array([2, 0, 3, 1])
    np.testing.assert_allclose(valleys(points, order[label])[np.ix_(order, order)], ratios)
    moved = points @ np.linalg.qr(rng.standard_normal((4, 4)))[0] * 7 + 3  # neither does how the axes lie
    np.testing.assert_allclose(valleys(moved, label), ratios)


def test_cells_drawn_at_random_have_no_valley_between_them():
    """In many dimensions a point is close to a centre that it is part of; that must not look like a valley."""
    rng = np.random.default_rng(0)
    points, label = rng.standard_normal((120, 1000)), np.repeat([0, 1], 60)
    assert valleys(points, label)[0, 1] > 1.5
    assert merged(points, label).max() == 0


def test_k_means_finds_separate_cells_and_cannot_be_improved():
    kind, points = gaussians(6, 8, apart=20.0)
    points = points.astype(float)
    label = k_means(points, 6, np.random.default_rng(0))
    assert same_up_to_names(kind, label)
    many = k_means(points[:, :2], 10, np.random.default_rng(0), rounds=200)
    centres = np.stack([points[many == z, :2].mean(axis=0) for z in range(10)])
    nearest = np.argmin(((points[:, None, :2] - centres) ** 2).sum(axis=2), axis=1)
    np.testing.assert_array_equal(many, nearest)


def test_directions_of_noise_alone_are_left_out():
    """Three factors, each behind twenty of sixty dimensions: three directions. Of pure noise, one."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((4000, 3))
    states = np.repeat(factors, 20, axis=1) + 0.5 * rng.standard_normal((4000, 60))
    assert Units.of(states * 10.0 ** rng.uniform(-3, 3, 60)).directions.shape == (60, 3)
    assert Units.of(rng.standard_normal((4000, 60))).directions.shape == (60, 1)


def test_leading_directions_give_the_factors_back():
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((4000, 3))
    states = 100 + np.repeat(factors, 20, axis=1) + 0.5 * rng.standard_normal((4000, 60))
    points = Units.of(states)(states)
    left = np.linalg.lstsq(points, factors, rcond=None)[0]
    assert np.mean((points @ left - factors) ** 2) == pytest.approx(0.25 / 20, rel=0.1)  # the mean of twenty


def test_a_dimension_that_is_constant_counts_for_nothing():
    kind, states = gaussians(3, 5)
    constant = np.append(states, np.full((len(states), 1), 7.0, np.float32), axis=1)
    found = discover((constant,), 64, 0)
    assert same_up_to_names(kind, found.label(constant))
    assert not found.encoder[5].any()


def test_borders_lie_midway_between_centres_whatever_the_shares():
    rng = np.random.default_rng(0)
    second = np.arange(2000) < 200
    states = np.where(second, 3.0, -1.0)[:, None] + 0.1 * rng.standard_normal((2000, 1))
    found = discover((states,), 64, 0)
    along = np.linspace(-1, 3, 401)[:, None]
    label = found.label(along)
    assert float(along[np.argmax(label != label[0]), 0]) == pytest.approx(1.0, abs=0.05)


def test_counted_q_is_the_mean_target_of_each_latent_state_and_action():
    """Against a loop over the true kinds. What was never tried is worth less than any target."""
    kind, states = gaussians(4, 6, seed=5)
    rng = np.random.default_rng(6)
    actions, targets = rng.integers(3, size=1500), rng.normal(-5, 2, size=1500)
    actions = np.where((kind == 2) & (actions == 1), 0, actions)  # never action 1 in kind 2
    q = np.asarray(counted_q(states, actions, targets, 3, LatentCounts(latents=16))(jnp.asarray(states)))
    assert q.shape == (1500, 3)
    for k in range(4):
        for a in range(3):
            here = q[kind == k, a]
            if (k, a) == (2, 1):
                assert here.max() < targets.min()
            else:
                np.testing.assert_allclose(here, targets[(kind == k) & (actions == a)].mean(), rtol=1e-4)


def test_counted_q_has_no_more_latent_states_than_asked_for():
    states = np.repeat(np.eye(10, dtype=np.float32), 50, axis=0)
    q = counted_q(states, np.zeros(500, int), np.zeros(500), 2, LatentCounts(latents=4))
    assert q.head.shape == (4, 2)
    assert q.encoder.shape == (11, 4)
    with pytest.raises(HyrloError, match="latents"):
        LatentCounts(latents=0)


def test_the_same_seed_finds_the_same_latent_states():
    _, states = gaussians(5, 60)
    one, other = (discover((states,), 64, 7).encoder for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert one.dtype == np.float32
    assert latents.MOST_DIRECTIONS < 60  # so that directions were chosen


@pytest.mark.parametrize(("size", "kinds"), [(49, 20), (65, 64), (500, 300)])
def test_many_one_hot_states_are_told_apart_and_sharply(size, kinds):
    """A discrete space of Gymnasium. Policies act on the softmax, so it must agree with the label."""
    rng = np.random.default_rng(size)
    states = np.eye(size, dtype=np.float32)[rng.integers(kinds, size=2400)]
    latents = discover((states,), 512, 0)
    seen = np.unique(states.argmax(axis=1))
    every = np.eye(size, dtype=np.float32)[seen]
    assert latents.count == len(seen)
    assert len(np.unique(latents.label(every))) == len(seen)
    logits = every @ latents.encoder[:-1] + latents.encoder[-1]
    assert np.min(np.sort(logits, axis=1)[:, -1] - np.sort(logits, axis=1)[:, -2]) > 10


def test_close_integers_are_told_apart_sharply():
    states = np.random.default_rng(0).integers(200, size=(2400, 1)).astype(np.float32)
    latents = discover((states,), 512, 0)
    logits = np.sort(np.unique(states)[:, None] @ latents.encoder[:-1] + latents.encoder[-1], axis=1)
    assert latents.count == len(np.unique(states))
    assert np.min(logits[:, -1] - logits[:, -2]) > 10


def test_the_order_of_the_states_does_not_matter():
    """Interleaved logs: every second state is of another kind."""
    rng = np.random.default_rng(1)
    states = rng.normal(size=(2 * MOST_STATES, 3)) + np.where(np.arange(2 * MOST_STATES) % 2, 8.0, 0.0)[:, None]
    assert discover((states,), 16, 0).count == 2


def test_a_dimension_with_a_thin_edge_is_cut_inside_only():
    rng = np.random.default_rng(2)
    for outliers in (1, 2, 3):
        values = np.concatenate([np.full(outliers, -1.0), rng.normal(0, 0.02, 500), rng.normal(1, 0.02, 500)])
        label = cut_dimensions(values[:, None])
        assert len(np.unique(label[outliers : outliers + 500])) == 1
        assert label[outliers] != label[-1]
