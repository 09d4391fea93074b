"""Finite MDPs, coverage and value-induced IPMs against brute force and closed forms."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxResetModel, JaxTraceModel
from hyrlo.diagnostics.coverage import (
    best_covered,
    coverage,
    density_ratio,
    forward_coverage,
    performance_difference_coverage,
)
from hyrlo.distances.value import (
    BoundedWitnesses,
    WitnessTable,
    greedy_witnesses,
    ipm,
    total_variation,
    value_ipm,
    value_witnesses,
)
from hyrlo.theory.finite import (
    FiniteMDP,
    TablePolicy,
    deterministic_q,
    greedy,
    one_step_policies,
    sample_states,
    state_frequencies,
)
from hyrlo.theory.hardness import hard_tv

seeds = st.integers(0, 10**6)
few = settings(max_examples=15, deadline=None)


def some_mdp(seed):
    """A random MDP, sparse or dense, and a random policy."""
    rng = np.random.default_rng(seed)
    horizon, states, actions = rng.integers(1, 4), rng.integers(2, 6), rng.integers(2, 4)
    mdp = FiniteMDP.random(seed, horizon, states, actions, successors=rng.choice([None, 1, 2]))
    return mdp, rng.dirichlet(np.full(actions, 0.5), size=(horizon, states)), rng


def deterministic_policies(mdp):
    one = one_step_policies(mdp.states, mdp.actions)
    return (np.stack(steps) for steps in itertools.product(one, repeat=mdp.horizon))


# The MDP


@few
@given(seeds)
def test_occupancies_values_and_q_agree(seed):
    mdp, policy, rng = some_mdp(seed)
    occupancy = mdp.occupancy(policy)
    assert np.allclose(occupancy.sum(axis=1), 1)
    assert occupancy.min() >= 0
    backwards = mdp.initial_distribution @ (policy[0] * mdp.q(policy)[0]).sum(axis=1)
    assert mdp.value(policy) == pytest.approx(backwards)
    dense = FiniteMDP.dense(mdp.initial_distribution, mdp.transitions, mdp.rewards)
    assert np.allclose(dense.occupancy(policy), occupancy)
    joint, values = rng.uniform(size=mdp.rewards.shape[1:]), rng.normal(size=mdp.states)
    assert mdp.push(0, joint) @ values == pytest.approx((joint * mdp.expect(0, values)).sum())


def test_the_optimal_policy_is_the_best_of_all():
    mdp = FiniteMDP.random(3, 3, 3, 2, successors=2)
    values = [mdp.value(policy) for policy in deterministic_policies(mdp)]
    assert len(values) == 2**9
    assert mdp.value(mdp.optimal_policy()) == pytest.approx(max(values))
    assert mdp.optimal_value() == pytest.approx(max(values))


def test_deterministic_q_are_the_q_functions_of_all_deterministic_policies():
    mdp = FiniteMDP.random(4, 3, 2, 2)
    listed = deterministic_q(mdp)
    for policy in deterministic_policies(mdp):
        for h, q in enumerate(mdp.q(policy)):
            assert np.abs(listed[h] - q).max(axis=(1, 2)).min() < 1e-9
    assert [len(f) for f in listed] == [16, 4, 1]


def test_behind_the_access_models_it_is_the_same_mdp():
    mdp = FiniteMDP.random(5, 3, 4, 2, successors=2, scale=1.0)
    policy = np.random.default_rng(0).dirichlet(np.ones(2), size=(3, 4))
    n = 20_000
    model = JaxResetModel(mdp)
    batch = model.record(jax.random.key(0), TablePolicy.of(policy), n, steps=(0, 1, 2))
    frequencies = np.asarray(batch.next_states).mean(axis=1)
    assert np.abs(frequencies - mdp.occupancy(policy)[1:]).max() < 5 * 0.5 / np.sqrt(n)
    assert float(batch.returns.mean()) == pytest.approx(mdp.value(policy), abs=5 / np.sqrt(n))
    states = np.eye(4, dtype=np.float32)[np.full(n, 2)]
    to_go = model.rollout_from(jax.random.key(1), states, TablePolicy.of(policy), at=1).return_to_go
    exact = (policy[1, 2] * mdp.q(policy)[1, 2]).sum()
    assert float(to_go.mean()) == pytest.approx(exact, abs=5 / np.sqrt(n))
    assert (model.ledger.episodes, model.ledger.steps) == (2 * n, 3 * n + 2 * n)


def test_success_is_a_step_that_pays_one():
    mdp = hard_tv().mdp
    batch = JaxTraceModel(mdp).rollout(jax.random.key(0), TablePolicy.of(mdp.optimal_policy()), 4000)
    assert np.array_equal(batch.success, batch.returns >= 1)
    assert float(batch.success.mean()) == pytest.approx(0.1, abs=0.03)


def test_sampled_states_have_the_distribution_and_the_same_seed_the_same_bytes():
    distributions = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    data = sample_states(distributions, 5000, seed=3)
    assert np.abs(state_frequencies(data) - distributions).max() < 0.04
    assert data.fingerprint() == sample_states(distributions, 5000, seed=3).fingerprint()
    assert data.fingerprint() != sample_states(distributions, 5000, seed=4).fingerprint()


def test_tables_that_do_not_fit_are_refused():
    good = FiniteMDP.random(0, 2, 3, 2)
    bad = good.rewards.copy()
    bad[1, 2, 0] = np.nan
    with pytest.raises(HyrloError, match=r"rewards at \(1, 2, 0\) is not finite"):
        FiniteMDP.dense(good.initial_distribution, good.transitions, bad)
    with pytest.raises(HyrloError, match="must sum to 1"):
        FiniteMDP.dense(good.initial_distribution, good.transitions * 0.9, good.rewards)
    with pytest.raises(HyrloError, match="rewards have shape"):
        FiniteMDP.dense(np.ones(4) / 4, good.transitions, good.rewards)
    with pytest.raises(HyrloError, match="successors is 9; give 1 to 3"):
        FiniteMDP.random(0, 2, 3, 2, successors=9)
    with pytest.raises(HyrloError, match="too many"):
        deterministic_q(FiniteMDP.random(0, 2, 30, 2))


# Coverage


@few
@given(seeds)
def test_coverage_is_at_least_one_and_one_of_itself(seed):
    mdp, policy, rng = some_mdp(seed)
    other = rng.dirichlet(np.ones(mdp.actions), size=(mdp.horizon, mdp.states))
    anything = rng.dirichlet(np.ones(mdp.states), size=mdp.horizon + 1)
    assert coverage(mdp, policy, anything) >= 1
    assert forward_coverage(mdp, policy, other) >= 1
    assert forward_coverage(mdp, policy, policy) == pytest.approx(1)
    assert coverage(mdp, policy, anything) == max(
        density_ratio(d[None], q[None]) for d, q in zip(mdp.occupancy(policy), anything, strict=True)
    )


def test_performance_difference_coverage_is_its_definition_and_at_most_the_density_ratio():
    for seed in range(4):
        mdp = FiniteMDP.random(seed, 2, 3, 2, successors=2)
        offline = np.random.default_rng(seed).dirichlet(np.ones(3), size=2)
        policy = mdp.optimal_policy()
        ratios = []
        for rival in deterministic_policies(mdp):
            q = mdp.q(rival)
            advantage = q.max(axis=2) - (rival * q).sum(axis=2)
            above = (mdp.occupancy(policy)[:-1] * advantage).sum()
            if above > 1e-12:
                ratios.append(above / (offline * advantage).sum())
        exact = performance_difference_coverage(mdp, policy, offline)
        assert exact == pytest.approx(max(ratios))
        assert exact <= coverage(mdp, policy, offline) + 1e-9


def test_no_coverage_is_infinite_and_a_wrong_shape_is_refused():
    hard = hard_tv()
    first = np.tile(np.array([1.0, 0.0]), (2, 4, 1))
    assert forward_coverage(hard.mdp, hard.mdp.optimal_policy(), first) == np.inf
    assert performance_difference_coverage(hard.mdp, hard.mdp.optimal_policy(), hard.mdp.occupancy(first)) == np.inf
    with pytest.raises(HyrloError, match="give 2 or 3 steps of 4 states"):
        coverage(hard.mdp, first, np.ones((5, 4)))


@pytest.mark.parametrize("price", [0.0, 0.001, 0.02])
def test_best_covered_is_the_best_of_all_policies(price):
    """On the TV construction a policy is one number, the probability of a_2 (at s_3 it is best to play a_2)."""
    hard = hard_tv()

    def worth(second):
        policy = np.tile(np.array([1 - second, second]), (2, 4, 1))
        policy[1] = 0, 1
        return hard.mdp.value(policy) - price * coverage(hard.mdp, policy, hard.offline[:-1])

    best = max(worth(p) for p in np.linspace(0, 1, 401))
    assert best_covered(hard.mdp, hard.offline, price) == pytest.approx(best, abs=3e-4)
    nowhere = np.eye(4)[[0, 0]]
    assert best_covered(hard.mdp, nowhere) == -np.inf


@few
@given(seeds)
def test_best_covered_bounds_every_policy(seed):
    mdp, policy, rng = some_mdp(seed)
    offline = rng.dirichlet(np.ones(mdp.states), size=mdp.horizon)
    price = rng.uniform() * 0.1
    worth = mdp.value(policy) - price * coverage(mdp, policy, offline)
    assert worth <= best_covered(mdp, offline, price) + 1e-7
    assert best_covered(mdp, offline) == pytest.approx(mdp.optimal_value(), abs=1e-7)


# Value-induced IPMs


@few
@given(seeds)
def test_ipms_are_symmetric_and_zero_between_equals(seed):
    rng = np.random.default_rng(seed)
    values = rng.uniform(size=(3, 5, 2))
    p, q = rng.dirichlet(np.ones(5), size=2)
    for witnesses in (
        WitnessTable(value_witnesses(values)),
        WitnessTable(greedy_witnesses(values)),
        BoundedWitnesses(),
    ):
        assert ipm(witnesses, p, q) == pytest.approx(ipm(witnesses, q, p))
        assert ipm(witnesses, p, p) == 0
        value, witness = witnesses.best_response(p - q)
        assert value == pytest.approx(witness @ (p - q))
    assert total_variation(p, q) == pytest.approx(np.maximum(p - q, 0).sum())


def test_witnesses_are_those_of_equation_one():
    values = np.random.default_rng(0).uniform(size=(4, 5, 3))
    listed = {tuple((f.max(axis=1) - f[:, a]).round(9)) for f in values for a in range(3)}
    assert {tuple(g.round(9)) for g in value_witnesses(values)} == listed
    greedily = {tuple((f.max(axis=1) - (f * greedy(other)).sum(axis=1)).round(9)) for f in values for other in values}
    assert {tuple(g.round(9)) for g in greedy_witnesses(values)} == greedily


def test_on_samples_it_is_the_same_as_on_their_frequencies():
    rng = np.random.default_rng(1)
    values = rng.uniform(size=(3, 4, 2))
    x, y = (np.eye(4)[rng.integers(4, size=n)] for n in (50, 70))
    functions = [lambda s, f=f: s @ f for f in values]
    distance, (f, action) = value_ipm(functions, x, y)
    assert distance == pytest.approx(ipm(WitnessTable(value_witnesses(values)), x.mean(axis=0), y.mean(axis=0)))
    g = values[f].max(axis=1) - values[f][:, action]
    assert abs(x.mean(axis=0) @ g - y.mean(axis=0) @ g) == pytest.approx(distance)
    assert value_ipm(functions, x, x)[0] == 0
    with pytest.raises(HyrloError, match="function 0 is not finite at observation 0 of the first sample"):
        value_ipm([lambda s: s[:, :2] + np.nan], x, y)
    with pytest.raises(HyrloError, match="no value functions"):
        value_ipm([], x, y)
