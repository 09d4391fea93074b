"""The plan against exact dynamic programming; checks that find where it over-promises; and PSDP where it is of no use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.backward import plan as planning
from hyrlo.backward.plan import (
    Checked,
    PlanConfig,
    Planned,
    SeenRows,
    best_of,
    compare,
    losses,
    plan,
    plan_and_check,
    rows_of,
    together,
)
from hyrlo.core.access import Recorded
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.keys import Keys
from hyrlo.core.latents import Latents
from hyrlo.core.policies import Stack, Uniform
from hyrlo.forward.fail import match_forwards
from hyrlo.forward.latent import Counted, LatentConfig
from hyrlo.runs.directory import MemoryRun
from hyrlo.theory.finite import FiniteMDP, TablePolicy, greedy, sample_states, uniform_policy

KEY = jax.random.key(0)


def estimator_of(mdp, tables, rewards=None, latents=16):
    """An estimator that has seen every (step, state, action, next state) as often as the tables say."""
    rewards = mdp.rewards if rewards is None else rewards
    data = sample_states(np.full((mdp.horizon + 1, mdp.states), 1 / mdp.states), 10)
    estimator = LatentConfig(latents=latents).estimator(mdp.spec, data, KEY)
    one_hot = np.append(1000 * np.eye(mdp.states), np.zeros((1, mdp.states)), axis=0).astype(np.float32)
    estimator.encoders = [Latents(one_hot)] * (mdp.horizon + 1)
    for h, table in enumerate(tables):
        z, a, following = (np.repeat(x.ravel(), table.ravel()) for x in np.indices(table.shape))
        estimator.counted[h] = Counted(z, a, rewards[h, z, a], following)
    return estimator


def exact_tables(mdp, n=100_000):
    """Counts in proportion to the probabilities."""
    return np.round(n * mdp.transitions).astype(int)


def greedy_actions(policy, mdp):
    """What it does in every step and state."""
    states = jnp.eye(mdp.states)
    return np.stack([np.asarray(policy.act(KEY, states, h)) for h in range(mdp.horizon)])


def q_values(policy, mdp):
    return np.stack([np.asarray(policy[h].q(jnp.eye(mdp.states))) for h in range(mdp.horizon)])


@pytest.mark.parametrize("seed", range(3))
def test_with_exact_counts_the_plan_is_dynamic_programming(seed):
    mdp = FiniteMDP.random(seed, 6, 5, 3)
    policy, values = plan(estimator_of(mdp, exact_tables(mdp)))
    best = mdp.optimal_q()
    np.testing.assert_allclose(values[:-1], best.max(axis=2), atol=1e-3)
    np.testing.assert_allclose(q_values(policy, mdp), best, atol=1e-3)
    np.testing.assert_array_equal(values[-1], np.zeros(5))
    np.testing.assert_array_equal(greedy_actions(policy, mdp), best.argmax(axis=2))


def test_with_sampled_counts_the_plan_is_as_good_but_for_the_samples():
    mdp, rng = FiniteMDP.random(7, 6, 5, 3), np.random.default_rng(0)
    tables = np.stack([rng.multinomial(2000, p) for p in mdp.transitions])
    policy, values = plan(estimator_of(mdp, tables))
    np.testing.assert_allclose(values[0], mdp.optimal_q()[0].max(axis=1), atol=0.02)
    actions = greedy_actions(policy, mdp)
    assert mdp.value(np.eye(3)[actions]) >= mdp.optimal_value() - 0.01


def test_rewards_that_vary_are_averaged():
    """One step: action 0 pays 1 in three of ten tries, action 1 always pays 0.25."""
    mdp = FiniteMDP.dense(np.ones(1), np.ones((1, 1, 2, 1)), np.zeros((1, 1, 2)))
    estimator = estimator_of(mdp, np.full((1, 1, 2, 1), 10))
    actions = np.repeat([0, 1], 10)
    rewards = np.append(np.repeat([1.0, 0.0], [3, 7]), np.full(10, 0.25))
    estimator.counted[0] = Counted(np.zeros(20, int), actions, rewards, np.zeros(20, int))
    policy, values = plan(estimator)
    np.testing.assert_allclose(q_values(policy, mdp), [[[0.3, 0.25]]], atol=1e-6)
    np.testing.assert_allclose(values[0], [0.3])


@pytest.mark.parametrize("shift", [0.0, -5.0, 5.0])
def test_an_action_that_was_never_tried_is_never_chosen(shift):
    """Here the best ones: the plan is the optimum among the others, whether rewards are positive or negative."""
    mdp = FiniteMDP.random(1, 5, 4, 3)
    mdp = FiniteMDP(mdp.initial_distribution, mdp.successors, mdp.probabilities, mdp.rewards + shift)
    best = greedy(mdp.optimal_q()).astype(bool)
    tables = exact_tables(mdp)
    tables[best] = 0
    policy, values = plan(estimator_of(mdp, tables))
    assert not np.take_along_axis(best, greedy_actions(policy, mdp)[..., None], axis=2).any()
    value = np.zeros(4)
    for h in reversed(range(5)):
        value = np.where(best[h], -np.inf, mdp.rewards[h] + mdp.expect(h, value)).max(axis=1)
        np.testing.assert_allclose(values[h], value, atol=1e-3)


def late_or_early(horizon=60, early=0.05):
    """In state 0, action 0 goes on and pays 1 at the end; action 1 pays a little at once and leads away for good."""
    moves, rewards = np.zeros((horizon, 2, 2, 2)), np.zeros((horizon, 2, 2))
    moves[:, 0, 0, 0] = moves[:, 0, 1, 1] = moves[:, 1, :, 1] = 1
    rewards[:, 0, 1], rewards[-1, 0, 0] = early, 1.0
    return FiniteMDP.dense(np.array([1.0, 0.0]), moves, rewards)


def test_a_large_late_reward_is_preferred_to_a_small_early_one_however_few_the_counts():
    """Four tries of each, sixty steps: to pull means towards each other by a twentieth would lose it."""
    mdp = late_or_early()
    policy, values = plan(estimator_of(mdp, 4 * mdp.transitions.astype(int)))
    assert values[0][0] == 1.0
    np.testing.assert_array_equal(greedy_actions(policy, mdp)[:, 0], 0)
    once, _ = plan(estimator_of(mdp, mdp.transitions.astype(int)))
    np.testing.assert_array_equal(greedy_actions(once, mdp)[:, 0], 0)


def played(mdp, policy, n=200, seed=0):
    return JaxTraceModel(mdp).record(jax.random.key(seed), policy, n, tuple(range(mdp.horizon)))


def optimistic(mdp, step, state, promise):
    """Rewards that promise more in one state of one step."""
    rewards = mdp.rewards.copy()
    rewards[step, state] += promise
    return rewards


@pytest.mark.parametrize("step", [0, 2, 5])
def test_the_step_at_which_a_table_promises_too_much_is_found(step):
    """Everything is deterministic, so the loss is the promise at that step and nothing elsewhere."""
    mdp = late_or_early(horizon=6)
    estimator = estimator_of(mdp, 4 * mdp.transitions.astype(int), optimistic(mdp, step, 0, 3.0))
    policy, values = plan(estimator)
    rows = rows_of(estimator, played(mdp, policy), range(6))
    np.testing.assert_allclose(losses(values, rows), 3.0 * (np.arange(6) == step), atol=1e-5)


def test_losses_add_up_to_what_is_missing():
    """Whatever the values: what each step loses sums to the promised return less the one earned."""
    mdp = FiniteMDP.random(3, 5, 4, 3)
    estimator = estimator_of(mdp, exact_tables(mdp, 7))  # rounded so much that it is wrong
    values = [np.random.default_rng(h).normal(size=4) for h in range(5)] + [np.zeros(4)]
    check = played(mdp, Uniform(3))
    rows = rows_of(estimator, check, range(5))
    checked = compare(check, values, rows, PlanConfig(episodes=200))
    assert losses(values, rows).sum() == pytest.approx(checked.promised - checked.earned, abs=1e-4)
    assert checked.earned == pytest.approx(float(check.returns.mean()))
    assert checked.worst == int(np.argmax(losses(values, rows)))


def check_of(returns):
    """A check whose episodes earned these returns, in the only step and latent state."""
    n = len(returns)
    zeros, states = np.zeros(n, int), np.ones((1, n, 1))
    returns = jnp.asarray(returns, jnp.float32)
    recorded = Recorded(returns, None, states, zeros[None], returns[None], returns[None], states, zeros[None] > 0)
    return recorded, SeenRows(zeros, Counted(zeros, zeros, np.asarray(returns), zeros))


@pytest.mark.parametrize(
    ("promised", "spread", "holds"),
    [
        (1.0, 0.0, True),
        (0.5, 0.0, True),  # more than promised is no failure
        (1.04, 0.0, True),  # the slack is 0.05 of 1.04
        (1.06, 0.0, False),
        (1.34, 1.0, True),  # two standard errors of 100 episodes add 0.2 · (the spread of ±1.41)
        (1.45, 1.0, False),
    ],
)
def test_a_check_holds_unless_more_is_missing_than_slack_and_noise(promised, spread, holds):
    check, rows = check_of(1.0 + 2**0.5 * spread * np.tile([-1.0, 1.0], 50))
    checked = compare(check, [np.array([promised]), np.zeros(1)], rows, PlanConfig(episodes=100))
    assert bool(checked.holds) == holds


def test_the_slack_is_a_share_of_a_negative_promise_too():
    check, rows = check_of(np.full(100, -10.0))
    for promised, holds in ((-9.6, True), (-9.4, False)):
        checked = compare(check, [np.array([promised]), np.zeros(1)], rows, PlanConfig(episodes=100))
        assert bool(checked.holds) == holds


def test_the_best_plan_is_kept_and_the_last_check_remembered():
    first, second, third = (Stack.repeat(TablePolicy(jnp.full((1, 1, 1), x)), 1) for x in (1.0, 2.0, 3.0))
    planned = Planned.before(first).after(second, Checked(-3.0, 5.0, 0, 4))
    assert (float(planned.earned), int(planned.worst), float(planned.missing)) == (-3.0, 4, 8.0)
    planned = planned.after(third, Checked(-6.0, -6.5, 0, 2))
    assert planned.policy is second
    assert (float(planned.earned), int(planned.holds), int(planned.worst)) == (-3.0, 0, 2)
    assert float(planned.missing) == -0.5
    assert planned.after(third, Checked(-1.0, 0.0, 0, 0)).policy is third
    assert planned.after(third, Checked(-6.0, -6.5, 1, 2)).policy is third  # the plan whose check holds


def test_rows_are_added_to_the_step_they_belong_to():
    mdp = late_or_early(horizon=3)
    estimator = estimator_of(mdp, mdp.transitions.astype(int))
    before = [len(estimator.counted[h].action) for h in range(3)]
    ones = np.ones(5, int)
    rows = together(
        [SeenRows(2 * ones, Counted(ones, ones, 0.5 * ones, ones)), SeenRows(ones[:2], Counted(*[ones[:2]] * 4))]
    )
    rows.add_to(estimator)
    assert [len(estimator.counted[h].action) for h in range(3)] == [before[0], before[1] + 2, before[2] + 5]
    np.testing.assert_array_equal(estimator.counted[2].reward[-5:], 0.5)


@pytest.mark.slow
def test_a_plan_that_holds_is_checked_once_and_kept():
    mdp = FiniteMDP.random(0, 4, 4, 3, scale=1.0)
    model, run, config = JaxTraceModel(mdp), MemoryRun(curve_episodes=1), PlanConfig(episodes=60, samples=80)
    policy = plan_and_check(model, Uniform(3), estimator_of(mdp, exact_tables(mdp, 1000)), config, KEY, run)
    np.testing.assert_array_equal(greedy_actions(policy, mdp), mdp.optimal_q().argmax(axis=2))
    assert model.ledger.episodes == 60 + 2 * 80  # the check, then the plan and the roll-in side by side
    assert [line["holds"] for line in run.metrics] == [1]
    assert run.metrics[0]["promised"] == pytest.approx(mdp.optimal_value(), abs=0.2)
    assert (run.warnings, run.chosen) == ([], {})


@pytest.mark.slow
def test_a_check_that_fails_adds_samples_where_most_was_lost_until_one_holds():
    """At step 3, four tries were wrong: leaving seemed to pay 2. Staying is found to be better once more is counted."""
    mdp = late_or_early(horizon=6)
    rewards = mdp.rewards.copy()
    rewards[3, 0, 1] = 2.0
    estimator = estimator_of(mdp, 4 * mdp.transitions.astype(int), rewards)
    before = {h: len(rows.action) for h, rows in estimator.counted.items()}
    model, run, config = JaxTraceModel(mdp), MemoryRun(curve_episodes=1), PlanConfig(episodes=20, samples=100)
    policy = plan_and_check(model, Uniform(2), estimator, config, KEY, run)
    np.testing.assert_array_equal(greedy_actions(policy, mdp)[:, 0], 0)
    first, *_, last = run.metrics
    assert (first["holds"], first["worst"], first["promised"]) == (0, 3, 2.0)
    assert first["earned"] == pytest.approx(0.05)
    assert (last["holds"], last["earned"]) == (1, 1.0)
    failed = len(run.metrics) - 1
    added = {h: len(rows.action) - before[h] for h, rows in estimator.counted.items()}
    assert added == {h: 20 * len(run.metrics) + 100 * failed * (h == 3) for h in range(6)}
    tries = np.bincount(estimator.counted[3].action[-100 * failed - 20 : -20], minlength=2)  # then the check that holds
    assert (tries > 30 * failed).all()  # any action, from where the plan leads
    assert model.ledger.episodes == 20 * len(run.metrics) + 100 * failed + 2 * 100


@pytest.mark.slow
def test_no_more_checks_than_rounds_and_a_warning_then():
    """Latent states that are not what they seem: two states of opposite effect in one."""
    moves, rewards = np.zeros((2, 2, 2, 2)), np.zeros((2, 2, 2))
    moves[:, 0, :, 0] = moves[:, 1, :, 1] = 1
    rewards[1] = [[1.0, 0.0], [0.0, 1.0]]
    mdp = FiniteMDP.dense(np.array([0.5, 0.5]), moves, rewards)
    estimator = estimator_of(mdp, 50 * mdp.transitions.astype(int))
    estimator.encoders[1] = Latents(np.zeros((3, 1), np.float32))
    for h, rows in estimator.counted.items():
        name = {0: "following", 1: "latent"}[h]
        estimator.counted[h] = rows._replace(**{name: np.zeros(len(rows.action), int)})
    lies = estimator.counted[1]
    many = Counted(*(np.tile(x, 1000) for x in lies))._replace(reward=np.ones(1000 * len(lies.action)))
    estimator.counted[1] = many
    model, run = JaxTraceModel(mdp), MemoryRun(curve_episodes=1)
    config = PlanConfig(episodes=20, samples=30, rounds=3)
    improved = TablePolicy.of(greedy(mdp.optimal_q()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning.psdp, "psdp_trace", lambda *_: improved)
        assert plan_and_check(model, Uniform(2), estimator, config, KEY, run) is improved
    assert [line["holds"] for line in run.metrics] == [0, 0, 0]
    (warning,) = run.warnings
    assert (warning["phase"], warning["step"]) == ("plan", 1)
    assert warning["missing"] == pytest.approx(run.metrics[-1]["promised"] - run.metrics[-1]["earned"], rel=1e-4)
    assert "after 3 checks" in warning["what"]
    assert run.chosen["backward"]["choice"] == "psdp"


def decided(monkeypatch, of_plan, of_roll_in, of_psdp, holds):
    """Which of three policies, by the chance to go on at each of three steps, is the result; and the run."""
    mdp = late_or_early(horizon=3, early=0.0)

    def going_on(chance):
        return TablePolicy.of(np.tile([chance, 1 - chance], (3, 2, 1)))

    plans, roll_in, psdp = going_on(of_plan), going_on(of_roll_in), going_on(of_psdp)
    calls = []

    def psdp_trace(model, policy, *_):
        calls.append(policy)
        return psdp

    monkeypatch.setattr(planning.psdp, "psdp_trace", psdp_trace)
    best = Planned.before(plans).after(plans, Checked(1.0, 2.0, int(holds), 1))
    run = MemoryRun()
    result = best_of(JaxTraceModel(mdp), roll_in, best, PlanConfig(samples=200), Keys(KEY), run)
    assert all(policy is roll_in for policy in calls)  # the roll-in is improved, not the plan
    assert ("backward" in run.chosen) == (len(calls) > 0)
    assert (len(run.warnings) > 0) == (not holds)
    return {id(plans): "plan", id(psdp): "psdp", id(roll_in): "roll_in"}[id(result)], len(calls)


@pytest.mark.parametrize("holds", [True, False])
def test_a_plan_that_is_better_than_the_roll_in_is_kept(monkeypatch, holds):
    assert decided(monkeypatch, 1.0, 0.5, 1.0, holds) == ("plan", 0)


@pytest.mark.parametrize("holds", [True, False])
def test_a_plan_of_no_use_gives_way_to_psdp_from_the_roll_in(monkeypatch, holds):
    assert decided(monkeypatch, 0.1, 0.9, 1.0, holds) == ("psdp", 1)


def test_a_plan_as_good_as_the_roll_in_is_kept_only_if_it_holds(monkeypatch):
    assert decided(monkeypatch, 0.8, 0.8, 1.0, holds=True) == ("plan", 0)
    assert decided(monkeypatch, 0.8, 0.8, 1.0, holds=False) == ("psdp", 1)


def test_the_best_of_plan_roll_in_and_psdp_is_taken(monkeypatch):
    assert decided(monkeypatch, 0.7, 0.9, 0.1, holds=False) == ("roll_in", 1)


def test_a_plan_that_holds_and_ties_with_the_roll_in_is_taken(monkeypatch):
    assert decided(monkeypatch, 1.0, 1.0, 1.0, holds=True) == ("plan", 0)


@pytest.mark.slow
def test_forward_pass_and_plan_come_to_the_optimum():
    """From the states of a policy without skill, on a world with sparse transitions."""
    mdp = FiniteMDP.random(5, 8, 5, 3, successors=2, scale=1.0)
    data = sample_states(mdp.occupancy(uniform_policy(mdp)), 2000)
    model, run = JaxTraceModel(mdp), MemoryRun(curve_episodes=1)
    estimator = LatentConfig(latents=8).estimator(model.spec, data, KEY)
    roll_in = match_forwards(model, estimator, KEY, run).policy
    policy = plan_and_check(model, roll_in, estimator, PlanConfig(), KEY, run)
    worst, best = mdp.value(uniform_policy(mdp)), mdp.optimal_value()
    found = mdp.value(np.eye(3)[greedy_actions(policy, mdp)])
    assert found >= best - 0.05 * (best - worst)


def test_sizes_must_be_positive():
    for name in ("episodes", "samples", "rounds", "slack"):
        with pytest.raises(HyrloError, match=name):
            PlanConfig(**{name: 0})
