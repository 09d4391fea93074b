"""The forward pass with networks: the learned model, the importance weights, and matching of known distributions."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.policies import Policy
from hyrlo.core.whitening import Whitening
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import Compared, StateUnits, mmd2
from hyrlo.forward import goals as g
from hyrlo.forward.density import DensityConfig, density_ratio
from hyrlo.forward.dynamics import (
    DynamicsConfig,
    add_steps,
    create_dynamics,
    create_memory,
    learn_dynamics,
    pasts,
    with_step_scale,
)
from hyrlo.forward.fail import fail
from hyrlo.forward.gradient import Starts, descend, initial_policy
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.model import ModelConfig, ThroughModel, VectorModelConfig
from hyrlo.forward.regression import RegressionConfig
from hyrlo.runs.directory import FORMAT, MemoryRun, RunDirectory
from tests.batches import recorded
from tests.pointmass import Coasting, PointMass, drifting

KEY = jax.random.key(0)
SPEC = Spec(4, 3, actions=0, action_size=2, ends=True)
NO_PAST = jnp.zeros((1, 5))


def random_transitions(n=500):
    keys = jax.random.split(KEY, 3)
    states = jax.random.normal(keys[0], (1, n, 3)).at[..., -1].set(0.0)
    actions = jax.random.uniform(keys[1], (1, n, 2), minval=-1.0)
    moved = states.at[..., :2].add(0.1 * actions)
    ended = moved[..., 0] > 1.0
    following = jnp.where(ended[..., None], jnp.array([0.0, 0.0, 1.0]), moved)
    return recorded(states, actions, following)


def test_memory_leaves_out_what_had_ended_and_forgets_the_oldest():
    memory = create_memory(SPEC, 4)
    states = (
        jnp.arange(6.0)[None, :, None] * jnp.array([1.0, 1.0, 0.0])
        + jnp.array([0, 0, 1.0]) * (jnp.arange(6) == 2)[:, None]
    )
    batch = recorded(states, jnp.zeros((1, 6, 2)), states)
    memory = add_steps(memory, batch, 0, 1, SPEC)
    assert int(memory.added) == 4  # the last four of 0, 1, 3, 4, 5
    np.testing.assert_array_equal(memory.rows.states[:, 0], [1, 3, 4, 5])
    again = recorded(states[:, 1:2], jnp.zeros((1, 1, 2)), states[:, 1:2])
    memory = add_steps(memory, again, 0, 1, SPEC)
    np.testing.assert_array_equal(memory.rows.states[:, 0], [1, 3, 4, 5])
    assert int(memory.added) == 5


def test_other_units_are_the_same_model():
    dynamics = create_dynamics(KEY, SPEC, Whitening(jnp.zeros(3), jnp.ones(3)), DynamicsConfig(hidden=8))
    batch = random_transitions(20)
    other = with_step_scale(dynamics, jnp.array([0.5, 2.0, 3.0]))
    np.testing.assert_allclose(*(d(batch.states[0], batch.actions[0], NO_PAST) for d in (dynamics, other)), atol=1e-5)


def test_a_model_learns_how_states_move_and_where_episodes_end():
    config = DynamicsConfig(hidden=32, updates=1500, memory=500)
    batch = random_transitions()
    memory = add_steps(create_memory(SPEC, config.memory), batch, 0, 1, SPEC)
    dynamics = create_dynamics(KEY, SPEC, Whitening(jnp.zeros(3), jnp.ones(3)), config)
    dynamics, error = learn_dynamics(KEY, dynamics, memory, memory, config)
    assert float(error) < 0.05  # in units of a typical step's square
    predicted, following = (
        np.asarray(x) for x in (dynamics(batch.states[0], batch.actions[0], NO_PAST), batch.next_states[0])
    )
    clear = np.abs(np.asarray(batch.states[0, :, 0]) - 1.0) > 0.2
    np.testing.assert_allclose(predicted[clear, 2], following[clear, 2], atol=1e-6)
    np.testing.assert_allclose(predicted[clear], following[clear], atol=0.1)


def test_an_ended_episode_stays_where_it_is():
    dynamics = create_dynamics(KEY, SPEC, Whitening(jnp.zeros(3), jnp.ones(3)), DynamicsConfig(hidden=8))
    absorbing = jnp.array([[0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(dynamics(absorbing, jnp.ones((1, 2)), NO_PAST), absorbing)


def test_the_flag_alone_has_the_gradient_of_ending_and_hands_it_on():
    """A state does not move towards the absorbing one as ending gets likelier: more of the episodes end."""
    dynamics = create_dynamics(KEY, SPEC, Whitening(jnp.zeros(3), jnp.ones(3)), DynamicsConfig(hidden=8))
    state, action = jnp.array([[0.5, -0.5, 0.0]]), jnp.ones((1, 2))

    def with_logit(logit):
        shifted = eqx.tree_at(lambda d: d.network.biases[-1], dynamics, dynamics.network.biases[-1].at[-1].set(logit))
        weights = shifted.network.weights[-1].at[:, -1].set(0.0)
        return eqx.tree_at(lambda d: d.network.weights[-1], shifted, weights)

    def after(logit, steps):
        now = with_logit(logit)(state, action, NO_PAST)
        return now[0] if steps == 1 else with_logit(-9.0)(now, action, NO_PAST)[0]

    for logit in (-1.0, 1.0):
        slope = float(jax.grad(jax.nn.sigmoid)(logit))
        for steps in (1, 2):
            np.testing.assert_allclose(jax.jacobian(after)(logit, steps), [0.0, 0.0, slope], rtol=1e-3, atol=1e-6)


def test_the_flag_of_ended_episodes_is_no_news_of_the_past():
    dynamics = create_dynamics(KEY, SPEC, Whitening(jnp.zeros(3), jnp.ones(3)), DynamicsConfig(hidden=8, history=True))
    state, action, past = jnp.ones((1, 3)).at[0, -1].set(0.0), jnp.ones((1, 2)), jnp.full((1, 5), 0.001)
    same, other = (dynamics.outputs(state, action, past.at[0, at].add(0.001))[0] for at in (2, 0))
    np.testing.assert_array_equal(dynamics.outputs(state, action, past.at[0, 2].set(0.0))[0], same)
    assert not np.allclose(same, other)


def test_importance_weights_are_density_ratios():
    spec = Spec(1, 2, actions=0, action_size=1)
    old = initial_policy(KEY, spec, Whitening.identity(2), DensityConfig(std=0.5))
    new = eqx.tree_at(lambda p: p.log_std, old, jnp.log(jnp.array([0.4])))
    states = jax.random.normal(KEY, (50_000, 2))
    actions = old.act(KEY, states, 0)
    starts = Starts(states, actions, old.log_density(states, actions), states, states)
    np.testing.assert_allclose(density_ratio(old, starts), 1.0, atol=1e-5)
    weights = np.asarray(density_ratio(new, starts))
    assert abs(weights.mean() - 1) < 0.02
    noise = np.asarray(actions - new.mean(states))
    assert abs(np.sqrt((weights[:, None] * noise**2).mean()) - 0.4) < 0.01  # what the new policy would have done


def test_goals_are_the_means_of_features_of_kernels_of_several_widths():
    data, shift, scale = drifting(3, n=400), jnp.zeros(1), jnp.full(1, 0.5)
    frequencies = jax.random.normal(KEY, (1, 4000))
    goals = g.GoalMaker(data, frequencies, StateUnits(Whitening(shift, scale)), "all", 0.0).after(1, 3, 3)
    np.testing.assert_array_equal(goals.real, [True, True, False])
    x, y = (jnp.asarray(data.at(h)) / 0.5 for h in (2, 3))
    widths = np.asarray(jnp.median(jnp.abs(frequencies[:, :4] / goals.frequencies[0, :, :4]), axis=0)) / np.array(
        g.WIDTHS
    )
    np.testing.assert_allclose(widths, widths[0], rtol=1e-5)
    exact = np.mean([mmd2(x, y, bandwidth=float(widths[0]) * w) for w in g.WIDTHS])
    seen = g.compared_features(Compared.plain(y), goals.frequencies[0], jnp.ones(()))
    assert float(jnp.sum((seen.mean(axis=0) - goals.means[0]) ** 2)) == pytest.approx(exact, rel=0.1)


def test_goals_by_the_spread_of_their_own_step():
    """Steps of spread 0.1 among states of spread 1: as finely as they are spread, but no finer than a tenth of all."""
    data = drifting(3, n=400)
    frequencies = jax.random.normal(KEY, (1, 64))
    for scale, own in ((0.5, 0.1), (4.0, 0.4)):
        of_all = StateUnits(Whitening(jnp.zeros(1), jnp.full(1, scale)))
        whitening = g.GoalMaker(data, frequencies, of_all, "step", 0.5).after(1, 3, 2).units.whitening
        np.testing.assert_allclose(whitening.scale, own, rtol=0.15)
        np.testing.assert_allclose(whitening.shift[:, 0], [0.4, 0.6], atol=0.03)
    white = jnp.array([[1.0], [3.0]])
    moments = g.embed(Compared.plain(white), frequencies, 0.5)[:, 129:]
    np.testing.assert_allclose(moments @ moments.T, 0.5 * (white @ white.T) + 0.25 * (white**2 @ white.T**2), rtol=1e-5)


def leaning(n: int, lean: float, key: int) -> np.ndarray:
    """Two dimensions of variance 1 each, correlated by `lean`."""
    common, own = np.random.default_rng(key).normal(size=(2, n, 2))
    return np.float32(lean**0.5 * common[:, :1] + (1 - lean) ** 0.5 * own)


def test_joint_units_are_those_without_correlations():
    data = ObservationDataset((leaning(4000, 0.9, 0),) * 2)
    one, frequencies = jnp.ones(2), jax.random.normal(KEY, (2, 64))
    goals = g.GoalMaker(data, frequencies, StateUnits(Whitening(0 * one, one)), "joint", 0.0).after(0, 1, 1)
    white = jax.tree.map(lambda x: x[0], goals.units)(jnp.asarray(data.at(1))).white @ goals.turn[0]
    np.testing.assert_allclose(np.cov(white.T), np.eye(2), atol=0.05)
    flat = jnp.asarray(leaning(4000, 0.9999, 0))  # a direction without variance is not blown up
    turned = flat @ g.decorrelating(Compared.plain(flat), jnp.full(4000, 1 / 4000))
    assert float((turned @ jnp.array([1.0, -1.0])).std()) < 0.1


def test_joint_units_show_what_correlations_hide():
    """States with the right spread in each dimension, but not as correlated as the data, are further away."""
    data, one = ObservationDataset((leaning(2000, 0.98, 0),) * 2), jnp.ones(2)
    frequencies = jax.random.normal(KEY, (2, 512))
    found, same = (jnp.asarray(leaning(2000, lean, 1)) for lean in (0.9, 0.98))
    far = {}
    for units in ("step", "joint"):
        goals = g.GoalMaker(data, frequencies, StateUnits(Whitening(0 * one, one)), units, 0.0).after(0, 1, 1)
        goal = jax.tree.map(lambda x: x[0], goals)
        far[units], floor = (
            float(g.unbiased_distance2(g.features_of(x, goal, 0.0), goal.means)) for x in (found, same)
        )
        assert abs(floor) < 0.002
    assert far["joint"] > 4 * far["step"] > 0


def test_the_unit_of_a_change_is_no_less_than_asked_for():
    spec, still = Spec(1, 1, actions=0, action_size=1), jnp.zeros((1, 50, 1))
    memory = add_steps(create_memory(spec, 50), recorded(still, still, still), 0, 1, spec)
    for least in (1e-3, 0.02):
        config = DynamicsConfig(hidden=8, updates=1, memory=50, least_step=least)
        dynamics = create_dynamics(KEY, spec, Whitening(jnp.zeros(1), jnp.full(1, 5.0)), config)
        learned, _ = learn_dynamics(KEY, dynamics, memory, memory, config)
        np.testing.assert_allclose([dynamics.step_scale[0], learned.step_scale[0]], 5 * least, rtol=1e-5)


def test_a_share_of_each_batch_is_of_the_steps_at_hand():
    """Two worlds in one: what is near moves right, all else left; the model of a state in both follows the larger share."""
    config = DynamicsConfig(hidden=16, updates=600, memory=200, near=0.75)
    spec = Spec(1, 1, actions=0, action_size=1)
    still = jnp.zeros((1, 200, 1))
    left, right = (
        add_steps(create_memory(spec, 200), recorded(still, still, still + x), 0, 1, spec) for x in (-1.0, 1.0)
    )
    dynamics = create_dynamics(KEY, spec, Whitening(jnp.zeros(1), jnp.ones(1)), config)
    dynamics, _ = learn_dynamics(KEY, dynamics, left, right, config)
    assert float(dynamics(still[0, :1], still[0, :1], jnp.zeros((1, 2)))[0, 0]) == pytest.approx(0.5, abs=0.15)


def test_the_past_of_a_step_is_the_change_and_the_action_that_led_to_it():
    states = jnp.array([[[0.0], [1.0]], [[2.0], [1.5]], [[2.0], [0.0]]])
    actions = jnp.array([[[5.0], [6.0]], [[7.0], [8.0]], [[9.0], [9.0]]])
    expected = [[[0, 0], [0, 0]], [[2, 5], [0.5, 6]], [[0, 7], [-1.5, 8]]]
    np.testing.assert_array_equal(pasts(states, actions), expected)


@pytest.mark.parametrize(("history", "limits"), [(True, (0.0, 0.05)), (False, (0.2, 1.0))])
def test_hidden_speed_is_foreseen_from_the_past_alone(history, limits):
    config = DynamicsConfig(hidden=32, updates=1500, memory=2000, history=history)
    env = Coasting(horizon=4)
    batch = JaxTraceModel(env).record(KEY, env.spec.uniform(), 500, steps=(0, 1, 2, 3))
    memory = add_steps(create_memory(env.spec, config.memory), batch, 0, 4, env.spec)
    dynamics = create_dynamics(KEY, env.spec, Whitening(jnp.zeros(1), jnp.ones(1)), config)
    _, error = learn_dynamics(KEY, dynamics, memory, memory, config)
    assert limits[0] <= float(error) < limits[1]


def test_the_distance_is_unbiased():
    """Of samples of the goal's own distribution it is zero on average; with each sample in its own mean it is not."""
    seen = jax.random.normal(KEY, (4000, 20, 3))
    distances = jax.vmap(lambda s: g.unbiased_distance2(s, jnp.zeros(3)))(seen)
    assert abs(float(distances.mean())) < 4 * float(distances.std()) / 4000**0.5 < 0.01
    shifted = jax.vmap(lambda s: g.unbiased_distance2(s, jnp.array([0.5, 0.0, 0.0])))(seen)
    assert abs(float(shifted.mean()) - 0.25) < 0.02


