"""Discounted MDPs against power series and brute force; sampling access against the exact distributions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hyrlo
from hyrlo.backward.cpi import geometric
from hyrlo.cli.main import main
from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import Uniform
from hyrlo.theory.discounted import (
    DiscountedConfig,
    DiscountedEnv,
    DiscountedInteractiveModel,
    DiscountedMDP,
    DiscountedResetModel,
    DiscountedTraceModel,
    DiscountedWorld,
    greedy_table,
    random_policy,
    table_policy,
)

problems = st.tuples(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.9]), st.sampled_from([0, 1, 2]))


def problem(seed, gamma, branching, states=5, actions=3):
    mdp = DiscountedMDP.random(seed, states, actions, gamma, branching)
    return mdp, random_policy(np.random.default_rng(seed + 1), states, actions)


def counter(gamma, states=150):
    """A state is the number of steps taken, so that a stopping time can be read off."""
    transitions = np.zeros((states, 2, states))
    transitions[np.arange(states), :, np.minimum(np.arange(states) + 1, states - 1)] = 1
    return DiscountedMDP(np.eye(states)[0], transitions, np.zeros((states, 2)), gamma)


@given(problems)
@settings(max_examples=20, deadline=None)
def test_occupancy_and_values_are_their_power_series(drawn):
    mdp, policy = problem(*drawn)
    start = np.random.default_rng(0).dirichlet(np.ones(mdp.states))
    chain = np.einsum("sa,sat->st", policy, mdp.transitions)
    states, discount, occupancy, value = start, 1 - mdp.gamma, 0.0, 0.0
    for _ in range(400):
        occupancy = occupancy + discount * states
        value += discount * np.sum(states[:, None] * policy * mdp.rewards)
        states, discount = states @ chain, discount * mdp.gamma
    np.testing.assert_allclose(mdp.occupancy(policy, start), occupancy, atol=1e-10)
    np.testing.assert_allclose(mdp.value(policy, start), value, atol=1e-10)
    np.testing.assert_allclose(mdp.value(policy), mdp.initial @ mdp.values(policy), atol=1e-12)
    np.testing.assert_allclose(np.sum(policy * mdp.q(policy), axis=1), mdp.values(policy), atol=1e-12)
    np.testing.assert_allclose(np.sum(policy * mdp.advantage(policy), axis=1), 0, atol=1e-12)


@given(problems)
@settings(max_examples=8, deadline=None)
def test_the_optimal_policy_beats_every_deterministic_one(drawn):
    mdp, _ = problem(*drawn, states=4, actions=2)
    best = mdp.values(mdp.optimal_policy())
    everyone = [mdp.values(np.eye(2)[list(actions)]) for actions in itertools.product(range(2), repeat=4)]
    np.testing.assert_allclose(best, np.max(everyone, axis=0), atol=1e-9)


def test_performance_difference():
    mdp, policy = problem(3, 0.8, 2)
    other = greedy_table(mdp.q(policy))
    gain = mdp.occupancy(other) @ np.sum(other * mdp.advantage(policy), axis=1) / (1 - mdp.gamma)
    assert mdp.value(other) - mdp.value(policy) == pytest.approx(gain)
    assert gain > 0.01


def test_geometric_times():
    times = geometric(jax.random.key(0), 0.8, 100_000)
    shares = np.bincount(times)[:10] / len(times)
    np.testing.assert_allclose(shares, 0.2 * 0.8 ** np.arange(10), atol=0.006)
    cut = geometric(jax.random.key(1), 0.8, 100_000, 4)
    expected = 0.8 ** np.arange(4)
    np.testing.assert_allclose(np.bincount(cut) / len(cut), expected / expected.sum(), atol=0.006)
    assert (geometric(jax.random.key(2), 0.99, 1000, np.arange(1000) % 3 + 1) <= np.arange(1000) % 3).all()
    assert (geometric(jax.random.key(2), 0.0, 10) == 0).all()


def test_a_roll_in_stops_at_a_geometric_time_and_is_charged_its_own_steps():
    model = DiscountedTraceModel(DiscountedEnv.create(counter(0.9), horizon=5))
    batch = model.roll_in(jax.random.key(0), Uniform(2), Uniform(2), 1500)
    times = np.asarray(batch.states).argmax(axis=1)
    np.testing.assert_array_equal(np.asarray(batch.next_states).argmax(axis=1), times + 1)
    assert (model.ledger.episodes, model.ledger.steps) == (1500, times.sum() + 1500)
    assert times.mean() == pytest.approx(9, abs=1.2)
    assert times.max() > 5  # the horizon cuts nothing off


def test_roll_in_states_are_the_occupancy_and_actions_those_of_the_last_policy():
    mdp, policy = problem(5, 0.9, 2)
    model = DiscountedTraceModel(DiscountedEnv.create(mdp, horizon=5))
    batch = model.roll_in(jax.random.key(0), table_policy(policy), table_policy(np.eye(3)[[0, 1, 2, 0, 1]]), 20_000)
    np.testing.assert_allclose(np.asarray(batch.states).mean(axis=0), mdp.occupancy(policy), atol=0.02)
    np.testing.assert_array_equal(batch.actions, np.asarray(batch.states).argmax(axis=1) % 3)


def test_the_offline_distribution_tells_next_states_of_the_behaviour_policy():
    mdp, behaviour = problem(6, 0.9, 0)
    env = DiscountedEnv.create(mdp, horizon=5)
    model = DiscountedInteractiveModel(env, behaviour=table_policy(behaviour))
    asked = jnp.repeat(jnp.eye(5), 20_000, axis=0)
    answers = np.asarray(model.offline_next(jax.random.key(0), asked)).reshape(5, 20_000, 5)
    np.testing.assert_allclose(answers.mean(axis=1), mdp.chain(behaviour), atol=0.02)
    assert model.queries.steps == 100_000
    assert (model.ledger.episodes, model.ledger.steps) == (0, 0)


def test_evaluation_returns_are_values_and_training_sees_plain_rewards():
    mdp, policy = problem(7, 0.8, 0)
    model = DiscountedTraceModel(DiscountedEnv.create(mdp, horizon=40))
    returns = model.evaluation().rollout(jax.random.key(0), table_policy(policy), 4000).returns
    assert float(returns.mean()) == pytest.approx(mdp.value(policy), abs=0.01)
    batch = model.record(jax.random.key(0), table_policy(policy), 50, steps=(0, 7))
    rewards = mdp.rewards[np.asarray(batch.states).argmax(axis=2), np.asarray(batch.actions)]
    np.testing.assert_allclose(batch.rewards, rewards, rtol=1e-6)
    assert batch.success is None
    assert model.ledger.steps == 50 * 40


def test_a_reset_model_starts_where_it_is_told():
    mdp, policy = problem(8, 0.8, 0)
    model = DiscountedResetModel(DiscountedEnv.create(mdp, horizon=4))
    batch = model.rollout_from(jax.random.key(0), jnp.eye(5)[jnp.arange(100) % 5], table_policy(policy), at=3)
    expected = mdp.rewards[np.arange(100) % 5, np.asarray(batch.actions)]
    np.testing.assert_allclose(batch.returns, expected, rtol=1e-6)
    assert (model.ledger.episodes, model.ledger.steps) == (100, 100)


def test_behaviour_data_come_from_the_seed_and_from_the_behaviour_policy():
    world = hyrlo.make("discounted", states=4, gamma=0.5, epsilon=0.2)
    data = world.behaviour_data(seed=1, episodes=8000)
    assert data.fingerprint() == world.behaviour_data(seed=1, episodes=8000).fingerprint()
    assert data.fingerprint() != world.behaviour_data(seed=2, episodes=8000).fingerprint()
    states = world.mdp.initial @ np.linalg.matrix_power(world.mdp.chain(world.behaviour()), 3)
    np.testing.assert_allclose(data.at(3).mean(axis=0), states, atol=0.03)
    assert world.spec.horizon == 7  # 0.5^7 < 1 %
    assert world.behaviour_transitions(seed=1, episodes=5).horizon == 7


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gamma": 1.0}, "gamma is 1.0"),
        ({"rewards": np.array([[0.0, 0.5], [np.nan, 0.0]])}, "state 1, action 0 is nan"),
        ({"initial": np.array([0.5, 0.6])}, "initial at [] is not a distribution"),
        ({"transitions": np.full((2, 2, 2), 0.4)}, "transitions at [0, 0] is not a distribution"),
        ({"transitions": np.full((2, 3, 2), 0.5)}, "transitions has shape (2, 3, 2)"),
    ],
)
def test_what_is_no_mdp_is_refused(change, said):
    fields = {
        "initial": np.array([0.5, 0.5]),
        "transitions": np.full((2, 2, 2), 0.5),
        "rewards": np.zeros((2, 2)),
        "gamma": 0.9,
    }
    with pytest.raises(HyrloError) as error:
        DiscountedMDP(**(fields | change))
    assert said in str(error.value)


@pytest.mark.learning
def test_the_experiment_runs_at_smoke_scale_and_reports_the_same_again(tmp_path, capsys):
    command = ["reproduce", "stationary", "--scale", "smoke", "--out", str(tmp_path)]
    assert main(command) == 0
    out = tmp_path / "smoke" / "stationary"
    assert {p.name for p in out.glob("*.png")} == {"cpi.png", "inter-fail.png"}
    assert [len((out / f"stationary-{name}.csv").read_text().splitlines()) - 1
            for name in ("forward", "cpi", "chain", "networks")] == [3, 9, 5, 1]  # fmt: skip
    table = (out / "stationary.md").read_bytes()
    assert main([*command, "--report-only"]) == 0
    assert (out / "stationary.md").read_bytes() == table


def test_options_are_checked():
    for options in ({"gamma": 1.5}, {"states": 0}, {"actions": 1}, {"epsilon": -0.1}, {"branching": -1}):
        with pytest.raises(HyrloError):
            DiscountedConfig(**options)
    with pytest.raises(HyrloError, match="horizon is 0"):
        DiscountedWorld(0)
    with pytest.raises(HyrloError, match="no option gama; did you mean gamma"):
        hyrlo.make("discounted", gama=0.5)
