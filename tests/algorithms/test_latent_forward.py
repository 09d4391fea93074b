"""The forward pass by counting, against linear programs and exact occupancies; and where a policy loses the states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, linprog

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.networks import latent_state
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits
from hyrlo.distances.mmd import compared_bandwidth
from hyrlo.forward.fail import match_forwards
from hyrlo.forward.latent import CONTRADICTION, MATTERS, Counted, LatentConfig, Share, match, outcomes
from hyrlo.forward.lost import EPISODES, FAR, distance_in, first_lost, warn_if_lost
from hyrlo.runs.directory import MemoryRun
from hyrlo.theory.finite import FiniteMDP, TablePolicy, sample_states, uniform_policy

MANY = 10_000_000


def counted(start, moves, n=MANY):
    """Counts as `n` uniform actions from `start` would give them, without noise."""
    return np.round(n * start[:, None, None] / moves.shape[1] * moves).astype(int)


def shares(distribution, n=MANY):
    return Share.counted(np.round(n * distribution).astype(int))


def least_distance(start, moves, aim):
    """The least total variation of any policy, by a linear program over flows x(z, a) and distances t(z′)."""
    latents, actions, following = moves.shape
    flows = latents * actions
    push = moves.reshape(flows, following).T
    above = np.block([[push, -np.eye(following)], [-push, -np.eye(following)]])
    member = np.append(np.repeat(np.eye(latents), actions, axis=1), np.zeros((latents, following)), axis=1)
    cost = np.append(np.zeros(flows), np.full(following, 0.5))
    return linprog(cost, above, np.append(aim, -aim), member, start).fun


def one_step(seed, latents=5, actions=3):
    """Where the roll-in is, what actions do, and a random policy."""
    mdp, rng = FiniteMDP.random(seed, 1, latents, actions), np.random.default_rng(seed)
    return mdp.initial_distribution, mdp.transitions[0], rng.dirichlet(0.5 * np.ones(actions), size=latents)


def pushed(start, policy, moves):
    return np.einsum("z,za,zaf->f", start, policy, moves)


def tv(one, other):
    return 0.5 * np.abs(one - other).sum()


@pytest.mark.parametrize("seed", range(5))
def test_where_a_policy_leads_there_is_found_from_many_counts(seed):
    start, moves, behaviour = one_step(seed)
    aim = pushed(start, behaviour, moves)
    found = match(counted(start, moves), shares(start), shares(aim))
    np.testing.assert_allclose(found.policy.sum(axis=1), 1)
    assert tv(pushed(start, np.full_like(behaviour, 1 / 3), moves), aim) > 0.05  # an even policy does not
    assert tv(pushed(start, found.policy, moves), aim) < 1e-3
    np.testing.assert_allclose(found.reached.mean, pushed(start, found.policy, moves), atol=1e-4)


def out_of_reach(seed):
    """A step and states that no policy has."""
    start, moves, _ = one_step(seed)
    return start, moves, np.random.default_rng(seed + 100).dirichlet(0.3 * np.ones(5))


def test_where_no_policy_leads_there_the_distance_is_close_to_the_least():
    """Squares are minimised, so that the distance is above the linear program's, but by little of what there is to gain."""
    above = []
    for seed in range(12):
        start, moves, aim = out_of_reach(seed)
        found = match(counted(start, moves), shares(start), shares(aim))
        best, even = least_distance(start, moves, aim), tv(pushed(start, np.full((5, 3), 1 / 3), moves), aim)
        reached = tv(pushed(start, found.policy, moves), aim)
        assert 0.04 < best <= reached + 1e-3
        above.append((reached - best) / (even - best))
    assert np.median(above) < 0.1
    assert max(above) < 0.5


@pytest.mark.parametrize("seed", range(6))
def test_no_policy_has_a_smaller_sum_of_squares(seed):
    """Where the start and the moves are known. The sum is convex: its slope towards the best of all policies is zero."""
    start, moves, target = out_of_reach(seed)
    aim = shares(target, 10_000)
    policy = match(counted(start, moves, 10**10), shares(start, 10**10), aim).policy
    off = pushed(start, policy, moves) - aim.mean
    slopes = np.einsum("z,zaf,f->za", start, moves, 2 * off / aim.noise)
    gap = np.sum(slopes * policy) - slopes.min(axis=1).sum()
    assert 0 <= gap + 1e-9 < 1e-3 * np.sum(off**2 / aim.noise)