DYNAMICS = DynamicsConfig(hidden=32, updates=300)
SIZES = {"samples": 300, "updates": 300, "hidden": 32}
ONE_STEP = {**SIZES, "rounds": 2, "ahead": 1, "explore_std": 0.0, "features": 256}


def states_of(env, policy, n=2000):
    model = JaxTraceModel(env)
    steps = tuple(range(env.horizon))
    return np.asarray(model.record(jax.random.key(5), policy, n, steps=steps).next_states)


@pytest.mark.learning
@pytest.mark.parametrize(
    "config",
    [
        VectorModelConfig(share_steps=1, units="all", moments=0.0, dynamics=DYNAMICS, **ONE_STEP),
        VectorModelConfig(share_steps=2, units="step", moments=0.01, dynamics=DYNAMICS, **ONE_STEP),
        VectorModelConfig(share_steps=1, units="joint", moments=0.0, dynamics=DYNAMICS, **ONE_STEP),
        DensityConfig(**SIZES),
    ],
)
def test_states_follow_moving_gaussians(config):
    env = PointMass(horizon=4)
    run = MemoryRun(curve_episodes=2)
    policy = fail(JaxTraceModel(env), drifting(4), config, KEY, run)
    share = getattr(config, "share_steps", 1)
    reached = states_of(env, policy)[:, :, 0]
    assert [line["horizon"] for line in run.metrics] == list(range(0, 4, share))
    np.testing.assert_allclose(reached.mean(axis=1), 0.2 * np.arange(1, 5), atol=0.06)
    np.testing.assert_allclose(reached.std(axis=1), 0.1, atol=0.05)
    assert float(jnp.exp(policy.steps.log_std).min()) >= 0.1 - 1e-6  # the floor
    assert isinstance(config, VectorModelConfig) or max(line["ess"] for line in run.metrics) < 0.9


