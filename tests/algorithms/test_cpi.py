"""CPI-trace against exact values: the stopping test, the gain of every update, the bounds; then with samples and networks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.backward.cpi import CpiBatch, CpiConfig, collect, cpi_networks, estimated_advantage, most_updates
from hyrlo.backward.sac import SacConfig
from hyrlo.core.errors import HyrloError
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Blend, Greedy
from hyrlo.core.regression import MlpSgd
from hyrlo.experiments.stationary import EPSILON, StationaryTask, cpi_row
from hyrlo.runs.directory import MemoryRun
from hyrlo.theory.discounted import (
    DiscountedEnv,
    DiscountedMDP,
    DiscountedTraceModel,
    greedy_table,
    random_policy,
    table_policy,
)
from hyrlo.theory.finite_cpi import cpi_finite, exact_estimates, sampled_estimates

EPS = 0.02
FIT = MlpSgd(hidden=16, updates=150, learning_rate=5e-3, batch=128, restarts=2, rounds=1)


def problem(seed, gamma, branching=2, states=6, actions=3):
    rng = np.random.default_rng(seed)
    mdp = DiscountedMDP.random(seed, states, actions, gamma, branching)
    return mdp, random_policy(rng, states, actions), random_policy(rng, states, actions)


@pytest.mark.parametrize("gamma", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_update_gains_and_the_count_is_within_the_bound(seed, gamma):
    mdp, roll_in, first = problem(seed, gamma)
    result = cpi_finite(exact_estimates(mdp, roll_in), first, gamma, EPS)
    start = mdp.occupancy(roll_in)
    values = [mdp.value(policy, start) for policy in result.policies]
    assert result.stopped
    assert result.updates <= most_updates(gamma, EPS)
    gains, advantages = np.diff(values), np.array(result.advantages[:-1])
    assert (advantages > EPS).all()
    assert (gains >= advantages**2 / (8 * gamma) - 1e-12).all()
    assert result.advantages[-1] <= EPS
    for policy, advantage in list(zip(result.policies, result.advantages, strict=True))[:: max(1, result.updates // 3)]:
        states, weight, chain = 0.0, start, mdp.chain(policy)  # d^π from d^{π^f}, by its power series
        for h in range(600):
            states, weight = states + (1 - gamma) * gamma**h * weight, weight @ chain
        assert advantage == pytest.approx(states @ mdp.advantage(policy).max(axis=1), abs=1e-9)
    best = mdp.optimal_policy()
    gap = mdp.value(best) - mdp.value(result.policy)
    assert gap <= (mdp.occupancy(best) / start).max() * EPS / (1 - gamma) ** 2


def test_the_update_is_the_mixture_and_alpha_is_as_told():
    mdp, roll_in, first = problem(4, 0.6)
    result = cpi_finite(exact_estimates(mdp, roll_in), first, 0.6, 1e-6, alpha=0.25, most=2)
    assert not result.stopped
    second = 0.75 * first + 0.25 * greedy_table(mdp.advantage(first))
    np.testing.assert_allclose(result.policies[1], second, atol=1e-12)
    third = 0.75 * second + 0.25 * greedy_table(mdp.advantage(second))
    np.testing.assert_allclose(result.policy, third, atol=1e-12)


def test_the_stopping_test_looks_at_the_states_of_the_roll_in():
    """State 1 could be improved a lot, but neither policy ever gets there."""
    transitions = np.zeros((2, 2, 2))
    transitions[[0, 1], :, [0, 1]] = 1
    mdp = DiscountedMDP(np.array([1.0, 0.0]), transitions, np.array([[0.5, 0.5], [0.0, 1.0]]), 0.8)
    stays = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert cpi_finite(exact_estimates(mdp, stays), stays, 0.8, 0.01).updates == 0
    from_one = DiscountedMDP(np.array([0.5, 0.5]), transitions, mdp.rewards, 0.8)
    assert cpi_finite(exact_estimates(from_one, stays), stays, 0.8, 0.01).updates > 0


@pytest.mark.parametrize("step", ["advantage", "accuracy", "sloppy"])
def test_the_paper_s_bounds_on_one_mdp(step):
    row = cpi_row(made := StationaryTask.random(9), made.behaviour, step)
    assert row["stopped"]
    assert 0 < row["updates"] <= row["most_updates"]
    assert row["least_gain"] >= EPSILON**2 / (8 * row["gamma"])
    assert row["advantage_left"] <= 2 * EPSILON
    assert row["gap"] <= min(row["gap_bound"], row["gap_bound_roll_in"])
    if step == "sloppy":
        assert row["advantage_left"] > EPSILON  # the slack of Greedy_ε is used


def test_values_as_plain_sums_need_more_updates_than_the_paper_allows():
    """8γ/ε² with ε on the scale of Σ γ^h r, as the paper defines values, is 8γ(1 − γ)²/ε² here: too few."""
    row = cpi_row(made := StationaryTask.random(2), made.behaviour, "accuracy")
    assert row["gamma"] == 0.9
    assert row["updates"] > 2 * row["most_updates_plain_sums"]


@pytest.fixture(scope="module")
def sampled():
    mdp, roll_in, policy = problem(5, 0.7, states=4)
    return mdp, roll_in, policy, DiscountedTraceModel(DiscountedEnv.create(mdp, horizon=40))


@pytest.mark.slow
def test_sampled_estimates_are_right(sampled):
    mdp, roll_in, policy, model = sampled
    exact = exact_estimates(mdp, roll_in)(policy, 0)
    estimate = sampled_estimates(model, roll_in, 0.7, 40_000, jax.random.key(0))(policy, 0)
    np.testing.assert_allclose(estimate.states, exact.states, atol=0.02)
    np.testing.assert_allclose(estimate.advantage, exact.advantage, atol=0.02)
    assert model.ledger.episodes == 40_000


@pytest.mark.slow
def test_the_estimated_advantage_is_unbiased_whatever_q(sampled):
    mdp, roll_in, _, model = sampled
    key = jax.random.key(1)
    wrong = Greedy(MLP((jax.random.normal(key, (4, 3)),), (jnp.zeros(3),)))
    half = Blend(jax.tree.map(lambda x: x[None], Greedy(MLP((jnp.eye(4, 3),), (jnp.zeros(3),)))), jnp.array([0.4]), 3)
    policy = np.asarray(half.probabilities(jnp.eye(4)), float)
    np.testing.assert_allclose(policy, 0.4 * np.eye(3)[[0, 1, 2, 0]] + 0.2, atol=1e-6)
    batch = collect(model, table_policy(roll_in), half, 160_000, 0.7, key)
    chosen = np.eye(3)[np.asarray(wrong.q.weights[0]).argmax(axis=1)]
    estimate = exact_estimates(mdp, roll_in)(policy, 0)
    exact = np.sum(estimate.states[:, None] * chosen * estimate.advantage)
    for unit in (0.1, 1.0):  # the fitted Q is off by any factor
        assert float(estimated_advantage(half, wrong, batch, jnp.asarray(unit))) == pytest.approx(exact, abs=0.015)
    assert abs(exact) > 0.03


def test_a_blend_is_the_conservative_update():
    members = [Greedy(MLP((jnp.eye(4, 3) * sign,), (jnp.zeros(3),))) for sign in (1.0, -1.0)]
    blend = Blend(jax.tree.map(lambda x: jnp.zeros((2, *x.shape)), members[0]), jnp.zeros(2), 3)
    states, expected = jnp.eye(4), np.full((4, 3), 1 / 3)
    for place, (member, alpha) in enumerate(zip(members, (0.5, 0.2), strict=True)):
        blend = blend.towards(member, alpha, place)
        expected = (1 - alpha) * expected + alpha * np.eye(3)[np.asarray(member.act(jax.random.key(0), states, 0))]
        np.testing.assert_allclose(blend.probabilities(states), expected, atol=1e-6)
    actions = blend.act(jax.random.key(0), jnp.repeat(states, 20_000, axis=0), 0).reshape(4, -1)
    shares = [[float((row == a).mean()) for a in range(3)] for row in actions]
    np.testing.assert_allclose(shares, expected, atol=0.015)


@pytest.fixture(scope="module")
def network_problem():
    world = hyrlo.make("discounted", states=5, gamma=0.7, branching=2, seed=1)
    config = CpiConfig(iterations=8, samples=1500, alpha=0.5, epsilon=0.01, fit=FIT)
    return world, table_policy(world.behaviour(0.8)), config


@pytest.mark.slow
def test_networks_improve_a_policy_and_stop(network_problem):
    world, source, config = network_problem
    model, run = world.trace_model(), MemoryRun(curve_episodes=20)
    policy = cpi_networks(model, source, config, jax.random.key(0), run)
    table = np.asarray(policy.probabilities(jnp.eye(5)), float)
    value, uniform, best = (world.mdp.value(p) for p in (table, np.full((5, 3), 1 / 3), world.mdp.optimal_policy()))
    assert value > uniform + 0.8 * (best - uniform)
    assert model.ledger.episodes == 1500 * len(run.metrics)
    stopped = [line for line in run.metrics if line["alpha"] == 0]
    assert len(run.metrics) == 8 or (stopped == run.metrics[-1:] and stopped[0]["advantage"] <= config.epsilon)


def test_nothing_to_gain_stops_at_once_with_the_first_policy(network_problem):
    world, source, config = network_problem
    run = MemoryRun(curve_episodes=20)
    policy = cpi_networks(world.trace_model(), source, replace(config, epsilon=2.0), jax.random.key(0), run)
    np.testing.assert_allclose(policy.probabilities(jnp.eye(5)), 1 / 3, atol=1e-6)
    assert len(run.metrics) == 1


def test_samples_of_the_last_steps_have_few_rewards_left():
    """The horizon cuts returns off: with γ near 1 the target at step h is (1 − γ)(H − h) for rewards of one."""
    mdp = DiscountedMDP(np.ones(1), np.ones((1, 2, 1)), np.ones((1, 2)), 0.5)
    model = DiscountedTraceModel(DiscountedEnv.create(mdp, horizon=6))
    batch = collect(model, model.spec.uniform(), model.spec.uniform(), 500, 0.999999, jax.random.key(0))
    left = np.asarray(batch.targets) / 1e-6
    assert isinstance(batch, CpiBatch)
    assert set(np.round(left).astype(int)) == {1, 2, 3, 4, 5, 6}


def test_presets_and_refusals(tmp_path):
    assert isinstance(hyrlo.config("cpi"), SacConfig)
    assert isinstance(hyrlo.config("cpi", preset="paper"), CpiConfig)
    assert isinstance(hyrlo.config("cpi", improve="cpi"), CpiConfig)
    with pytest.raises(HyrloError, match="actions must be discrete"):
        hyrlo.train("cpi", hyrlo.make("gym:Pendulum-v1", 3), config=CpiConfig())
    for wrong in ({"alpha": 0.0}, {"gamma": 1.0}, {"epsilon": float("nan")}, {"test_share": 1.0}, {"samples": 2}):
        with pytest.raises(HyrloError):
            CpiConfig(**wrong)
