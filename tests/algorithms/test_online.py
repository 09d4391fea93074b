"""HyQ and BRIEE: the buffer, the tuples they learn from, planning, and learning against exact solutions."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.baselines import briee, hyq
from hyrlo.baselines.online import OnlineConfig, Tuples, add_tuples, create_buffer
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.keys import Keys
from hyrlo.core.networks import OptimisticQ
from hyrlo.core.policies import Greedy, Stack, Uniform
from hyrlo.data.transitions import TransitionDataset, Transitions
from hyrlo.runs.directory import MemoryRun
from hyrlo.theory.finite import FiniteMDP
from tests.algorithms import contract

HORIZON, STATES, ACTIONS = 3, 4, 3
KEY = jax.random.key(0)


def numbered(first, count, horizon=2, size=3):
    """Tuples whose rewards are first, first + 1, …"""
    rewards = jnp.broadcast_to(jnp.arange(first, first + count, dtype=jnp.float32), (horizon, count))
    states = jnp.zeros((horizon, count, size))
    return Tuples(states, jnp.zeros((horizon, count), jnp.int32), rewards, states, rewards < 0)


def test_a_full_buffer_forgets_the_oldest_tuples_and_keeps_the_offline_ones():
    step = Transitions(np.ones((2, 3)), np.zeros(2, int), np.array([-1.0, -2.0]), np.ones((2, 3)))
    buffer = create_buffer(2, 3, 4, TransitionDataset((step, step)))
    for first in (0, 2, 4):
        buffer = add_tuples(numbered(first, 2), buffer)
    assert buffer.begin == 2
    assert buffer.filled.tolist() == [4, 4]
    np.testing.assert_array_equal(buffer.rows.rewards[1], [-1, -2, 4, 5, 2, 3])


def test_rows_are_drawn_in_the_wanted_shares():
    rows = hyq.Rows(jnp.asarray(30), jnp.asarray(10), jnp.asarray(100))
    drawn = np.asarray(rows.draw(jax.random.key(0), 0.25, (40_000,)))
    online = drawn >= 100
    assert abs(online.mean() - 0.25) < 0.01
    assert set(drawn[online]) == set(range(100, 110))
    assert set(drawn[~online]) == set(range(30))


@pytest.mark.parametrize(("added", "newest"), [(50, range(30, 50)), (110, [*range(90, 100), *range(10)])])
def test_half_of_briee_s_rows_are_recent(added, newest):
    drawn = np.asarray(briee.draw(jax.random.key(1), jnp.asarray(added), 100, 20, (40_000,)))
    share = np.isin(drawn, list(newest)).mean()
    assert abs(share - (0.5 + 0.5 * 20 / min(added, 100))) < 0.01
    assert drawn.max() < min(added, 100)


def test_tuples_of_a_step_come_from_the_episodes_that_turned_uniform_there_and_one_step_before():
    own = jnp.arange(6.0).reshape(1, 6)  # three steps, two episodes each
    after = own + 100
    record = jnp.concatenate([own, after])
    arranged = briee.two_by_step(Tuples(record, record, record, record, record), 2).rewards
    np.testing.assert_array_equal(arranged, [[0, 1, 0, 1], [2, 3, 100, 101], [4, 5, 102, 103]])


def test_optimistic_q_is_ridge_regression_with_a_bonus():
    key = jax.random.key(0)
    states, actions = jax.random.normal(key, (50, 4)), jax.random.randint(key, (50,), 0, 3)
    targets, known = jnp.sin(states[:, 0]), jnp.arange(50) < 40
    q = OptimisticQ.create(key, 4, 3, 2, bonus=0.7, most=100.0)
    fitted = q.fitted(states, actions, targets, known)
    features = np.zeros((50, 3, 2))
    features[np.arange(50), np.asarray(actions)] = np.asarray(q.latents(states))
    phi = features.reshape(50, 6)
    gram = np.eye(6) + phi[:40].T @ phi[:40]
    weights = np.linalg.solve(gram, phi[:40].T @ np.asarray(targets)[:40])
    taken = phi @ weights + 0.7 * np.sqrt(np.einsum("ni,ij,nj->n", phi, np.linalg.inv(gram), phi))
    np.testing.assert_allclose(np.asarray(fitted(states))[np.arange(50), np.asarray(actions)], taken, atol=1e-4)
    assert float(eqx.tree_at(lambda q: q.most, fitted, jnp.asarray(0.5))(states).max()) == 0.5


TINY = briee.BrieeConfig(latents=1, rounds=1, updates=1, batch=4, hidden=4, bonus=0.5)


def test_briee_plans_with_the_bonus_to_explore_and_without_it_to_exploit():
    """One latent state, so that φ(s, a) is onehot(a): Q_h(a) = (Σ r + V) / (1 + n_a) + α / √(1 + n_a), and at most 10.

    No value follows the first tuple, which ends its episode.
    """
    actions = np.array([[0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 1, 1]])
    rewards = np.array([[1.0, 0.5, 0.0, 1.0, 0.5, 0.5], [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]])
    states = jnp.zeros((2, 6, 3))
    terminals = np.zeros((2, 6), bool)
    terminals[0, 0] = True
    tuples = Tuples(
        states, *(jnp.asarray(x) for x in (actions, rewards.astype(np.float32))), states, jnp.asarray(terminals)
    )
    q = OptimisticQ.create(jax.random.key(0), 3, 3, 1, bonus=1.0, most=10.0)
    found, _ = briee.improve(jax.random.key(1), Stack.repeat(Greedy(q), 2), tuples, jnp.asarray(6), TINY)
    for policy, bonus in zip(found, (1.0, 0.0), strict=True):
        value = 0.0
        for h in (1, 0):
            counts = 1 + np.bincount(actions[h], minlength=3)
            targets = rewards[h] + value * ~terminals[h]
            exact = np.bincount(actions[h], targets, minlength=3) / counts + bonus / np.sqrt(counts)
            np.testing.assert_allclose(policy[h].q(states[h, :1])[0], exact, rtol=1e-5)
            value = exact.max()
    assert int(found.exploring[1].act(KEY, states[1, :1], 1)[0]) == 2  # never tried
    assert int(found.best[1].act(KEY, states[1, :1], 1)[0]) == 1  # paid most


class Noted(JaxTraceModel):
    """Notes the bonus at every step of the policies that collect, and of those that are tried or evaluated."""

    def __init__(self, env, collecting=None, judged=None):
        super().__init__(env)
        self.collecting = [] if collecting is None else collecting
        self.judged = [] if judged is None else judged

    def record(self, key, policy, *args, **kwargs):
        self.collecting.append(bonuses(policy))
        return super().record(key, policy, *args, **kwargs)

    def rollout(self, key, policy, *args, **kwargs):
        self.judged.append(bonuses(policy))
        return super().rollout(key, policy, *args, **kwargs)

    def evaluation(self):
        return Noted(self.env, self.collecting, self.judged)


def bonuses(policy):
    is_q = lambda x: isinstance(x, OptimisticQ)  # noqa: E731
    (q,) = (x for x in jax.tree.leaves(policy, is_leaf=is_q) if is_q(x))
    return np.asarray(q.bonus).tolist()


def test_briee_collects_with_the_bonus_and_is_judged_without_it():
    model = Noted(FiniteMDP.random(3, HORIZON, STATES, ACTIONS))
    online = OnlineConfig(samples=4, iterations=3, trial_episodes=2)
    config = dataclasses.replace(TINY, online=online)
    policy = briee.briee(model, None, config, jax.random.key(0), MemoryRun(curve_episodes=2))
    assert model.collecting == [[0.5 * HORIZON] * HORIZON] * 3  # α in units of the horizon
    assert model.judged == [[0.0] * HORIZON] * 6  # trial and curve
    assert bonuses(policy) == [0.0] * HORIZON


def two_kinds(n=2000):
    """A step at which the sign of the first dimension of s decides that of the first dimension of s′; 1 action."""
    keys = jax.random.split(jax.random.key(5), 2)
    states = jax.random.normal(keys[0], (n, 4))
    following = jnp.sign(states[:, :1]) * jnp.eye(4)[0] + 0.1 * jax.random.normal(keys[1], (n, 4))
    return briee.RepresentationGame(states, jnp.ones((n, 1)), following, ridge=0.01)


def test_a_discriminator_widens_the_gap_and_the_features_close_it():
    game, config = two_kinds(), briee.BrieeConfig(hidden=16, batch=256, updates=200)
    keys, rows = Keys.of_seed(3), jnp.arange(2000)
    batches = jax.random.randint(jax.random.key(4), (config.updates, config.batch), 0, 2000)
    blind = jnp.zeros((4, 2))  # every state has the same features
    fresh = float(game.gap(*briee.accuse(keys, game, blind, batches[:0], config), blind, rows))
    network, rival = briee.accuse(keys, game, blind, batches, config)
    found = float(game.gap(network, rival, blind, rows))
    assert found > 3 * max(fresh, 0.0)
    assert found > 0.3  # f is bounded by 1, and two equal kinds differ by 2: at most 1
    outputs = briee.discriminate(network, game.next_states)
    encoder, start = 0.01 * jax.random.normal(keys.encoder, (4, 2)), briee.optimiser(config)
    learned, _, losses = briee.answer(game, encoder, start.init(encoder), outputs, batches, config)
    assert float(losses[-1]) < 0.5 * float(losses[0])
    assert float(game.gap(network, rival, learned, rows)) < 0.2 * found


def uniform_data(mdp, n=4000):
    """Canonical tuples of the uniform policy."""
    steps = tuple(range(HORIZON))
    batch = JaxTraceModel(mdp).record(jax.random.key(9), Uniform(ACTIONS), n, steps=steps)
    arrays = (batch.states, batch.actions, batch.rewards, batch.next_states)
    return TransitionDataset(tuple(Transitions(*(np.asarray(x[h]) for x in arrays)) for h in range(HORIZON)))


@pytest.mark.learning
@pytest.mark.parametrize("solver", ["projection", "sgd"])
def test_hyq_finds_the_exact_q_function(solver):
    mdp = FiniteMDP.random(3, HORIZON, STATES, ACTIONS)
    online = OnlineConfig(samples=100, iterations=3, trial_episodes=1)
    fit = hyq.ZeroPriorProjection(latents=STATES, restarts=4, updates=150, decay=0.0, ridge=0.1)
    config = (
        hyq.HyqProjectionConfig(batch=2000, fit=fit, online=online)
        if solver == "projection"
        else hyq.HyqSgdConfig(updates=1500, batch=256, learning_rate=0.01, latents=STATES, online=online)
    )
    policy = hyq.hyq(JaxTraceModel(mdp), uniform_data(mdp), config, jax.random.key(0), MemoryRun())
    learned = np.asarray([policy[h].q(jnp.eye(STATES)) for h in range(HORIZON)])
    exact = mdp.optimal_q()
    chosen = np.take_along_axis(exact, learned.argmax(axis=2)[..., None], axis=2)[..., 0]
    assert np.abs(learned - exact).max() < 0.12
    assert (exact.max(axis=2) - chosen).max() < 0.03


@pytest.mark.learning
def test_hyq_opens_the_lock():
    trained = hyrlo.train("hyq", hyrlo.make("lock", horizon=6), seed=0)
    assert trained.result["success_rate"] >= 0.97
    assert trained.result["episodes"] < 6 * 50 * 20


@pytest.mark.learning
def test_briee_opens_a_short_lock_without_data():
    config = hyrlo.config("briee")
    config = dataclasses.replace(config, online=dataclasses.replace(config.online, iterations=25))
    trained = hyrlo.train("briee", hyrlo.make("lock", horizon=3), config=config, seed=0)
    assert trained.result["success_rate"] >= 0.95  # uniform actions: 0.001


def test_hyq_wants_actions_and_rewards_and_briee_wants_nothing():
    world = hyrlo.make("lock", horizon=3)
    with pytest.raises(hyrlo.HyrloError, match="actions and rewards"):
        hyrlo.train("hyq", world, world.behaviour_data(episodes=20))
    with pytest.raises(hyrlo.HyrloError, match="world alone"):
        hyrlo.train("briee", world, world.behaviour_data(episodes=20))


def test_hyq_of_the_authors_keeps_one_optimiser_per_step():
    """Two iterations of regression: Adam counts the updates of both, and its moments are carried on."""
    config = hyq.HyqSgdConfig(updates=7, batch=8)
    lock = hyrlo.make("lock", horizon=2)
    data = lock.behaviour_transitions(seed=0, episodes=30)
    learner = hyq.create_learner(jax.random.key(0), lock.spec, config)
    buffer = create_buffer(2, lock.spec.observation_size, 10, data)
    rows = hyq.Rows(jnp.full(2, 30), jnp.zeros(2, int), jnp.full(2, 30))
    once, _ = hyq.sweep(jax.random.key(1), learner, buffer.rows, rows, config)
    twice, _ = hyq.sweep(jax.random.key(1), once, buffer.rows, rows, config)
    assert once.optimisers[0].count.tolist() == [7, 7]
    assert twice.optimisers[0].count.tolist() == [14, 14]


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["hyq", "hyq-paper", "briee"])
def test_a_resumed_run_plays_no_uncounted_episodes(algo, tmp_path, monkeypatch):
    collected, record = [], JaxTraceModel.record

    def spied(self, key, policy, episodes, *args, **kwargs):
        collected.append(episodes)
        return record(self, key, policy, episodes, *args, **kwargs)

    monkeypatch.setattr(JaxTraceModel, "record", spied)
    with pytest.raises(hyrlo.TrainingStopped):
        contract.train(algo, tmp_path, callbacks=[lambda line: line["iteration"] == 1])
    assert len(list((tmp_path / "checkpoint").glob("*rows*"))) == 2
    contract.train(algo, tmp_path, resume=True)
    assert collected == [10 * contract.HORIZON] * 3  # one collection in each of three iterations
    assert not list((tmp_path / "checkpoint").glob("*rows*"))