def test_what_cannot_be_matched_is_shared_by_how_well_each_share_is_known():
    """One latent state, two actions to two places; the aim has a fifth in a third place.

    The flow is x and 1 − x and the aim 0.6 and 0.2. The least sum of squares, each by its variance v ∝ p (1 − p), divides
    the fifth as the variances: 0.24 to 0.16.
    """
    moves = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    found = match(counted(np.ones(1), moves), shares(np.ones(1)), shares(np.array([0.6, 0.2, 0.2]), 10_000))
    np.testing.assert_allclose(found.policy, [[0.72, 0.28]], atol=2e-3)


def test_outcomes_that_are_hardly_known_weigh_less():
    """As before, with actions tried 4 times: the variance of a place adds that of the outcomes, by how often they are used."""
    counts = np.array([[[4, 0, 0], [0, 4, 0]]])
    aim = shares(np.array([0.1, 0.5, 0.4]), 10_000)
    found = match(counts, Share(np.ones(1), np.full(1, 1e-8)), aim)
    smooth = (counts[0] + 0.5) / (counts[0].sum(axis=1, keepdims=True) + 1.5)
    of_outcomes = smooth * (1 - smooth) / 4

    def beyond(x):
        first, second = aim.noise[:2] + np.array([x**2, (1 - x) ** 2]) @ of_outcomes[:, :2]
        return (x - 0.1) / first - (1 - x - 0.5) / second

    x = brentq(beyond, 0.1, 0.5)
    assert 0.24 < x < 0.27  # by the variance of the aim alone 0.21; by that of an even choice 0.3
    np.testing.assert_allclose(found.policy, [[x, 1 - x]], atol=5e-3)


def test_actions_that_do_the_same_are_chosen_evenly_and_untried_ones_never():
    """Three actions to the first place, two to the second, and one that was never tried."""
    moves = np.zeros((1, 6, 2))
    moves[0, :3, 0], moves[0, 3:5, 1] = 1, 1
    counts = np.round(1e6 * moves).astype(int)
    found = match(counts, shares(np.ones(1)), shares(np.array([0.9, 0.1])))
    np.testing.assert_allclose(found.policy, [[0.3, 0.3, 0.3, 0.05, 0.05, 0.0]], atol=1e-3)


def test_a_choice_that_makes_no_difference_stays_even_however_few_the_counts():
    """All actions were seen to do the same; the aim is within noise of what they do."""
    rng = np.random.default_rng(0)
    for tries in (4, 25, 400):
        row = rng.multinomial(tries, [0.3, 0.7])
        counts = np.tile(row, (3, 4, 1))
        aim = Share.counted(rng.multinomial(200, [0.3, 0.7]))
        found = match(counts, Share.counted(counts.sum(axis=(1, 2))), aim)
        np.testing.assert_allclose(found.policy, 0.25, atol=1e-3)


def test_a_latent_state_in_which_nothing_was_tried_acts_at_random():
    counts = np.zeros((2, 3, 2), int)
    counts[0, 0, 0] = counts[0, 1, 1] = counts[0, 2, 1] = 100
    found = match(counts, Share.counted(np.array([300, 0])), shares(np.array([0.5, 0.5])))
    np.testing.assert_allclose(found.policy[1], 1 / 3)
    np.testing.assert_allclose(outcomes(counts)[1], 0.5)


def test_shares_are_frequencies_and_their_error_is_the_expected_distance():
    truth, n = np.array([0.5, 0.3, 0.15, 0.05]), 400
    draws = np.random.default_rng(0).multinomial(n, truth, size=2000)
    one = Share.counted(draws[0])
    np.testing.assert_allclose(one.mean, draws[0] / n)
    every = [Share.counted(counts) for counts in draws]
    np.testing.assert_allclose(np.mean([s.noise for s in every], axis=0), truth * (1 - truth) / n, rtol=0.05)
    distance = np.mean([tv(s.mean, truth) for s in every])
    assert np.mean([s.error() for s in every]) == pytest.approx(distance, rel=0.03)
    assert Share.counted(np.array([7, 0])).noise.min() > 0  # what was not seen may still be there