class Rightwards(Policy):
    """A push to the right, some more or less; less from where it is far on the right."""

    def act(self, key, observations, h):
        return 0.2 - 0.2 * observations + 0.1 * jax.random.normal(key, observations.shape)


@pytest.mark.learning
@pytest.mark.parametrize(("ahead", "limits"), [(1, (0.1, 1.0)), (2, (0.0, 0.06))])
def test_actions_that_are_felt_later_want_policies_that_look_ahead(ahead, limits):
    """Worst difference of mean states. Policies that look one step ahead see no effect of what they do."""
    env = Coasting(horizon=4)
    data = ObservationDataset((np.asarray(env.initial(KEY, 2000))[:, :1], *states_of(env, Rightwards())))
    dynamics = dataclasses.replace(DYNAMICS, history=True, near=0.5, updates=1000)
    config = VectorModelConfig(
        samples=300,
        rounds=2,
        hidden=32,
        updates=600,
        features=256,
        share_steps=1,
        units="step",
        moments=0.0,
        ahead=ahead,
        explore_std=0.5,
        dynamics=dynamics,
    )
    policy = fail(JaxTraceModel(env), data, config, KEY, MemoryRun(curve_episodes=2))
    reached, wanted = states_of(env, policy), data.steps[1:]
    off = np.abs(reached.mean(axis=1) - np.asarray(wanted).mean(axis=1)).max()
    assert limits[0] < off < limits[1]


