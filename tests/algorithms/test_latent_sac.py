"""SAC on latent states: what it sees, what it learns from, and that it opens the lock."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.backward.latent_sac import LatentModel, transitions, view_of
from hyrlo.core.latents import Latents
from hyrlo.core.policies import Policy, ThroughView, Uniform
from hyrlo.forward.latent import Counted

KEY = jax.random.key(0)
SIGNS = Latents(np.array([[-5.0, 5.0], [0.0, 0.0]], np.float32))  # latent state 1 where the number is positive
ALL_ONE = Latents(np.array([[0.0], [0.0]], np.float32))


class Reads(Policy):
    """The action is the column of the first 1."""

    def act(self, key, observations, h):
        return jnp.argmax(observations, axis=1)


def test_a_view_shows_latent_state_and_step():
    view = view_of([SIGNS, ALL_ONE, SIGNS])
    states = jnp.array([[-2.0], [3.0]])
    np.testing.assert_array_equal(view(states, 0), [[1, 0, 1, 0, 0], [0, 1, 1, 0, 0]])
    np.testing.assert_array_equal(view(states, 1), [[1, 0, 0, 1, 0], [1, 0, 0, 1, 0]])
    np.testing.assert_array_equal(view(states, 2), [[1, 0, 0, 0, 1], [0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(ThroughView(Reads(), view).act(KEY, states, 2), [0, 1])


@pytest.mark.parametrize("ends", [True, False])
def test_counted_steps_are_transitions_between_the_latent_states_of_two_steps(ends):
    view = view_of([SIGNS, SIGNS, SIGNS])
    seen = Counted(np.array([0]), np.array([7]), np.array([0.5]), np.array([1]))
    rows = transitions(view, {0: seen, 1: seen}, ends)
    np.testing.assert_array_equal(rows.states, [[1, 0, 1, 0, 0], [1, 0, 0, 1, 0]])
    np.testing.assert_array_equal(rows.next_states, [[0, 1, 0, 1, 0], [0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(rows.actions, [7, 7])
    np.testing.assert_array_equal(rows.rewards, [0.5, 0.5])
    np.testing.assert_array_equal(rows.ended, [False, ends])


def test_the_model_records_what_the_view_shows_and_counts_once():
    world = hyrlo.make("lock", horizon=3)
    size = world.spec.observation_size
    first = np.zeros((size + 1, 2), np.float32)
    first[0, 1] = 1.0  # latent state 1 where the first number is positive
    view = view_of([Latents(first)] * 4)
    model, plain = LatentModel(world.trace_model(), view), world.trace_model()
    seen = model.record(KEY, Uniform(10), 20, (0, 1, 2))
    truth = plain.record(KEY, Uniform(10), 20, (0, 1, 2))
    for h in range(3):
        np.testing.assert_array_equal(seen.states[h], view(truth.states[h], h))
        np.testing.assert_array_equal(seen.next_states[h], view(truth.next_states[h], h + 1))
    np.testing.assert_array_equal(seen.rewards, truth.rewards)
    assert model.ledger == plain.ledger
    assert model.spec.observation_size == seen.states.shape[2] == 6


@pytest.mark.learning
def test_sac_opens_the_lock_with_what_the_forward_pass_has_counted(tmp_path):
    """Without the counted transitions, or in units of the returns, one of two initial states keeps a wrong action: 0.5."""
    changes = {"backward.latent.iterations": 10, "backward.latent.check": 20}
    config = hyrlo.config("foobar", improve="sac", **changes)
    trained = hyrlo.train("foobar", hyrlo.make("lock", horizon=10), config=config, seed=4, out=tmp_path / "run")
    assert trained.result["success_rate"] >= 0.97
    assert hyrlo.evaluate_run(tmp_path / "run", 200).success_rate >= 0.95  # it is saved and loaded with its view
    assert trained.result["chosen"]["backward"]["choice"] == "sac"