def test_the_noise_of_what_is_reached_is_that_of_repeated_experiments():
    """One action, so that the policy is given: where it leads is as uncertain as its formula says, and not less."""
    start, moves, _ = one_step(3, latents=3, actions=1)
    flat = (start[:, None, None] * moves).ravel()
    draws = np.random.default_rng(0).multinomial(500, flat, size=1000).reshape(-1, 3, 1, 3)
    found = [match(c, Share.counted(c.sum(axis=(1, 2))), shares(np.ones(3) / 3, 300)).reached for c in draws]
    spread = np.std([r.mean for r in found], axis=0)
    said = np.sqrt(np.mean([r.noise for r in found], axis=0))
    assert (said > 0.95 * spread).all()
    assert (said < 1.3 * spread).all()


def test_two_estimates_together_are_their_mean_by_precision():
    one = Share(np.array([0.5, 0.3, 0.2]), np.array([0.01, 0.02, 0.01]))
    other = Share(np.array([0.44, 0.36, 0.2]), np.array([0.03, 0.01, 0.01]))
    both = one.and_also(other)
    mean = np.array([(0.5 * 3 + 0.44) / 4, (0.3 + 0.36 * 2) / 3, 0.2])
    np.testing.assert_allclose(both.mean, mean / mean.sum())
    np.testing.assert_allclose(both.noise, [0.0075, 0.02 / 3, 0.005])
    np.testing.assert_allclose(other.and_also(one).mean, both.mean)


def test_of_two_estimates_that_contradict_each_other_the_first_counts_alone():
    noise, deviation = np.full(2, 1e-4), CONTRADICTION * np.sqrt(2e-4)
    one = Share(np.array([0.5, 0.5]), noise)
    for far, alone in ((0.99, False), (1.01, True)):
        other = Share(np.array([0.5 - far * deviation, 0.5 + far * deviation]), noise)
        assert (one.and_also(other) is one) == alone
        assert (other.and_also(one) is other) == alone


def probabilities(policy, mdp):
    """Action probabilities (H, S, A) at the one-hot states."""
    steps = [policy[h] for h in range(mdp.horizon)]
    return np.stack([np.asarray(latent_state(jnp.eye(mdp.states), p.encoder) @ p.table, float) for p in steps])


def passed(mdp, data, config, seed=0):
    """The forward policy's exact occupancy, the estimator, and the episodes of each step."""
    model, run = JaxTraceModel(mdp), MemoryRun(curve_episodes=1)
    estimator = config.estimator(model.spec, data, jax.random.key(seed))
    policy = match_forwards(model, estimator, jax.random.key(seed), run).policy
    return mdp.occupancy(probabilities(policy, mdp)), estimator, [line["step_episodes"] for line in run.metrics]


@pytest.mark.slow
def test_the_forward_policy_has_the_occupancy_of_the_data():
    mdp = FiniteMDP.random(2, 6, 4, 3)
    behaviour = np.random.default_rng(3).dirichlet(0.4 * np.ones(3), size=(6, 4))
    wanted = mdp.occupancy(behaviour)
    reached, estimator, episodes = passed(mdp, sample_states(wanted, 4000), LatentConfig(latents=8, tolerance=0.03))
    assert max(tv(*both) for both in zip(mdp.occupancy(uniform_policy(mdp)), wanted, strict=True)) > 0.15
    assert max(tv(*both) for both in zip(reached, wanted, strict=True)) < 0.06
    assert max(episodes) < 2000  # known well enough before there is no more to spend
    assert [x.count for x in estimator.encoders] == [4] * 7


@pytest.mark.slow
def test_states_that_cannot_be_regained_are_not_given_up_for_noise():
    """Three of four actions lead from the first state to the second, for good. The data stay where they are for 40 steps.

    Counts are off by about 0.05 at each step, one way or the other; what is lost must not add up over the steps.
    """
    moves = np.zeros((40, 2, 4, 2))
    moves[:, 0, 0, 0] = moves[:, 0, 1:, 1] = moves[:, 1, :, 1] = 1
    mdp = FiniteMDP.dense(np.array([0.5, 0.5]), moves, np.zeros((40, 2, 4)))
    stay = np.eye(4)[np.zeros((40, 2), int)]
    for seed in range(2):
        data = sample_states(mdp.occupancy(stay), 1000, seed)
        reached, _, _ = passed(mdp, data, LatentConfig(latents=8), seed)
        assert reached[-1, 0] > 0.38


