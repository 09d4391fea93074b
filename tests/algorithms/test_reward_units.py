"""Rewards without units: closed forms, and learning that does not change with the unit."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.backward import off_policy
from hyrlo.backward import sac as s
from hyrlo.backward.reward_units import VALUE, RewardUnits
from hyrlo.core.access import Spec
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.policies import Policy
from hyrlo.runs.directory import MemoryRun
from tests.pointmass import PointMass

KEY = jax.random.key(0)
GOING = jnp.zeros((3, 2), bool)
REWARDS = jnp.array([[-1.0, -1.0], [-1.0, 3.0], [-1.0, 3.0]])  # three steps of two episodes


def seen(rewards=REWARDS, ended=GOING, gamma=0.5):
    return RewardUnits.unknown().seen(rewards, ended, gamma)


def test_rewards_are_counted_from_the_least_in_units_of_the_returns():
    """Above −1 the second episode earns 0, 4, 4: discounted returns are 3, 6, 4 and, of the first episode, 0."""
    units = seen()
    np.testing.assert_allclose(units(REWARDS[:, 1]), [0.0, 4 * VALUE / 6, 4 * VALUE / 6], rtol=1e-6)
    assert float(units.least_value) == 0.0


def test_where_episodes_end_rewards_are_not_shifted():
    """The first episode ends after a step: returns are −1, and of the second one 1.25, 4.5, 3. Nothing counts after the end."""
    ended = GOING.at[:, 0].set(True)
    units = seen(REWARDS.at[1:, 0].set(-50.0), ended)
    spread = 4.5 + 1.0
    np.testing.assert_allclose(units(REWARDS[:, 1]), REWARDS[:, 1] * VALUE / spread, rtol=1e-6)
    np.testing.assert_allclose(units.least_value, -VALUE / spread, rtol=1e-6)


@pytest.mark.parametrize(("factor", "shift"), [(100.0, 0.0), (1.0, -30.0), (0.01, 5.0)])
def test_other_units_of_the_same_rewards_are_the_same(factor, shift):
    other = seen(factor * REWARDS + shift)
    np.testing.assert_allclose(other(factor * REWARDS + shift), seen()(REWARDS), rtol=1e-4, atol=1e-4)


def test_what_is_seen_later_only_widens_the_range():
    later = seen().seen(REWARDS[:, :1], GOING[:, :1], 0.5)
    for old, new in zip(jax.tree.leaves(seen()), jax.tree.leaves(later), strict=True):
        np.testing.assert_array_equal(old, new)


def test_rewards_that_are_all_alike_are_nothing():
    np.testing.assert_array_equal(seen(jnp.full((3, 2), 7.0))(jnp.full(2, 7.0)), 0.0)


def test_raw_rewards_stay_as_they_are():
    np.testing.assert_array_equal(RewardUnits.raw()(REWARDS[0]), REWARDS[0])
    assert float(RewardUnits.raw().least_value) == 0.0


def test_an_agent_means_the_same_in_other_units():
    """Values q of rewards r are ρ q of ρ r, and lie d / (1 − γ) higher if the least reward is d lower."""
    spec, config = Spec(1, 2, 2), s.SacConfig(hidden=8, replay=8)
    before = RewardUnits(jnp.asarray(-1.0), jnp.zeros((), bool), jnp.zeros(()), jnp.asarray(5.0))
    after = RewardUnits(jnp.asarray(-3.0), jnp.zeros((), bool), jnp.zeros(()), jnp.asarray(10.0))
    agent = s.create_agent(KEY, spec, off_policy.empty_replay(spec, config), before, config)
    moved = s.in_units(agent, before, after, 0.5)
    states = jax.random.normal(KEY, (4, 2))
    for old, new in ((agent.critics.params, moved.critics.params), (agent.targets, moved.targets)):
        expected = 0.5 * s.q_values(old, states) + 2 * (VALUE / 10) / (1 - 0.5)
        np.testing.assert_allclose(s.q_values(new, states), expected, rtol=1e-5)
    np.testing.assert_allclose(jnp.exp(moved.log_alpha.params), 0.5 * config.temperature, rtol=1e-5)


def test_before_anything_is_known_nothing_is_rescaled():
    spec, config = Spec(1, 2, 2), s.SacConfig(hidden=8, replay=8)
    agent = s.create_agent(KEY, spec, off_policy.empty_replay(spec, config), RewardUnits.unknown(), config)
    moved = s.in_units(agent, RewardUnits.unknown(), seen(), 0.5)
    assert eqx.tree_equal(agent, moved)


@pytest.mark.parametrize(("horizon", "gamma"), [(5, 0.98), (50, 0.98), (80, 1 - 1 / 80), (100, 0.99), (1000, 0.99)])
def test_the_discount_follows_from_the_horizon(horizon, gamma):
    assert s.SacConfig().discount(horizon) == pytest.approx(gamma)
    assert s.SacConfig(gamma=0.5).discount(horizon) == 0.5


class OtherUnits(PointMass):
    """The same task with rewards of another unit."""

    factor: float = eqx.field(static=True, default=100.0)
    shift: float = eqx.field(static=True, default=-30.0)

    def step(self, key, latent, actions, h):
        latent, reward, success = super().step(key, latent, actions, h)
        return latent, self.factor * reward + self.shift, success


SMALL = s.SacConfig(
    iterations=8, steps=16 * 30 * 5, episodes=16, random_collections=4, utd=1.0, actor_every=1, hidden=32,
    learning_rate=3e-3, average=0.99, check=20,
)  # fmt: skip


@pytest.mark.learning
def test_learning_does_not_depend_on_the_unit_of_rewards():
    """−0.5 is the best, uniform actions earn about −5; with raw rewards, the larger ones are not learned in this time."""
    earned = {}
    for name, world in {"plain": PointMass(), "other": OtherUnits()}.items():
        policy = off_policy.sac(JaxTraceModel(world), None, SMALL, KEY, MemoryRun(curve_episodes=2))
        earned[name] = float(JaxTraceModel(PointMass()).rollout(KEY, policy, 500).returns.mean())
    assert min(earned.values()) > -1.2
    assert abs(earned["plain"] - earned["other"]) < 0.4


class Right(Policy):
    def act(self, key, observations, h):
        return jnp.ones((len(observations), 1))


def test_the_best_of_what_was_learned_and_the_roll_in_is_returned():
    """Without updates to speak of, the roll-in is better than any actor; the check's episodes are counted."""
    model, run = JaxTraceModel(PointMass(horizon=8, goal=4.0)), MemoryRun(curve_episodes=2)
    config = s.RollInSacConfig(**vars(dataclasses.replace(SMALL, iterations=2, steps=300, utd=0.01)))
    policy = off_policy.cpi_trace(model, Right(), config, KEY, run)
    assert isinstance(policy, Right)
    assert run.chosen["policy"]["choice"] == "roll-in"
    played = (
        300 // (16 * 8) + 1
    )  # collections until the steps are used up, but four of the roll-in and one an iteration
    most = config.race_episodes  # of six policies; two iterations have kept one or two
    assert most - 2 * 20 - 40 <= model.ledger.episodes - 16 * max(played, 4 + 2) <= most


