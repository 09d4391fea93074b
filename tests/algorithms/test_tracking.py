"""A forward pass that knows where it is: episodes by step, what is measured, repairs, giving up, and the warning."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.core.access import Spec
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.policies import Policy
from hyrlo.core.whitening import Whitening
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits
from hyrlo.forward.dynamics import DynamicsConfig, create_dynamics, model_error
from hyrlo.forward.fail import forward_pass
from hyrlo.forward.lost import differing, first_lost
from hyrlo.forward.model import LEAST, REPAIRS, VectorModelConfig, lost_from
from hyrlo.runs.directory import MemoryRun
from tests.batches import recorded
from tests.pointmass import PointMass, drifting

KEY = jax.random.key(0)
SMALL = VectorModelConfig(
    hidden=16, updates=100, features=64, steps=2000, share_steps=1, units="step", moments=0.0, ahead=1, explore_std=0.0,
    dynamics=DynamicsConfig(hidden=16, updates=100, memory=5000),
)  # fmt: skip
NAN = float("nan")


@pytest.mark.parametrize(
    ("excess", "lost"),
    [
        ([NAN, 0.1, 0.1, 0.1, NAN], None),
        ([NAN, 0.3, 0.3, 0.1, 0.3], None),  # never three in a row
        ([NAN, 0.1, 0.3, 0.3, 0.3], 2),
        ([0.0, NAN, 0.3, NAN, 0.3, NAN, 0.3, NAN], 2),  # of a policy for two steps, every other one is measured
        ([NAN, 0.3, 0.3], None),  # too few to say
    ],
)
def test_states_are_lost_if_they_are_off_three_times_in_a_row(excess, lost):
    assert lost_from(jnp.asarray(excess)) == lost


def test_early_steps_have_more_episodes_and_the_steps_are_about_those_of_the_budget():
    spec = Spec(50, 2, actions=0, action_size=1)
    data = ObservationDataset(tuple(np.random.default_rng(0).standard_normal((51, 100, 2)).astype(np.float32)))
    config = dataclasses.replace(VectorModelConfig(), steps=60_000)
    estimator = config.estimator(spec, data, KEY)
    sizes = [estimator.episodes(h) for h in range(50)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] >= 4 * sizes[-1] >= 4 * LEAST
    planned = sum(n * estimator.stop(h) for h, n in enumerate(sizes))
    assert 0.7 * 0.8 * 60_000 < planned < 1.3 * 0.8 * 60_000  # a fifth is for repairs; sizes are powers of two


def test_sizes_that_are_given_are_kept():
    spec, data = Spec(4, 1, actions=0, action_size=1), drifting(4)
    estimator = dataclasses.replace(SMALL, samples=7).estimator(spec, data, KEY)
    state = estimator.begin(estimator.start(), 3)
    state = state._replace(excess=jnp.asarray([0.0, 1.0, 1.0, 1.0, NAN]))
    assert estimator.wants(state, 3, 0) == 7
    given_up = SMALL.estimator(spec, data, KEY)
    given_up.begin(given_up.start(), 3)
    assert given_up.wants(state, 3, 0) == 0
    assert given_up.reach(state) == 1


def test_the_model_s_error_is_relative_to_the_variance_of_what_happens():
    """A model that predicts no change at all: all of the variance and the squared mean, 1 + 3² / 2²."""
    spec = Spec(2, 1, actions=0, action_size=1)
    config = DynamicsConfig(hidden=8)
    dynamics = create_dynamics(KEY, spec, Whitening.identity(1), config)
    silent = jax.tree.map(jnp.zeros_like, dynamics.network)
    dynamics = dataclasses.replace(dynamics, network=silent)
    states = jax.random.normal(KEY, (2, 20_000, 1))
    change = jnp.stack([3 + 2 * jax.random.normal(jax.random.key(1), (20_000, 1)), jnp.full((20_000, 1), 50.0)])
    batch = recorded(states, jnp.zeros((2, 20_000, 1)), states + change)
    error = model_error(dynamics, batch, jnp.asarray(0), jnp.asarray(1), spec)  # the second step does not count
    np.testing.assert_allclose(error, 1 + 9 / 4, rtol=0.05)


def test_the_dimensions_that_differ_most_come_first():
    rng = np.random.default_rng(0)
    offline = rng.standard_normal((500, 4)).astype(np.float32) * np.array([1, 100, 1, 1], np.float32)
    online = offline[::-1] + np.array(
        [0.0, 50.0, 2.0, 0.1], np.float32
    )  # half, two and a tenth of a standard deviation
    units = StateUnits.of_steps([offline], ends=False)
    assert differing(units, online, offline)[:3].tolist() == [2, 1, 3]


class Stays(Policy):
    def act(self, key, observations, h):
        return jnp.zeros((len(observations), 1))


def test_the_warning_names_the_step_and_the_dimensions():
    """The data drift by 0.2 a step, the policy stays where it is."""
    model, data = JaxTraceModel(PointMass(horizon=4)), drifting(4)
    lost = first_lost(model, Stays(), data, KEY)
    assert lost is not None
    assert lost.step == 1  # 0.2 is two standard deviations
    assert lost.dimensions == (0,)


@pytest.mark.learning
def test_a_pass_that_follows_the_data_does_not_give_up():
    model, run = JaxTraceModel(PointMass(horizon=6)), MemoryRun(curve_episodes=2)
    policy, _, reach = forward_pass(model, drifting(6), SMALL, KEY, run)
    assert reach is None
    assert run.warnings == []
    assert all(line["off"] < 0.2 for line in run.metrics)
    reached = np.asarray(model.evaluation().record(KEY, policy, 500, tuple(range(6))).next_states)[:, :, 0]
    np.testing.assert_allclose(reached.mean(axis=1), 0.2 * np.arange(1, 7), atol=0.1)


@pytest.mark.learning
def test_a_pass_that_cannot_follow_repairs_gives_up_and_says_so():
    """The data drift by 3 a step, which no action can do: repairs at the first steps, then nothing more is spent."""
    model, run = JaxTraceModel(PointMass(horizon=8)), MemoryRun(curve_episodes=2)
    _, _, reach = forward_pass(model, drifting(8, speed=3.0), SMALL, KEY, run)
    assert reach == 1
    spent = [line["step_episodes"] for line in run.metrics]
    assert all(spent[:4])
    assert not any(spent[4:])
    assert max(line.get("repairs", 0) for line in run.metrics) == REPAIRS
    assert [warning["step"] for warning in run.warnings] == [1]
