"""Algorithms against exact dynamic programming on random finite MDPs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.backward.psdp import PsdpConfig, psdp, psdp_trace
from hyrlo.core.jax_model import JaxResetModel, JaxTraceModel
from hyrlo.core.policies import Uniform
from hyrlo.core.regression import MlpSgd
from hyrlo.data.states import ObservationDataset
from hyrlo.foobar import FoobarConfig, foobar
from hyrlo.forward.fail import fail
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.minmax import GameConfig
from hyrlo.forward.regression import RegressionConfig
from hyrlo.forward.witness import Mmd
from hyrlo.runs.directory import MemoryRun
from hyrlo.theory.finite import FiniteMDP
from tests.pointmass import PointMass

HORIZON, STATES, ACTIONS = 3, 4, 3
Q_FIT = MlpSgd(updates=600, learning_rate=0.01, restarts=2, rounds=1)


def probabilities(policy, mdp):
    """Action probabilities (H, S, A) of a stack, greedy or soft, at the one-hot states."""
    states = jnp.eye(STATES)
    rows = []
    for h in range(HORIZON):
        one = policy[h]
        rows.append(
            jax.nn.softmax(one.logits(states))
            if hasattr(one, "logits")
            else jax.nn.one_hot(one.q(states).argmax(1), ACTIONS)
        )
    return np.asarray(rows)


def behaviour(mdp, seed, n=3000):
    """States of a random stochastic policy and its action probabilities."""
    policy = np.random.default_rng(seed).dirichlet(np.ones(ACTIONS) * 0.7, size=(HORIZON, STATES))
    rng = np.random.default_rng(seed + 1)
    states = [np.array([rng.choice(STATES, p=d / d.sum(), size=n) for d in mdp.occupancy(policy)])]
    return policy, ObservationDataset.from_trajectories(np.eye(STATES, dtype=np.float32)[states[0].T])


@pytest.mark.learning
@pytest.mark.parametrize("seed", [0, 1])
def test_psdp_with_reset_finds_the_optimal_policy(seed):
    mdp = FiniteMDP.random(seed, HORIZON, STATES, ACTIONS)
    everywhere = ObservationDataset.from_trajectories(
        np.repeat(np.eye(STATES, dtype=np.float32)[:, None], HORIZON + 1, axis=1)
    )
    policy = psdp(
        JaxResetModel(mdp), everywhere, PsdpConfig(samples=4000, fit=Q_FIT), jax.random.key(seed), MemoryRun()
    )
    best = float(np.asarray(mdp.initial_distribution) @ mdp.optimal_q()[0].max(axis=1))
    worst = mdp.value(np.full((HORIZON, STATES, ACTIONS), 1 / ACTIONS))
    assert mdp.value(probabilities(policy, mdp)) >= best - 0.05 * (best - worst)


@pytest.mark.learning
def test_fail_matches_the_exact_occupancy():
    mdp = FiniteMDP.random(2, HORIZON, STATES, ACTIONS)
    target, data = behaviour(mdp, 3)
    game = GameConfig(iterations=400, learning_rate=0.02)
    config = ImportanceConfig(samples=4000, batch=4000, game=game, witness=Mmd(memory=0.0))  # exact best responses
    policy = fail(JaxTraceModel(mdp), data, config, jax.random.key(0), MemoryRun())
    wanted = mdp.occupancy(target)
    reached = mdp.occupancy(probabilities(policy, mdp))
    uniform = mdp.occupancy(np.full_like(target, 1 / ACTIONS))
    assert 0.5 * np.abs(uniform - wanted).sum(axis=1).max() > 0.13  # doing nothing is not enough
    assert 0.5 * np.abs(reached - wanted).sum(axis=1).max() < 0.05


@pytest.mark.learning
def test_foobar_beats_the_behaviour_policy_and_comes_close_to_the_optimum():
    mdp = FiniteMDP.random(4, HORIZON, STATES, ACTIONS)
    target, data = behaviour(mdp, 5)
    forward = RegressionConfig(samples=3000, latents=STATES)
    config = FoobarConfig(forward, PsdpConfig(samples=4000, fit=Q_FIT))
    policy = foobar(JaxTraceModel(mdp), data, config, jax.random.key(1), MemoryRun())
    best = float(np.asarray(mdp.initial_distribution) @ mdp.optimal_q()[0].max(axis=1))
    assert mdp.value(probabilities(policy, mdp)) >= best - 0.1 * (best - mdp.value(target))


def test_psdp_trace_estimates_q_without_bias():
    """At the last step the regression target is the reward itself, so Q is the exact reward table."""
    mdp = FiniteMDP.random(6, 1, STATES, ACTIONS)
    config = PsdpConfig(samples=4000, fit=Q_FIT)
    policy = psdp_trace(JaxTraceModel(mdp), Uniform(ACTIONS), config, jax.random.key(0), MemoryRun())
    np.testing.assert_allclose(policy[0].q(jnp.eye(STATES)), mdp.rewards[0], atol=0.05)


@pytest.mark.learning
def test_steps_may_share_a_q_function_where_the_world_is_the_same_at_all_of_them():
    """Push right twice, then stay: −0.5 at best, about −5 for uniform actions."""
    model = JaxTraceModel(PointMass(discrete=True, horizon=6))
    config = PsdpConfig(samples=4800, share_steps=3, fit=MlpSgd(updates=600, restarts=2))
    policy = psdp_trace(model, Uniform(3), config, jax.random.key(0), MemoryRun(curve_episodes=2))
    assert len(policy.steps.q.biases[0]) == 2  # six steps, two Q-functions
    assert model.ledger.episodes == 2 * 2 * 4800
    assert float(model.evaluation().rollout(jax.random.key(1), policy, 300).returns.mean()) > -1.2