def swap(horizon=3, actions=2, rare=0.0):
    """Deterministic: action 0 stays, others go to the other of two states; starts in the second with chance `rare`."""
    moves = np.zeros((horizon, 2, actions, 2))
    moves[:, [0, 1], 0, [0, 1]] = 1
    moves[:, [0, 1], 1:, [1, 0]] = 1
    return FiniteMDP.dense(np.array([1 - rare, rare]), moves, np.zeros((horizon, 2, actions)))


def test_no_more_episodes_once_a_step_is_known():
    """Where everything is deterministic and every action was tried, the first round is enough."""
    mdp = swap()
    data = sample_states(mdp.occupancy(uniform_policy(mdp)), 2000)
    _, _, episodes = passed(mdp, data, LatentConfig(samples=100, tolerance=0.2, latents=8))
    assert episodes == [100, 100, 100]


def test_no_more_episodes_than_allowed_but_for_the_last_round():
    """With a tolerance that cannot be met; the last round is at most a quarter of what is there."""
    mdp = FiniteMDP.random(0, 2, 3, 2)
    data = sample_states(mdp.occupancy(uniform_policy(mdp)), 1000)
    for most in (100, 250, 900):
        _, _, episodes = passed(mdp, data, LatentConfig(samples=100, most=most, tolerance=1e-9, latents=8))
        assert all(most <= n <= max(most + 100, 1.25 * most) for n in episodes)


def test_actions_are_tried_until_none_is_missing_where_it_matters():
    """Of ten actions in a state of every tenth episode, a round of uniform ones misses some. Much rarer states are let go."""
    for rare, tried in ((0.1, True), (MATTERS / 20, False)):
        mdp = swap(horizon=1, actions=10, rare=rare)
        data = sample_states(mdp.occupancy(uniform_policy(mdp)), 2000)
        _, estimator, (episodes,) = passed(mdp, data, LatentConfig(samples=100, tolerance=1.0, latents=8))
        tries = estimator.counts.sum(axis=2)
        second = tries[estimator.encoders[0].label(np.eye(2))[1]]
        assert tries.sum() == episodes
        assert (second.min() >= LatentConfig.tries) == tried
        assert (100 < episodes < 1000) if tried else episodes == 100


def recorded(states, actions, following):
    zeros = np.zeros(len(actions), np.float32)
    none = np.zeros(len(actions), bool)
    return Recorded(zeros, none, states.astype(np.float32), actions, zeros, zeros, following.astype(np.float32), none)


def begun(states, actions, following, spec, data, **settings):
    """An estimator after one round of step 0."""
    estimator = LatentConfig(latents=8, **settings).estimator(spec, data, jax.random.key(0))
    state = estimator.begin(estimator.start(), 0)
    return estimator, estimator.update(jax.random.key(1), state, recorded(states, actions, following), 0)[0]


def test_what_is_missing_is_tried_first():
    """In the first of two states action 1 was tried once and action 2 never; in the second nothing is missing."""
    at, actions = np.repeat([0, 0, 1, 1, 1], [50, 1, 20, 20, 20]), np.repeat([0, 1, 0, 1, 2], [50, 1, 20, 20, 20])
    eye = np.eye(2, dtype=np.float32)
    data = ObservationDataset((np.repeat(eye, 50, axis=0),) * 2)
    estimator, state = begun(eye[at], actions, eye[np.where(actions == 0, at, 0)], Spec(1, 2, 3), data, tries=4)
    first, second = estimator.encoders[0].label(eye)
    np.testing.assert_array_equal(estimator.missing(0)[[first, second]], [[0, 3, 4], [0, 0, 0]])
    assert estimator.wants(state, 0, 1) == 100
    table = np.asarray(estimator.exploring(state, 0, 1).then[0].table)
    np.testing.assert_allclose(table[first], 0.95 * np.array([0, 3 / 7, 4 / 7]) + 0.05 / 3, atol=1e-6)
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-6)


def test_once_nothing_is_missing_actions_are_tried_by_the_error_they_cause():
    """Action 0 always does the same; action 1 is a coin, and the flow needs it: nearly all further episodes try it."""
    actions = np.repeat([0, 1], 50)
    eye = np.eye(2, dtype=np.float32)
    following = np.where(actions == 0, 0, np.arange(100) % 2)
    data = ObservationDataset((eye[np.zeros(100, int)], eye[np.repeat([0, 1], [75, 25])]))
    estimator, state = begun(eye[np.zeros(100, int)], actions, eye[following], Spec(1, 2, 2), data, tolerance=1e-3)
    assert not estimator.missing(0).any()
    np.testing.assert_allclose(estimator.match.policy, [[0.5, 0.5]], atol=0.01)
    table = np.asarray(estimator.exploring(state, 0, 1).then[0].table)
    np.testing.assert_allclose(table[0], [0.025, 0.975], atol=1e-4)


