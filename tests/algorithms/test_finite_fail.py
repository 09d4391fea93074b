"""FAIL, PSDP and FOOBAR with exact classes: the game against linear programming, the theorems against exact values."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.distances.value import BoundedWitnesses, WitnessTable, greedy_witnesses, ipm, value_witnesses
from hyrlo.experiments.theory_guarantees import (
    fit_error,
    fixed_action_example,
    one_sided_example,
    random_case,
    range_example,
    study,
)
from hyrlo.experiments.theory_states import copies_lock, learn, samples_needed
from hyrlo.theory.finite import (
    FiniteMDP,
    deterministic_q,
    one_step_policies,
    sample_states,
    state_frequencies,
    uniform_policy,
)
from hyrlo.theory.finite_fail import (
    AllPolicies,
    FinitePolicies,
    exact_returns,
    exactly,
    finite_fail,
    finite_foobar,
    finite_psdp,
    min_max_game,
    sampled,
    sampled_returns,
    simulated,
    smallest_ipm,
    witness_classes,
)
from hyrlo.theory.hardness import hard_tv

few = settings(max_examples=8, deadline=None)


def problem(seed, states=4, actions=3):
    """One step of a random MDP, offline states and random witnesses."""
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP.random(seed, 1, states, actions)
    witnesses = WitnessTable(rng.uniform(size=(6, states)))
    return mdp, exactly(mdp)(0, uniform_policy(mdp)), rng.dirichlet(np.full(states, 0.3)), witnesses


@few
@given(st.integers(0, 10**6))
def test_the_game_comes_as_close_to_the_smallest_ipm_as_its_regret_says(seed):
    _, online, offline, witnesses = problem(seed)
    smallest, best = smallest_ipm(online, offline, witnesses)
    assert ipm(witnesses, online.lead(best), offline) == pytest.approx(smallest, abs=1e-7)
    rounds = 400
    game = min_max_game(online, offline, witnesses, AllPolicies(), rounds)
    regret = witnesses.spread * np.sqrt(np.log(3) / (2 * rounds))
    assert smallest - 1e-7 <= game.u <= smallest + regret
    assert ipm(witnesses, online.lead(game.policy), offline) == pytest.approx(game.u)
    listed = FinitePolicies(one_step_policies(4, 3))
    mixed = min_max_game(online, offline, witnesses, listed, rounds)
    assert smallest - 1e-7 <= mixed.u <= smallest + witnesses.spread * np.sqrt(np.log(3**4) / (2 * rounds))


def test_only_past_witnesses_together_lead_to_the_minimum():
    """Total variation on the paper's construction: a_2 with probability 2/19. The newest witness alone would swing."""
    hard = hard_tv()
    online = exactly(hard.mdp)(0, uniform_policy(hard.mdp))
    game = min_max_game(online, hard.offline[1], BoundedWitnesses(), AllPolicies(), 5000)
    assert game.policy[0, 1] == pytest.approx(2 / 19, abs=2e-3)
    assert game.u == pytest.approx(0.1 - 0.1 * 2 / 19, abs=1e-3)
    assert min_max_game(online, hard.offline[1], BoundedWitnesses(), AllPolicies(), 1).u > 0.3
    with pytest.raises(HyrloError, match="rounds is 0"):
        min_max_game(online, hard.offline[1], BoundedWitnesses(), AllPolicies(), 0)


def test_samples_through_a_trace_model_stand_for_expectations():
    mdp = FiniteMDP.random(1, 3, 4, 2, successors=2)
    policy = np.random.default_rng(0).dirichlet(np.ones(2), size=(3, 4))
    model = JaxTraceModel(mdp)
    n = 20_000
    for collect in (sampled(model, n, jax.random.key(0)), simulated(mdp, n, np.random.default_rng(0))):
        for h in (0, 2):
            lead = collect(h, policy).lead(policy[h])
            assert np.abs(lead - mdp.occupancy(policy)[h + 1]).max() < 5 * 2 / np.sqrt(n)
    assert (model.ledger.episodes, model.ledger.steps) == (2 * n, n + 3 * n)
    assert exactly(mdp)(2, policy).lead(policy[2]) == pytest.approx(mdp.occupancy(policy)[3])


def test_forward_and_backward_from_samples_match_the_data_and_find_the_optimum():
    mdp = FiniteMDP.random(3, 3, 4, 2, successors=2)
    behaviour = np.random.default_rng(1).dirichlet(np.ones(2), size=(3, 4))
    values = deterministic_q(mdp)
    witnesses = witness_classes(mdp, values, greedy_witnesses, behaviour)
    data = sample_states(mdp.occupancy(behaviour), 4000)
    model = JaxTraceModel(mdp)
    collect, classes = sampled(model, 4000, jax.random.key(0)), [AllPolicies()] * 3
    forward, games = finite_fail(collect, state_frequencies(data), witnesses, classes, uniform_policy(mdp), 300)
    exact = [ipm(w, p, q) for w, p, q in zip(witnesses, mdp.occupancy(forward), mdp.occupancy(behaviour), strict=True)]
    assert max(exact) < 0.05
    assert len(games) == 3
    returns = sampled_returns(model, forward, 4000, jax.random.key(1))
    for functions in (values, [None] * 3):
        backward, _ = finite_psdp(returns, functions, uniform_policy(mdp))
        assert mdp.value(backward) > mdp.optimal_value() - 0.02
    assert mdp.value(behaviour) < mdp.optimal_value() - 0.05
    assert model.ledger.episodes == 3 * 4000 + 2 * 3 * 4000


