"""Which estimator suits a task: the share that actions explain in closed form, and the choice on worlds of each kind."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.data.states import ObservationDataset
from hyrlo.forward.choose import SHARE, STEPS, MeasuredConfig, look, unseen_effect, verdict, within
from hyrlo.forward.latent import LatentConfig
from hyrlo.forward.model import ModelConfig
from hyrlo.forward.regression import RegressionConfig
from hyrlo.runs.directory import MemoryRun
from hyrlo.theory.finite import FiniteMDP, sample_states, uniform_policy
from tests.pointmass import PointMass, drifting

KEY = jax.random.key(0)


def moved(n=5000, push=0.5, noise=0.5, spread=1.0, size=3, seed=0):
    """States, one of three actions, and next states whose first dimension the action pushes by −push, 0 or push."""
    rng = np.random.default_rng(seed)
    states, actions = spread * rng.standard_normal((n, size)), rng.integers(3, size=n)
    following = 2 * states[:, ::-1] + noise * rng.standard_normal((n, size))
    following[:, 0] += push * (actions - 1)
    return states, actions, following


@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_the_effect_of_actions_is_their_share_of_what_the_state_leaves_open(spread):
    """Pushes have variance 0.25 · 2/3 and noise 0.25: a share of 0.4, whether or not the state's own effect hides it."""
    states, actions, following = moved(spread=spread)
    assert unseen_effect(states, actions, following, np.zeros(5000, int)) == pytest.approx(0.4, abs=0.03)


def test_units_of_the_states_do_not_matter_to_the_effect():
    states, actions, following = moved()
    scale, groups = np.array([1e-3, 1.0, 1e3]), np.zeros(5000, int)
    plain = unseen_effect(states, actions, following, groups)
    assert unseen_effect(states * scale + 7, actions, following / scale - 7, groups) == pytest.approx(plain, rel=1e-3)


def test_a_push_without_noise_explains_everything():
    states, actions, following = moved(noise=0.0, push=0.01, spread=0.1)
    assert unseen_effect(states, actions, following, np.zeros(5000, int)) > 0.9


def test_actions_that_do_nothing_have_no_effect_at_all():
    """Not even by chance: at most one in a thousand measurements of twenty dimensions is significant."""
    found = []
    for seed in range(300):
        states, actions, following = moved(n=150, push=0.0, size=20, seed=seed)
        found.append(unseen_effect(states, actions, following, np.zeros(150, int)))
    assert np.count_nonzero(found) <= 2
    states, actions, _ = moved()
    assert unseen_effect(states, actions, np.ones_like(states), np.zeros(5000, int)) == 0


def test_what_latent_states_show_is_no_unseen_effect():
    """An action decides between two places; the group of an episode says which. Beyond that it does nothing."""
    states, actions, following = moved(push=0.0)
    following[:, 0] += 50.0 * (actions == 2)
    assert unseen_effect(states, actions, following, np.zeros(5000, int)) > 0.9
    assert unseen_effect(states, actions, following, (actions == 2).astype(int)) == 0


def test_an_effect_within_groups_is_found_where_groups_differ_much_more():
    states, actions, following = moved()
    groups = np.random.default_rng(1).integers(4, size=5000)
    following += 1000.0 * groups[:, None]
    assert unseen_effect(states, actions, following, 5 * groups) == pytest.approx(0.4, abs=0.03)


def test_rounding_is_no_effect():
    """Next states that are the same but for the last digits."""
    _, actions, _ = moved()
    following = np.full((5000, 1), 1.0) + 1e-7 * actions[:, None]
    other = (np.arange(5000) % 2)[:, None] * 10.0
    groups = np.arange(5000) % 2
    assert unseen_effect(np.zeros((5000, 1)), actions, following + other, groups) == 0


def test_within_takes_the_mean_of_each_group_out():
    values = np.array([[1.0, 10.0], [3.0, 20.0], [5.0, 5.0], [9.0, 7.0]])
    left = within(values, np.array([7, 7, 2, 2]))
    np.testing.assert_allclose(left, [[-1.0, -5.0], [1.0, 5.0], [-2.0, -1.0], [2.0, 1.0]])


@pytest.mark.parametrize(
    ("latents", "effect", "name"),
    [
        ([3, 9, 3], [0.0, 0.0, 0.0], "latent"),
        ([3, 9, 3], [0.0, SHARE, 0.0], "latent"),
        ([3, 9, 3], [0.0, 0.31, 0.0], "model"),
        ([1, 1, 1], [0.0, 0.31, 0.0], "model"),
        ([1, 1, 1], [0.0, 0.02, 0.0], "regression"),
        ([0], [0.0], "regression"),
    ],
)
def test_the_verdict_by_any_step_that_was_looked_at(latents, effect, name):
    chosen, reason = verdict(np.asarray(latents, float), np.asarray(effect))
    assert chosen == name
    assert {"latent": "up to 9 latent", "model": "31%", "regression": "neither latent states"}[name] in reason


class Blank(eqx.Module):
    """Noise and nothing else."""

    horizon: int = eqx.field(static=True, default=3)

    @property
    def spec(self):
        return Spec(self.horizon, 2, actions=3)

    def initial(self, key, n):
        return jnp.zeros(n)

    def observe(self, key, latent, h):
        return jax.random.normal(key, (len(latent), 2))

    def step(self, key, latent, actions, h):
        return latent, jnp.zeros(len(latent)), jnp.zeros(len(latent), bool)


def finite(states, horizon=3):
    mdp = FiniteMDP.random(0, horizon, states, 3)
    return mdp, sample_states(mdp.occupancy(uniform_policy(mdp)), 2000)