def test_the_actors_with_the_best_episodes_of_their_own_are_kept():
    spec, config = Spec(1, 2, 2), s.SacConfig(hidden=8, replay=8)
    agents = [
        s.create_agent(jax.random.key(i), spec, off_policy.empty_replay(spec, config), RewardUnits.raw(), config)
        for i in range(5)
    ]
    first = agents[0].average
    kept = jax.tree.map(lambda x: jnp.stack([x] * 2), first)
    now = off_policy.Learning(
        agents[0], None, None, first, kept, jnp.full(2, -jnp.inf), jnp.asarray(0), jnp.asarray(1.5), False
    )
    ahead = []
    for agent, returns in zip(agents, ([1.0] * 5, [3.0] * 5, [2.0] * 5, [9.0] * 4, [0.0] * 5), strict=True):
        now = now._replace(agent=agent).after_iteration(np.asarray(returns))
        ahead.append(bool(now.ahead))
    assert ahead == [False, True, True, True, False]  # of a roll-in that earns 1.5
    assert now.earned.tolist() == [2.0, 3.0]  # four episodes are too few to judge the fourth
    for place, agent in ((0, agents[2]), (1, agents[1])):
        assert eqx.tree_equal(jax.tree.map(lambda x, place=place: x[place], now.best), agent.average)
