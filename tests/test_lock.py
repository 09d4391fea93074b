"""The lock against its definition."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.core.access import evaluate
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.policies import Uniform, switch
from hyrlo.envs import make
from hyrlo.envs.lock import (
    BAD,
    Lock,
    LockConfig,
    behaviour_observations,
    behaviour_occupancy,
    latent_occupancy,
    optimal_value,
)
from tests.locks import (
    KEY,
    LOCK,
    OPTIMAL,
    WRONG,
    H,
    N,
    binomial_error,
    latent_of,
    observe,
    play,
    shifted,
    time_of,
    undo_hadamard,
)

# Observations


@pytest.mark.parametrize(("horizon", "size"), [(1, 8), (4, 8), (5, 16), (12, 16), (13, 32), (28, 32), (100, 128)])
def test_observation_size_is_the_next_power_of_two(horizon, size):
    lock = Lock.create(horizon)
    assert lock.spec.observation_size == size
    assert lock.spec.horizon == horizon
    assert lock.spec.actions == 10
    assert eqx.filter_eval_shape(lock.observe, KEY, jnp.zeros(2, int), 0).shape == (2, size)


@pytest.mark.parametrize(("horizon", "h"), [(5, 0), (5, 2), (5, 5), (12, 12)])
def test_observation_is_the_hadamard_of_one_hots_and_noise(horizon, h):
    lock = Lock.create(horizon)
    latent = np.repeat([0, 1, 2], N)
    clean = undo_hadamard(observe(lock, latent, jnp.asarray(h)))
    expected = np.zeros_like(clean)
    expected[np.arange(len(latent)), latent] = 1
    expected[:, 3 + h] = 1
    used = horizon + 4
    noise = clean - expected
    np.testing.assert_allclose(noise[:, used:], 0, atol=1e-5)
    for state in range(3):
        mine = noise[latent == state, :used]
        np.testing.assert_allclose(mine.mean(axis=0), 0, atol=5 * 0.1 / N**0.5)
        np.testing.assert_allclose(mine.std(axis=0), 0.1, rtol=5 / (2 * N) ** 0.5)
    between = np.corrcoef(noise[:, :used].T) - np.eye(used)
    assert np.abs(between).max() < 5 / (3 * N) ** 0.5


def test_noise_is_an_option():
    lock = Lock.create(H, LockConfig(noise=0.0))
    clean = undo_hadamard(observe(lock, [1], 2))
    np.testing.assert_allclose(clean[0], np.eye(16)[1] + np.eye(16)[5], atol=1e-6)


def test_noise_is_new_at_every_step():
    batch = play(OPTIMAL)
    noise = [undo_hadamard(states)[:, 8] for states in batch.states]  # the one-hot of time 5, which is never on
    assert np.abs(np.corrcoef(noise) - np.eye(H)).max() < 5 / N**0.5


def test_decode_inverts_observe():
    latent = np.repeat([0, 1, 2], N)
    for h in range(H + 1):
        np.testing.assert_array_equal(LOCK.decode(observe(LOCK, latent, jnp.asarray(h))), latent)


# Dynamics and rewards


def test_good_states_are_equally_likely_at_the_start_and_after_a_correct_action():
    batch = play(OPTIMAL)
    for states in batch.states:
        share = latent_occupancy(LOCK, states)
        assert share[BAD] == 0
        assert abs(share[0] - 0.5) < binomial_error(0.5, N)
    first, second = (latent_of(batch.states[h]) for h in (0, 1))
    assert abs((first == second).mean() - 0.5) < binomial_error(0.5, N)


def test_optimal_play_earns_exactly_one():
    batch = JaxTraceModel(LOCK).rollout(KEY, OPTIMAL, N)
    np.testing.assert_array_equal(batch.returns, 1.0)
    assert batch.success.all()
    assert optimal_value(LOCK) == 1.0
    assert evaluate(JaxTraceModel(LOCK), OPTIMAL, KEY, N)[:2] == (1.0, 1.0)


@pytest.mark.parametrize("by", [1, 4, 9])
def test_a_wrong_action_pays_a_tenth_half_of_the_time(by):
    batch = JaxTraceModel(LOCK).rollout(KEY, shifted(by), N)
    paid = np.asarray(batch.returns) > 0
    np.testing.assert_allclose(batch.returns, np.where(paid, 0.1, 0.0), atol=1e-7)
    assert abs(paid.mean() - 0.5) < binomial_error(0.5, N)
    assert not batch.success.any()


@pytest.mark.parametrize("at", [0, 2, H - 1])
def test_a_wrong_action_pays_the_same_at_any_step(at):
    batch = play(switch(OPTIMAL, at=at, to=WRONG))
    assert set(np.unique(np.round(batch.returns, 6)).tolist()) == {0.0, np.float32(0.1).round(6)}
    assert abs(np.asarray(batch.returns).mean() - 0.05) < 0.1 * binomial_error(0.5, N)


def test_the_bad_state_is_absorbing_and_pays_nothing():
    batch = play(switch(WRONG, at=1, to=OPTIMAL))
    for h in range(1, H):
        np.testing.assert_array_equal(latent_of(batch.states[h]), BAD)
        np.testing.assert_array_equal(batch.return_to_go[h], 0.0)
    assert not batch.success.any()
    step = eqx.filter_jit(LOCK.step)
    for h in range(H):
        latent, rewards, opened = step(KEY, jnp.full(10, BAD), jnp.arange(10), jnp.asarray(h))
        assert (latent == BAD).all()
        assert not rewards.any()
        assert not opened.any()


@pytest.mark.parametrize("horizon", [1, 2])
def test_random_play_opens_one_lock_in_ten_to_the_horizon(horizon):
    n = 50_000
    found = evaluate(JaxTraceModel(Lock.create(horizon)), Uniform(10), KEY, n)
    assert abs(found.success_rate - 10.0**-horizon) < binomial_error(10.0**-horizon, n)


def test_only_the_lock_seed_draws_the_combination():
    same, other = Lock.create(20), Lock.create(20, LockConfig(seed=1))
    np.testing.assert_array_equal(same.correct, Lock.create(20).correct)
    assert (same.correct != other.correct).any()
    assert set(np.unique(Lock.create(100).correct)) == set(range(10))


def test_options_that_make_no_lock_are_refused():
    for options, word in [({"actions": 1}, "actions"), ({"noise": -1.0}, "noise"), ({"noise": float("nan")}, "noise")]:
        with pytest.raises(HyrloError, match=word):
            LockConfig(**options)
    with pytest.raises(HyrloError, match="horizon is 0"):
        make("lock", horizon=0)
    with pytest.raises(HyrloError, match="did you mean lock"):
        make("lokc")
    with pytest.raises(HyrloError, match="did you mean noise"):
        make("lock", horizon=2, nose=0.1)


# Behaviour data


@pytest.mark.parametrize("epsilon", [0.5, None])
def test_behaviour_data_have_the_exact_occupancy(epsilon):
    n = 10_000
    observations = behaviour_observations(LOCK, KEY, n, epsilon)
    assert observations.shape == (n, H + 1, 16)
    keep = 1 - 0.9 * (1 / H if epsilon is None else epsilon)
    exact = behaviour_occupancy(LOCK, 1 / H if epsilon is None else epsilon)
    for h in range(H + 1):
        np.testing.assert_allclose(exact[h], [keep**h / 2, keep**h / 2, 1 - keep**h])
        np.testing.assert_allclose(latent_occupancy(LOCK, observations[:, h]), exact[h], atol=binomial_error(0.5, n))
        assert (time_of(observations[:, h]) == h).all()


def test_two_fifths_of_behaviour_reach_the_end_of_a_hundred_steps():
    good = behaviour_occupancy(Lock.create(100), 1 / 100)[-1, :2].sum()
    assert good == pytest.approx((1 - 0.9 / 100) ** 100)
    assert good == pytest.approx(0.405, abs=1e-3)


def test_behaviour_data_repeat_with_their_seed():
    world = make("lock", horizon=H)
    one, again, other = (world.behaviour_data(seed, episodes=10_000) for seed in (3, 3, 4))
    assert one.horizon == H
    assert one.at(0).shape == (10_000, 16)
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