def resolved(env, data, **settings):
    """What was chosen, the run, and the model."""
    model, run = JaxTraceModel(env), MemoryRun(curve_episodes=1)
    return MeasuredConfig(**settings).resolved(model, data, KEY, run), run, model


def test_a_finite_world_is_counted():
    mdp, data = finite(6)
    config, run, model = resolved(mdp, data, episodes=150, latent=LatentConfig(samples=77))
    assert isinstance(config, LatentConfig)
    assert (config.samples, config.latents) == (77, 16)
    assert run.chosen["forward"]["choice"] == "latent"
    assert "up to 6 latent states" in run.chosen["forward"]["reason"]
    assert (model.ledger.episodes, model.ledger.steps) == (150, 150 * 3)
    assert [line["phase"] for line in run.metrics] == ["choose"]
    assert run.metrics[0]["latents"] == 6
    assert run.metrics[0]["unseen_effect"] == 0


def test_actions_that_decide_the_next_latent_state_are_counted_not_modelled():
    """Action a leads to state a, from everywhere: its effect is large, and its latent state shows all of it."""
    moves = np.broadcast_to(np.eye(3), (2, 3, 3, 3))
    mdp = FiniteMDP.dense(np.ones(3) / 3, moves, np.zeros((2, 3, 3)))
    config, run, _ = resolved(mdp, sample_states(mdp.occupancy(uniform_policy(mdp)), 500))
    assert isinstance(config, LatentConfig)
    assert run.metrics[0]["unseen_effect"] == 0


@pytest.mark.parametrize(("states", "most", "room"), [(20, 256, 64), (20, 24, 24), (33, 256, 128)])
def test_there_is_room_for_twice_as_many_latent_states_as_were_seen(states, most, room):
    """A power of two, if that is allowed."""
    mdp, data = finite(states, horizon=1)
    config, _, _ = resolved(mdp, data, latent=LatentConfig(latents=most))
    assert config.latents == room


def test_a_point_that_is_pushed_is_modelled():
    wanted = ModelConfig(hidden=7)
    for step_size in (0.5, 0.05):  # pushes apart by far more than the noise, and by about as much
        env = PointMass(discrete=True, horizon=4, step_size=step_size, noise=0.05)
        config, run, _ = resolved(env, drifting(4), model=wanted)
        assert config is wanted
        assert run.chosen["forward"]["choice"] == "model"


def test_a_point_whose_first_push_tears_its_states_apart_is_modelled_all_the_same():
    """All begin close together, so the next states lie in three separate places; within each, position carries over."""
    env = PointMass(discrete=True, horizon=1, step_size=0.8, noise=0.02)
    config, _, _ = resolved(env, drifting(1, speed=0.8))
    assert isinstance(config, ModelConfig)


def test_where_nothing_can_be_told_apart_regression_is_left():
    rng, wanted = np.random.default_rng(0), RegressionConfig(samples=33)
    data = ObservationDataset(tuple(rng.standard_normal((1000, 2)).astype(np.float32) for _ in range(4)))
    config, run, _ = resolved(Blank(), data, regression=wanted)
    assert config is wanted
    assert run.chosen["forward"]["choice"] == "regression"


class Ending(PointMass):
    """A point that is pushed until, after its second step, every episode has ended."""

    @property
    def spec(self):
        return Spec(self.horizon, 2, actions=3, ends=True)

    def observe(self, key, latent, h):
        ended = jnp.broadcast_to(jnp.asarray(h) >= 2, latent.shape).astype(float)
        return jnp.concatenate([jnp.where(ended > 0, 0.0, latent), ended], axis=1)


def test_steps_after_the_end_of_the_episodes_are_not_looked_at():
    env = Ending(discrete=True, horizon=6, step_size=0.1)
    data = ObservationDataset(tuple(np.asarray(env.observe(KEY, jnp.zeros((50, 1)), h)) for h in range(7)))
    measured = look(JaxTraceModel(env), data, MeasuredConfig(), KEY)  # at steps 0, 1, 2, 3 and 5
    assert len(measured.effect) == len(measured.latents) == 2
    assert measured.effect[0] > SHARE


def test_at_most_a_few_steps_are_looked_at_and_the_last_is_one_of_them():
    mdp, data = finite(4, horizon=9)
    asked = []

    class Spy(JaxTraceModel):
        def record(self, key, policy, episodes, steps, *, stop=None):
            asked.append((steps, stop))
            return super().record(key, policy, episodes, steps, stop=stop)

    measured = look(Spy(mdp), data, MeasuredConfig(), KEY)
    ((steps, stop),) = asked
    assert (len(steps), steps[0], steps[-1], stop) == (STEPS, 0, 8, 9)
    np.testing.assert_array_equal(measured.latents, 4)


def test_latent_states_are_those_of_the_next_step_online_and_offline():
    """Online it is always in the last state; the data have one more state at every step."""
    moves = np.zeros((3, 6, 2, 6))
    moves[..., 5] = 1
    mdp = FiniteMDP.dense(np.eye(6)[5], moves, np.zeros((3, 6, 2)))
    eye = np.eye(6, dtype=np.float32)
    data = ObservationDataset(tuple(np.repeat(eye[: h + 1], 20, axis=0) for h in range(4)))
    np.testing.assert_array_equal(look(JaxTraceModel(mdp), data, MeasuredConfig(), KEY).latents, [3, 4, 5])


def test_action_vectors_and_no_episodes_are_refused():
    with pytest.raises(HyrloError, match="discrete actions"):
        resolved(PointMass(), drifting(5))
    with pytest.raises(HyrloError, match="episodes"):
        MeasuredConfig(episodes=0)