@pytest.mark.slow
def test_each_policy_ahead_is_moved_by_its_own_steps():
    config = VectorModelConfig(ahead=2, hidden=8, updates=3, features=16, dynamics=DynamicsConfig(hidden=8))
    spec, one = PointMass(horizon=2).spec, jnp.ones(1)
    first = initial_policy(KEY, spec, Whitening(0 * one, one), config)
    policies = jax.tree.map(lambda x: jnp.stack([x, x]), first)
    states = jax.random.normal(KEY, (50, 1))
    starts = Starts(states, states, states[:, 0], states, jnp.zeros((50, 2)))
    frequencies = jax.random.normal(KEY, (1, 8))
    goals = g.GoalMaker(drifting(2), frequencies, StateUnits(Whitening(0 * one, one)), "all", 0.0).after(0, 2, 2)
    dynamics = create_dynamics(KEY, spec, Whitening(0 * one, one), config.dynamics)
    moved = descend(KEY, policies, starts, goals, ThroughModel(dynamics, 1, 0.0), config)[0].log_std
    assert (np.abs(np.asarray(moved - policies.log_std)).max(axis=1) > 1e-5).all()


SETTINGS = {"format": FORMAT, "algo": "fail", "env": "coasting", "env_options": {}, "horizon": 5, "seed": 0}