def test_states_of_episodes_that_have_ended_are_not_waited_for():
    """Nine of ten episodes have ended: the share of a latent state is among those that go on."""
    states = np.repeat([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]], [90, 4, 6], axis=0)
    data = ObservationDataset((states.astype(np.float32),) * 2)
    estimator, _ = begun(states, np.arange(100) % 2, states, Spec(1, 2, 2, ends=True), data, tries=40)
    ended, one, other = estimator.encoders[0].label(np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]))
    going = estimator.going(0, states)
    np.testing.assert_allclose(going[[ended, one, other]], [0.0, 0.4, 0.6])
    missing = estimator.missing(0).sum(axis=1)
    assert missing[ended] == 0
    np.testing.assert_array_equal(missing[[one, other]], [76, 74])


def test_latent_states_that_turn_up_late_are_found_when_looking_again():
    """Only once there are five times as many online states; all that was counted before is counted anew."""
    rng = np.random.default_rng(0)

    def states(kind):
        return 10.0 * np.eye(3)[kind] + rng.standard_normal((len(kind), 3))

    zeros, data = np.zeros(100, int), ObservationDataset((states(np.zeros(500, int)).astype(np.float32),) * 2)
    estimator, state = begun(states(zeros), np.arange(100) % 2, states(zeros), Spec(1, 3, 2), data)
    counts = []
    for _ in range(4):
        batch = recorded(states(zeros), zeros, states(np.repeat([0, 2], 50)))
        state, _ = estimator.update(jax.random.key(0), state, batch, 0)
        counts.append(estimator.encoders[1].count)
    assert counts == [1, 1, 1, 2]
    there = estimator.encoders[1].label(10.0 * np.eye(3))
    assert there[0] != there[2]
    np.testing.assert_array_equal(estimator.counts[0, :, there[0]], [50 + 200, 50])
    np.testing.assert_array_equal(estimator.counts[0, :, there[2]], [200, 0])


def test_where_the_roll_in_is_follows_from_both_steps_that_say_it():
    """A single action that does nothing: of 100 episodes, 50 were in the first state at step 0, and 60 others at step 1."""
    eye, none = np.eye(2, dtype=np.float32), np.zeros(100, int)
    data = ObservationDataset((np.repeat(eye, 50, axis=0),) * 3)
    half, more = eye[np.repeat([0, 1], [50, 50])], eye[np.repeat([0, 1], [60, 40])]
    estimator, state = begun(half, none, half, Spec(2, 2, 1), data)
    before = Share(*np.asarray(state.reached, float)[:, :2])
    state = estimator.begin(state, 1)
    estimator.update(jax.random.key(0), state, recorded(more, none, more), 1)
    first = estimator.encoders[2].label(eye)[0]
    both = Share.counted(np.array([60, 40]) if first == 0 else np.array([40, 60])).and_also(before)
    np.testing.assert_allclose(estimator.match.reached.mean, both.mean, atol=1e-6)
    assert 0.54 < estimator.match.reached.mean[first] < 0.57  # the second is a little better known


def test_an_estimator_that_is_restored_has_counted_the_same():
    mdp = swap(horizon=3)
    data = sample_states(mdp.occupancy(uniform_policy(mdp)), 500)
    kept, run, config = [], MemoryRun(curve_episodes=1), LatentConfig(latents=8)
    run.keep_rows = lambda phase, number, rows: kept.append(rows)
    estimator, again = (config.estimator(mdp.spec, data, jax.random.key(0)) for _ in range(2))
    match_forwards(JaxTraceModel(mdp), estimator, jax.random.key(0), run)
    again.restore(iter(kept))
    for one, other in zip(estimator.encoders, again.encoders, strict=True):
        np.testing.assert_array_equal(one.encoder, other.encoder)
    assert sorted(again.counted) == [0, 1, 2]
    for h in range(3):
        for one, other in zip(estimator.counted[h], again.counted[h], strict=True):
            np.testing.assert_array_equal(one, other)


