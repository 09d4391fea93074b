"""The lock against its definition, and the access models that play it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jaxtyping import Array, Int

from hyrlo.access import JaxResetModel, JaxTraceModel, ResetModel, evaluate, require_reset
from hyrlo.envs import make
from hyrlo.envs.lock import (
    BAD,
    Lock,
    LockConfig,
    behaviour_observations,
    behaviour_occupancy,
    latent_occupancy,
    optimal_actions,
    optimal_value,
)
from hyrlo.errors import AccessError, HyrloError
from hyrlo.policies import Policy, Stack, Uniform, switch

H = 5
N = 2000
LOCK = Lock.create(H)
KEY = jax.random.key(7)


class Shifted(Policy):
    """The correct action plus `by`: optimal for 0, always wrong for 1."""

    lock: Lock
    by: Int[Array, ""]

    def act(self, key, observations, h):
        right = optimal_actions(self.lock, self.lock.decode(observations), h)
        return (right + self.by) % self.lock.config.actions


class Always(Policy):
    """One action, whatever it sees."""

    action: Int[Array, ""]

    def act(self, key, observations, h):
        return jnp.full(len(observations), self.action)


def shifted(by: int) -> Shifted:
    return Shifted(LOCK, jnp.asarray(by))


def always(action: int) -> Always:
    return Always(jnp.asarray(action))


OPTIMAL, WRONG = shifted(0), shifted(1)


@eqx.filter_jit
def observe(lock: Lock, latent, h):
    return lock.observe(KEY, jnp.asarray(latent), h)


def play(policy: Policy, **options):
    """Episodes with every step recorded: one shape for most tests, to compile little."""
    return JaxTraceModel(LOCK).rollout(KEY, policy, N, record=(0, 1, 2, 3, 4), next_states=True, **options)


def undo_hadamard(observations) -> np.ndarray:
    size = observations.shape[1]
    return np.asarray(observations) @ scipy.linalg.hadamard(size).T / size


def latent_of(observations) -> np.ndarray:
    return undo_hadamard(observations)[:, :3].argmax(axis=1)


def time_of(observations) -> np.ndarray:
    return undo_hadamard(observations)[:, 3 : H + 4].argmax(axis=1)


def binomial_error(p: float, n: int) -> float:
    return 5 * (p * (1 - p) / n) ** 0.5


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


# Roll-outs


def test_the_ledger_counts_episodes_and_steps():
    model = JaxResetModel(LOCK)
    batch = model.rollout(KEY, Uniform(10), N, record=0, next_states=True)
    assert (model.ledger.episodes, model.ledger.steps) == (N, N * H)
    model.rollout(KEY, Uniform(10), N, record=0, next_states=True, stop=3)
    assert (model.ledger.episodes, model.ledger.steps) == (2 * N, N * (H + 3))
    model.rollout_from(KEY, batch.states, OPTIMAL, at=2)
    assert (model.ledger.episodes, model.ledger.steps) == (3 * N, N * (H + 3 + H - 2))
    evaluate(model, OPTIMAL, KEY, N)
    assert (model.ledger.episodes, model.ledger.steps) == (3 * N, N * (H + 3 + H - 2))


@pytest.mark.parametrize("record", [(0, 1, 2, 4, 3), (1, 1), (0, 4), (-1,), H])
def test_steps_out_of_order_or_beyond_stop_are_refused_before_anything_is_booked(record):
    model = JaxTraceModel(LOCK)
    with pytest.raises(ValueError, match="increasing order"):
        model.rollout(KEY, OPTIMAL, N, record=record, stop=H if record == (0, 1, 2, 4, 3) else 3)
    assert model.ledger.episodes == 0


def test_stop_ends_the_episode_early():
    batch = JaxTraceModel(LOCK).rollout(KEY, OPTIMAL, N, stop=H - 1)
    assert not batch.returns.any()
    assert not batch.success.any()
    model = JaxTraceModel(LOCK)
    whole, cut = (model.rollout(KEY, Uniform(10), N, record=2, next_states=True, stop=stop) for stop in (None, 3))
    np.testing.assert_allclose(whole.states, cut.states, atol=1e-5)
    np.testing.assert_array_equal(whole.actions, cut.actions)


def test_recording_several_steps_agrees_with_recording_each():
    model = JaxTraceModel(LOCK)
    several = play(Uniform(10))
    assert several.states.shape == several.next_states.shape == (H, N, 16)
    for h in range(H):
        one = model.rollout(KEY, Uniform(10), N, record=h, next_states=True)
        assert one.states.shape == (N, 16)
        np.testing.assert_allclose(several.states[h], one.states, atol=1e-4)
        np.testing.assert_allclose(several.next_states[h], one.next_states, atol=1e-4)
        np.testing.assert_array_equal(several.actions[h], one.actions)
        np.testing.assert_allclose(several.return_to_go[h], one.return_to_go, atol=1e-6)
        np.testing.assert_allclose(several.returns, one.returns, atol=1e-6)
        np.testing.assert_array_equal(several.success, one.success)
        assert (time_of(one.states) == h).all()


def test_next_states_are_the_states_of_the_next_step():
    batch = play(Uniform(10))
    np.testing.assert_allclose(batch.next_states[:-1], batch.states[1:], atol=1e-4)
    assert (time_of(batch.next_states[-1]) == H).all()


def test_return_to_go_is_the_return_less_what_came_before():
    batch = play(Uniform(10))
    np.testing.assert_array_equal(batch.return_to_go[0], batch.returns)
    latent = np.stack([latent_of(states) for states in batch.states])
    good = latent != BAD
    correct = np.asarray(LOCK.correct)[np.arange(H)[:, None], np.minimum(latent, 1)]
    np.testing.assert_allclose(np.asarray(batch.return_to_go)[~good], 0, atol=1e-7)
    stayed = good[:-1] & (np.asarray(batch.actions) == correct)[:-1]
    np.testing.assert_array_equal(stayed, good[1:])


def test_the_same_key_plays_the_same_episodes():
    model = JaxTraceModel(LOCK)
    one, again, other = (
        model.rollout(k, Uniform(10), N, record=2, next_states=True) for k in (KEY, KEY, jax.random.key(8))
    )
    np.testing.assert_array_equal(one.states, again.states)
    assert (one.actions != other.actions).any()


# The reset model


@pytest.mark.parametrize("at", [0, 2, H - 1])
def test_optimal_play_from_a_reset_opens_the_lock_from_good_states_only(at):
    latent = jnp.asarray(np.arange(N) % 3)
    observations = observe(LOCK, latent, jnp.asarray(at))
    batch = JaxResetModel(LOCK).rollout_from(jax.random.key(1), observations, OPTIMAL, at=at)
    np.testing.assert_array_equal(batch.returns, (latent != BAD).astype(float))
    np.testing.assert_array_equal(batch.return_to_go, batch.returns)
    np.testing.assert_array_equal(batch.success, latent != BAD)
    np.testing.assert_array_equal(batch.states, observations)
    good = latent != BAD
    np.testing.assert_array_equal(batch.actions[good], optimal_actions(LOCK, latent, at)[good])


def test_a_reset_followed_by_a_random_action_opens_one_lock_in_ten():
    at = 2
    observations = observe(LOCK, jnp.zeros(N, int), jnp.asarray(at))
    policy = switch(Uniform(10), at=at + 1, to=OPTIMAL)
    batch = JaxResetModel(LOCK).rollout_from(jax.random.key(1), observations, policy, at=at)
    assert abs(float(batch.success.mean()) - 0.1) < binomial_error(0.1, N)
    np.testing.assert_array_equal(batch.success, batch.actions == LOCK.correct[at, 0])


def test_a_trace_model_is_no_reset_model():
    assert require_reset(JaxResetModel(LOCK), "psdp").ledger.episodes == 0
    with pytest.raises(AccessError, match="psdp needs a reset model"):
        require_reset(JaxTraceModel(LOCK), "psdp")
    assert not isinstance(JaxResetModel(LOCK).evaluation(), ResetModel)


# Policies in a roll-out


@pytest.mark.parametrize("at", [0, 2, H])
def test_a_switch_plays_the_first_policy_before_the_step_and_the_second_from_it_on(at):
    batch = play(switch(always(3), at=at, to=always(7)))
    for h in range(H):
        np.testing.assert_array_equal(batch.actions[h], 3 if h < at else 7)


def test_a_stack_plays_each_policy_at_its_step():
    stack = Stack(Always(jnp.arange(H))).with_step(2, always(9))
    batch = play(stack)
    np.testing.assert_array_equal(batch.actions[:, 0], [0, 1, 9, 3, 4])
    np.testing.assert_array_equal(batch.actions, np.repeat(np.asarray(batch.actions[:, :1]), N, axis=1))


TRACES: list[str] = []


class Traced(Policy):
    """Notes every time that it is traced."""

    name: str = eqx.field(static=True)

    def act(self, key, observations, h):
        TRACES.append(self.name)
        return jnp.zeros(len(observations), jnp.int32)


def test_another_step_compiles_nothing_new():
    model, n = JaxResetModel(LOCK), 64

    def play_at(h: int) -> None:
        batch = model.rollout(KEY, Traced("record"), n, record=h, next_states=True, stop=h + 1)
        assert batch.next_states is not None
        batch = model.rollout(KEY, switch(Traced("switch"), at=h, to=Traced("switch")), n, record=h)
        assert batch.next_states is None
        model.rollout_from(KEY, observations, Traced("reset"), at=h)

    observations = observe(LOCK, jnp.zeros(n, int), 0)
    TRACES.clear()
    play_at(0)
    first = list(TRACES)
    assert set(first) == {"record", "switch", "reset"}
    for h in range(1, H):
        play_at(h)
    assert first == TRACES
    model.rollout(KEY, Traced("record"), n + 1, record=0, next_states=True)  # another size does: the count counts
    assert len(TRACES) > len(first)