class Stopped(Exception):
    pass


@pytest.mark.slow
def test_what_is_half_learned_ahead_survives_a_stop(tmp_path, monkeypatch):
    """Two policies of two steps at a time, in a horizon of five: the same bytes, and all windows end with the horizon."""
    config = dataclasses.replace(
        VectorModelConfig(), samples=20, share_steps=2, rounds=2, ahead=4, hidden=8, updates=5, batch=8, features=8,
        dynamics=dataclasses.replace(VectorModelConfig().dynamics, hidden=8, updates=5, memory=200),
    )  # fmt: skip
    keep = RunDirectory.keep

    def train(name, resume=False):
        run = RunDirectory(tmp_path / name, SETTINGS, resume=resume, curve_episodes=2)
        return fail(JaxTraceModel(Coasting(horizon=5)), drifting(5), config, KEY, run), run

    def keep_and_stop(self, phase):
        keep(self, phase)
        raise Stopped

    whole, run = train("whole")
    assert [line["steps"] for line in run.metrics] == [2 * 20 * n for n in (4, 4 + 5, 4 + 5 + 5)]
    monkeypatch.setattr(RunDirectory, "keep", keep_and_stop)
    with pytest.raises(Stopped):
        train("stopped")
    monkeypatch.setattr(RunDirectory, "keep", keep)
    jax.tree.map(np.testing.assert_array_equal, train("stopped", resume=True)[0], whole)


class Pushes(Policy):
    """Right with probability 0.7, else nothing."""

    def act(self, key, observations, h):
        return 1 + jax.random.bernoulli(key, 0.7, observations.shape[:1]).astype(int)


@pytest.mark.learning
def test_discrete_actions_are_matched_through_the_model():
    env = PointMass(horizon=3, discrete=True, noise=0.05)
    behaviour = states_of(env, Pushes())
    first = np.asarray(env.initial(KEY, 2000))
    data = ObservationDataset((first, *behaviour))
    policy = fail(JaxTraceModel(env), data, ModelConfig(dynamics=DYNAMICS, **SIZES), KEY, MemoryRun(curve_episodes=2))
    reached = states_of(env, policy)
    for h in range(3):
        assert float(mmd2(jnp.asarray(reached[h]), jnp.asarray(behaviour[h]))) < 0.02


@pytest.mark.parametrize(
    ("config", "discrete", "message"),
    [
        (RegressionConfig(), False, "discrete actions"),
        (ImportanceConfig(), False, "discrete actions"),
        (DensityConfig(), True, "for action vectors"),
        (ModelConfig(), False, "VectorModelConfig for action vectors"),
        (VectorModelConfig(), True, "VectorModelConfig for action vectors"),
    ],
)
def test_an_estimator_for_other_actions_is_an_error(config, discrete, message):
    model = JaxTraceModel(PointMass(horizon=2, discrete=discrete))
    with pytest.raises(HyrloError, match=message):
        fail(model, drifting(2, n=20), config, KEY, MemoryRun())


@pytest.mark.parametrize("option", [{"explore_std": -0.1}, {"moments": -1.0}, {"batch": 1}, {"ahead": 0}, {"std": 0.0}])
def test_sizes_that_make_no_sense_are_errors(option):
    with pytest.raises(HyrloError, match="; give"):
        VectorModelConfig(**option)