def test_psdp_is_exact_where_the_roll_in_goes_and_adversarial_ties_are_elsewhere():
    mdp = FiniteMDP.random(5, 3, 4, 2)
    everywhere = np.full((3, 4), 0.25)
    values = deterministic_q(mdp)
    backward, learned = finite_psdp(exact_returns(mdp, everywhere), values, uniform_policy(mdp))
    assert mdp.value(backward) == pytest.approx(mdp.optimal_value())
    assert learned == pytest.approx(mdp.q(backward))
    case, roll_in = fixed_action_example()
    occupancy = case.mdp.occupancy(roll_in)
    kind, _ = finite_psdp(exact_returns(case.mdp, occupancy), case.values, uniform_policy(case.mdp))
    cruel, _ = finite_psdp(
        exact_returns(case.mdp, occupancy), case.values, uniform_policy(case.mdp), worst=case.offline
    )
    assert (case.mdp.value(kind), case.mdp.value(cruel)) == (2, 1)


@pytest.mark.parametrize("build", [value_witnesses, greedy_witnesses])
def test_witness_classes_are_complete(build):
    case = random_case(1, admissible=True)
    witnesses = witness_classes(case.mdp, case.values, build, case.behaviour)
    for h in range(case.mdp.horizon - 1):
        backed_up = (case.mdp.expect(h, witnesses[h + 1].functions) * case.behaviour[h]).sum(axis=-1)
        distance = np.abs(backed_up[:, None] - witnesses[h].functions[None]).max(axis=2).min(axis=1)
        assert distance.max() < 1e-8
    assert len(witness_classes(case.mdp, case.values, build)[0].functions) < len(witnesses[0].functions)


def test_value_classes_hold_the_values_of_whatever_psdp_returns():
    for seed in range(6):
        case = random_case(seed, admissible=False)
        rng = np.random.default_rng(seed)
        occupancy = case.mdp.occupancy(rng.dirichlet(np.full(case.mdp.actions, 0.2), size=case.mdp.rewards.shape[:2]))
        backward, learned = finite_psdp(
            exact_returns(case.mdp, occupancy), case.values, uniform_policy(case.mdp), worst=case.offline
        )
        assert fit_error(case.mdp, occupancy, backward, learned) < 1e-8


def test_the_inequalities_hold_on_random_mdps():
    """But not for the game without an absolute value."""
    rows = [row for seed in range(4) for admissible in (True, False) for row in study(seed, admissible, 100, 2)]
    one_sided = [row for row in rows if "one-sided" in row["witnesses"]]
    others = [row for row in rows if row not in one_sided]
    slacks = [row[name] for row in others for name in row if name.startswith("slack") and row[name] != ""]
    assert len(slacks) > 100
    assert min(slacks) > -1e-6
    assert min(row["slack_forward"] for row in one_sided) < -0.01
    assert max(row["fit_error"] for row in others) > 0.05  # so that the guarantees have something to bound


def test_equation_one_misses_what_the_learned_policy_does_differently_from_state_to_state():
    case, roll_in = fixed_action_example()
    occupancy = case.mdp.occupancy(roll_in)
    apart = {
        build: ipm(WitnessTable(build(case.values[1])), occupancy[1], case.offline[1])
        for build in (value_witnesses, greedy_witnesses)
    }
    assert apart[value_witnesses] == 0
    assert apart[greedy_witnesses] == pytest.approx(1)
    found = finite_foobar(
        case.mdp, case.offline, case.values, witness_classes(case.mdp, case.values, greedy_witnesses, case.behaviour),
        worst=case.offline,
    )  # fmt: skip
    assert case.mdp.value(found.backward) == 2


def test_without_an_absolute_value_the_game_leaves_the_data():
    case = one_sided_example()
    online = exactly(case.mdp)(0, uniform_policy(case.mdp))
    for signed, second in ((True, 0.0), (False, 1.0)):
        witnesses = witness_classes(case.mdp, case.values, value_witnesses, case.behaviour, signed)
        u, policy = smallest_ipm(online, case.offline[1], witnesses[1])
        assert u == pytest.approx(-0.5 * second, abs=1e-7)
        assert policy[0, 1] == pytest.approx(second, abs=1e-6)
        game = min_max_game(online, case.offline[1], witnesses[1], AllPolicies(), 2000)
        assert game.policy[0, 1] == pytest.approx(second, abs=0.05)


def test_the_bound_of_the_forward_pass_forgets_the_range_of_the_witnesses():
    assert range_example() == pytest.approx((4.5, 2))


def test_value_witnesses_need_few_samples_where_total_variation_needs_many():
    problem = copies_lock(512, seed=0)
    value, tv = (learn(problem, kind, 1024, seed=0, rounds=100) for kind in ("value", "tv"))
    assert value["ipm"] < 0.1 < 0.2 < tv["ipm"]
    rows = samples_needed(8, "value", 0, 32, 20)
    assert [row["samples"] for row in rows] == [8, 16, 32]
    assert rows == samples_needed(8, "value", 0, 32, 20)