def test_tables_count_every_row_once():
    rows = Counted(np.array([0, 1, 1, 1]), np.array([0, 1, 1, 0]), np.zeros(4), np.array([2, 0, 0, 1]))
    table = rows.and_also(rows).table(2, 2, 3)
    assert table.sum() == 8
    assert (table[0, 0, 2], table[1, 1, 0], table[1, 0, 1]) == (2, 4, 2)


def test_action_vectors_are_refused():
    data = ObservationDataset((np.zeros((5, 1), np.float32),) * 2)
    with pytest.raises(HyrloError, match="discrete actions"):
        LatentConfig().estimator(Spec(1, 1, 0, action_size=1), data, jax.random.key(0))


# Where a policy loses the states.


def drifting(policy_steps):
    """Six states in a row; action 1 goes on to the next, action 0 stays. One action per step, with a little noise."""
    horizon = len(policy_steps)
    moves = np.zeros((horizon, 6, 2, 6))
    for s in range(6):
        moves[:, s, 0, s], moves[:, s, 1, min(s + 1, 5)] = 1, 1
    mdp = FiniteMDP.dense(np.array([0.6, 0.4, 0, 0, 0, 0]), moves, np.zeros((horizon, 6, 2)))
    policy = np.full((horizon, 6, 2), 0.02)
    policy[np.arange(horizon), :, policy_steps] = 0.98
    return mdp, policy


@pytest.mark.slow
def test_the_first_step_at_which_a_policy_leaves_the_states_is_named():
    mdp, policy = drifting([1, 0, 1, 0, 1])
    model, data = JaxTraceModel(mdp), sample_states(mdp.occupancy(policy), 400)
    for seed in range(3):
        assert first_lost(model, TablePolicy.of(policy), data, jax.random.key(seed)) is None
    for step in range(5):
        other = policy.copy()
        other[step] = policy[step, :, ::-1]
        lost = first_lost(model, TablePolicy.of(other), data, jax.random.key(step))
        assert lost.step == step + 1
        assert lost.floor == pytest.approx((1 / EPISODES + 1 / 400) ** 0.5)
        assert lost.distance > lost.floor + FAR
    assert model.ledger.episodes == 0  # counted as evaluation


def test_few_offline_states_are_no_sign_of_a_policy_that_loses_them():
    """With twenty at every step, equal distributions are often further apart than what is far by itself."""
    mdp = FiniteMDP.random(0, 5, 6, 2)
    policy = uniform_policy(mdp)
    for seed in range(5):
        data = sample_states(mdp.occupancy(policy), 20, seed)
        assert first_lost(JaxTraceModel(mdp), TablePolicy.of(policy), data, jax.random.key(seed)) is None


def test_a_policy_that_loses_the_states_is_warned_of_in_one_line():
    mdp, policy = drifting([1, 0, 1, 0, 1])
    model, data, run = JaxTraceModel(mdp), sample_states(mdp.occupancy(policy), 400), MemoryRun()
    warn_if_lost(model, TablePolicy.of(policy), data, jax.random.key(0), run)
    assert run.warnings == []
    other = policy.copy()
    other[2:] = policy[2:, :, ::-1]
    warn_if_lost(model, TablePolicy.of(other), data, jax.random.key(0), run)
    (warning,) = run.warnings
    assert (warning["phase"], warning["step"]) == ("forward", 3)
    assert "at step 3" in warning["what"]


def test_the_distance_is_the_maximum_mean_discrepancy_in_units_of_the_offline_states():
    """Against a double loop; other units of the states change nothing."""
    rng = np.random.default_rng(0)
    online, offline = rng.normal(0.5, 1.0, (40, 2)), rng.normal(0.0, 1.0, (60, 2))
    found = []
    for scale in (np.ones(2), np.array([100.0, 0.01])):
        here, there = (jnp.asarray(x * scale, jnp.float32) for x in (online, offline))
        found.append(float(distance_in(StateUnits.of(there, False), here, there)))
    white = [(x - offline.mean(axis=0)) / offline.std(axis=0) for x in (online, offline)]
    units = StateUnits.of(jnp.asarray(offline, jnp.float32), False)
    compared = [units(jnp.asarray(x, jnp.float32)) for x in (online, offline)]
    width = float(compared_bandwidth(*compared))
    kernel = [
        [np.mean([np.exp(-np.sum((x - y) ** 2) / 2 / width**2) for x in a for y in b]) for b in white] for a in white
    ]
    np.testing.assert_allclose(found, np.sqrt(kernel[0][0] + kernel[1][1] - 2 * kernel[0][1]), rtol=0.01)
