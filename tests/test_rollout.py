"""The access models that play an environment: roll-outs, resets, and policies in them, on the lock."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.core.access import ResetModel, evaluate, require_reset
from hyrlo.core.errors import AccessError
from hyrlo.core.jax_model import JaxResetModel, JaxTraceModel
from hyrlo.core.policies import Policy, Stack, Uniform, switch
from hyrlo.envs.lock import BAD, optimal_actions
from tests.locks import (
    KEY,
    LOCK,
    OPTIMAL,
    Always,
    H,
    N,
    always,
    binomial_error,
    latent_of,
    observe,
    play,
    time_of,
)

# Roll-outs


def test_the_ledger_counts_episodes_and_steps():
    model = JaxResetModel(LOCK)
    batch = model.record(KEY, Uniform(10), N, steps=0)
    assert (model.ledger.episodes, model.ledger.steps) == (N, N * H)
    model.record(KEY, Uniform(10), N, steps=0, stop=3)
    assert (model.ledger.episodes, model.ledger.steps) == (2 * N, N * (H + 3))
    model.rollout_from(KEY, batch.states, OPTIMAL, at=2)
    assert (model.ledger.episodes, model.ledger.steps) == (3 * N, N * (H + 3 + H - 2))
    evaluate(model, OPTIMAL, KEY, N)
    assert (model.ledger.episodes, model.ledger.steps) == (3 * N, N * (H + 3 + H - 2))


@pytest.mark.parametrize("steps", [(0, 1, 2, 4, 3), (1, 1), (0, 4), (-1,), (), H])
def test_steps_out_of_order_or_beyond_stop_are_refused_before_anything_is_booked(steps):
    model = JaxTraceModel(LOCK)
    with pytest.raises(ValueError, match="increasing order"):
        model.record(KEY, OPTIMAL, N, steps=steps, stop=H if steps == (0, 1, 2, 4, 3) else 3)
    assert model.ledger.episodes == 0


def test_stop_ends_the_episode_early():
    batch = JaxTraceModel(LOCK).rollout(KEY, OPTIMAL, N, stop=H - 1)
    assert not batch.returns.any()
    assert not batch.success.any()
    model = JaxTraceModel(LOCK)
    whole, cut = (model.record(KEY, Uniform(10), N, steps=2, stop=stop) for stop in (None, 3))
    np.testing.assert_allclose(whole.states, cut.states, atol=1e-5)
    np.testing.assert_array_equal(whole.actions, cut.actions)


def test_recording_several_steps_agrees_with_recording_each():
    model = JaxTraceModel(LOCK)
    several = play(Uniform(10))
    assert several.states.shape == several.next_states.shape == (H, N, 16)
    for h in range(H):
        one = model.record(KEY, Uniform(10), N, steps=h)
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
    one, again, other = (model.record(k, Uniform(10), N, steps=2) for k in (KEY, KEY, jax.random.key(8)))
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


def test_a_block_of_a_stack_and_back():
    stack = Stack(Always(jnp.array([0, 1, 2])), every=2)  # steps 0, 1 | 2, 3 | 4, 5
    np.testing.assert_array_equal(stack.block(2, 2).action, [1, 2])
    np.testing.assert_array_equal(stack.block(4, 3).action, [2, 2, 2])  # the last one again
    changed = stack.with_block(4, Always(jnp.array([7, 8, 9])))
    np.testing.assert_array_equal(changed.steps.action, [0, 1, 7])  # and what is past the end is dropped


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
        model.record(KEY, Traced("record"), n, steps=h, stop=h + 1)
        model.record(KEY, switch(Traced("switch"), at=h, to=Traced("switch")), n, steps=h)
        model.rollout_from(KEY, observations, Traced("reset"), at=h)

    observations = observe(LOCK, jnp.zeros(n, int), 0)
    TRACES.clear()
    play_at(0)
    first = list(TRACES)
    assert set(first) == {"record", "switch", "reset"}
    for h in range(1, H):
        play_at(h)
    assert first == TRACES
    model.record(KEY, Traced("record"), n + 1, steps=0)  # another size does: the count counts
    assert len(TRACES) > len(first)


def test_every_episode_may_have_steps_of_its_own():
    """The same keys give the same episodes, so what each records can be looked up in a record of all steps."""
    world = hyrlo.make("lock", horizon=5)
    key, n = jax.random.key(3), 12
    uniform = hyrlo.Uniform(world.spec.actions)
    whole = world.trace_model().record(key, uniform, n, steps=(0, 1, 2, 3, 4))
    record = np.stack([np.arange(n) % 4, np.arange(n) % 4 + 1])
    model = world.trace_model()
    own = model.record(key, uniform, n, steps=record)
    assert (model.ledger.episodes, model.ledger.steps) == (n, n * 5)
    episodes = np.arange(n)
    for name in ("states", "actions", "rewards", "return_to_go", "next_states"):
        wanted = np.asarray(getattr(whole, name))[record, episodes]
        np.testing.assert_allclose(getattr(own, name), wanted, atol=1e-6, err_msg=name)
    np.testing.assert_array_equal(own.returns, whole.returns)
    with pytest.raises(ValueError, match="steps"):
        model.record(key, uniform, n, steps=record + 1)


def test_the_reward_of_a_step_is_what_the_return_to_go_loses_after_it():
    world = hyrlo.make("lock", horizon=5)
    batch = world.trace_model().record(jax.random.key(0), hyrlo.Uniform(10), 2000, steps=(0, 1))
    assert float(batch.rewards.sum()) > 0
    np.testing.assert_allclose(batch.return_to_go[0] - batch.rewards[0], batch.return_to_go[1], atol=1e-6)


def test_every_episode_may_switch_at_a_step_of_its_own():
    policy = switch(always(1), at=np.array([0, 1, 2]), to=always(2))
    actions = [policy.act(jax.random.key(0), jnp.zeros((3, 2)), h).tolist() for h in range(3)]
    assert actions == [[2, 1, 1], [2, 2, 1], [2, 2, 2]]
