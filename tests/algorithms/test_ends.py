"""HyQ where episodes end: what follows an end is worth nothing, in offline tuples and in online ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.baselines import hyq
from hyrlo.baselines.online import OnlineConfig, record_tuples
from tests.walks import FIRST, LOCK_ID, SECOND, tempting

SMALL_ONLINE = OnlineConfig(samples=40, iterations=3, trial_episodes=1)
PROJECTION = hyq.ZeroPriorProjection(latents=3, restarts=4, updates=100, decay=0.0, ridge=0.1)
HYQ = {
    "projection": hyq.HyqProjectionConfig(fit=PROJECTION, online=SMALL_ONLINE),
    "sgd": hyq.HyqSgdConfig(updates=800, batch=128, learning_rate=0.02, online=SMALL_ONLINE),
}


@pytest.mark.learning
@pytest.mark.parametrize("solver", HYQ)
def test_hyq_values_nothing_after_an_end(solver):
    """Ignoring the terminals, offline or online, makes the value of action 0 in the first state 3 and not 1."""
    world, data = tempting()
    trained = hyrlo.train("hyq", world, data, config=HYQ[solver], eval_episodes=10)
    values = [np.asarray(trained.policy[h].q(jnp.array([state])))[0] for h, state in enumerate((FIRST, SECOND))]
    np.testing.assert_allclose(values, [[1, 2], [0, 2]], atol=0.1)
    assert trained.result["return_mean"] == 2


def test_episodes_that_are_over_are_recorded_in_the_absorbing_state():
    world, _ = tempting()
    tuples = record_tuples(world.trace_model(), jax.random.key(0), world.spec.uniform(), np.array([[1] * 40, [0] * 40]))
    ended_first = np.asarray(tuples.actions[1] == 0)
    assert 0 < ended_first.sum() < 40
    np.testing.assert_array_equal(tuples.states[1], [FIRST] * 40)
    np.testing.assert_array_equal(tuples.states[0], np.where(ended_first[:, None], [0, 0, 1], SECOND))
    np.testing.assert_array_equal(tuples.rewards[0], np.where(ended_first, 0, 2 * tuples.actions[0]))
    np.testing.assert_array_equal(tuples.terminals[1], ended_first)
    assert tuples.terminals[0].all()


@pytest.mark.learning
def test_hyq_opens_the_lock_through_gymnasium():
    """The tuples of the lock fit: the same combination, and no terminals, as the last step is its only end."""
    data = hyrlo.make("lock", 6).behaviour_transitions(episodes=500)
    trained = hyrlo.train("hyq", hyrlo.make(LOCK_ID, 6), data, eval_episodes=200)
    assert trained.result["success_rate"] >= 0.97
    assert trained.result["episodes"] < 6 * 50 * 20
