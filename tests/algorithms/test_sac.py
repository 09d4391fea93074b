"""SAC and CPI-trace in practice: what is learned from, the actor's density, and learning on a world with a known optimum."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.backward import off_policy
from hyrlo.backward import sac as s
from hyrlo.backward.reward_units import RewardUnits
from hyrlo.baselines import rlpd
from hyrlo.core.access import Spec
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Policy, Softmax, SquashedGaussian
from hyrlo.core.replay import ReplayBuffer
from hyrlo.data.transitions import TransitionDataset, Transitions
from hyrlo.runs.directory import MemoryRun
from tests.batches import recorded
from tests.pointmass import PointMass

KEY = jax.random.key(0)
RAW = RewardUnits.raw()


def sizes(config):
    names = ("iterations", "steps", "episodes", "random_collections", "utd", "hidden", "batch", "replay", "check")
    return {name: getattr(config, name) for name in names}


def numbered_batch(horizon, n, ended=None):
    """Episodes whose reward at step h of episode i is 10 i + h."""
    rewards = jnp.arange(horizon)[:, None] + 10.0 * jnp.arange(n)
    states = rewards[..., None]
    return recorded(states, rewards.astype(int), states + 1, rewards, ended)


@pytest.mark.parametrize("ends_at_horizon", [False, True])
def test_what_comes_before_the_end_is_kept(ends_at_horizon):
    config = s.SacConfig(replay=20, ends_at_horizon=ends_at_horizon)
    ended = jnp.zeros((4, 2), bool).at[1:, 1].set(True)  # episode 1 ends with step 1
    replay = off_policy.remember(off_policy.empty_replay(Spec(4, 1, 100), config), numbered_batch(4, 2, ended), config)
    assert int(replay.added) == 6
    kept = jax.tree.map(lambda x: np.asarray(x[:6]), replay.rows)
    assert sorted(kept.rewards) == [0, 1, 2, 3, 10, 11]
    over = dict(zip(kept.rewards.tolist(), kept.ended.tolist(), strict=True))
    assert over == {
        0.0: False, 1.0: False, 2.0: False, 3.0: ends_at_horizon, 10.0: False, 11.0: True,
    }  # fmt: skip
    np.testing.assert_array_equal(kept.next_states, kept.states + 1)


def test_a_full_replay_forgets_the_oldest():
    config = s.SacConfig(replay=5)
    replay = off_policy.empty_replay(Spec(4, 1, 100), config)
    for _ in range(2):
        replay = off_policy.remember(replay, numbered_batch(4, 1), config)
    assert int(replay.added) == 8
    np.testing.assert_array_equal(replay.rows.rewards, [1, 2, 3, 3, 0])


class Constant(eqx.Module):
    """A network that gives mean 0.3 and (before its offset) log-std 0.5."""

    def __call__(self, x):
        return jnp.broadcast_to(jnp.array([0.3, 0.5]), (len(x), 2))


def test_the_actor_s_density_is_that_of_its_actions():
    actor = SquashedGaussian(Constant())
    actions, log_density = actor.sample(KEY, jnp.zeros((200_000, 1)))
    # The mean of 1 / density over the samples in an interval is its length.
    weights = np.exp(-np.asarray(log_density)) / len(actions)
    lengths, edges = np.histogram(np.asarray(actions[:, 0]), bins=10, range=(-0.9, 0.9), weights=weights)
    np.testing.assert_allclose(lengths, np.diff(edges), rtol=0.06)
    mean = s.deterministic(actor).act(KEY, jnp.zeros((3, 1)), 0)
    np.testing.assert_allclose(mean, np.tanh(0.3), atol=1e-6)


def test_the_density_of_given_actions_is_that_of_sampled_ones():
    actor = SquashedGaussian(Constant())
    states = jnp.zeros((1000, 1))
    actions, log_density = actor.sample(KEY, states)
    inside = np.abs(np.asarray(actions[:, 0])) < 0.95
    np.testing.assert_allclose(actor.log_density(states, actions)[inside], log_density[inside], atol=1e-3)
    assert np.isfinite(actor.log_density(states, jnp.ones((1000, 1)))).all()


def full_replay(spec, config, **fields):
    """A replay buffer of 8 transitions with these fields; the two actions alternate."""
    rows = off_policy.empty_replay(spec, config).rows._replace(actions=jnp.arange(8) % 2, **fields)
    return ReplayBuffer(rows, jnp.asarray(8))


@pytest.mark.parametrize("ended", [False, True])
def test_critics_learn_the_reward_and_what_follows_unless_the_episode_ended(ended):
    """One state that leads to itself and pays 1: 1 / (1 − γ), or 1 if that is the end."""
    spec, config = Spec(1, 2, 2), s.SacConfig(hidden=16, gamma=0.5, batch=8, tau=0.1, replay=8)
    full = full_replay(spec, config, rewards=jnp.ones(8), ended=jnp.full(8, ended))
    agent = s.create_agent(KEY, spec, full, RAW, config)
    agent, _ = s.improve(KEY, agent, full, None, RAW, jnp.asarray(1500), *2 * (jnp.asarray(3e-3),), spec, config)
    expected = 1.0 if ended else 2.0
    np.testing.assert_allclose(s.q_values(agent.critics.params, jnp.zeros((1, 2)))[:, 0], expected, atol=0.05)


def one_state(reward, config, state=0.0):
    """Transitions of one state that pay this and end; two actions."""
    spec = Spec(1, 1, 2)
    rewards, states = jnp.full(8, reward), jnp.full((8, 1), state)
    return spec, full_replay(spec, config, rewards=rewards, ended=jnp.ones(8, bool), states=states)


@pytest.mark.slow
def test_half_of_a_batch_is_offline():
    """Online a state pays 0, offline it pays 1: critics learn the mean of what they are shown."""
    config = s.SacConfig(hidden=16, batch=64, replay=8, num_qs=3, num_min_qs=2)
    (spec, online), (_, offline) = one_state(0.0, config), one_state(1.0, config)
    agent = s.create_agent(KEY, spec, online, RAW, config)
    agent, _ = s.improve(KEY, agent, online, offline, RAW, jnp.asarray(1500), *2 * (jnp.asarray(1e-3),), spec, config)
    np.testing.assert_allclose(s.q_values(agent.critics.params, jnp.zeros((1, 1)))[:, 0], 0.5, atol=0.08)


def test_the_target_is_the_least_of_a_random_subset():
    config = s.SacConfig(num_qs=5, num_min_qs=2)
    critics = {"q": jnp.arange(5.0)}
    chosen = np.array([s.random_subset(jax.random.key(i), critics, config)["q"] for i in range(400)])
    assert (chosen[:, 0] != chosen[:, 1]).all()
    np.testing.assert_allclose(np.bincount(chosen.astype(int).ravel(), minlength=5) / 800, 0.2, atol=0.05)


class Offset(eqx.Module):
    """A critic with the same value `q` everywhere: a column for each discrete action, or one for action vectors."""

    q: jax.Array

    def __call__(self, x):
        return jnp.broadcast_to(self.q, (len(x), len(self.q)))


def agent_with_targets(q, actor=None, log_alpha=0.0):
    """Target critics with these values (critics by actions); the critics that are trained say something else."""
    targets = Offset(jnp.asarray(q, float))
    actor = Softmax(Offset(jnp.log(jnp.array([0.25, 0.75])))) if actor is None else actor
    other = s.TrainState.create(Offset(targets.q + 100.0))
    return s.SacAgent(s.TrainState.create(actor), actor, other, targets, s.TrainState.create(jnp.asarray(log_alpha)))


THREE = s.SacBatch(
    jnp.zeros((3, 1)),
    jnp.array([0, 1, 0]),
    jnp.array([1.0, 2.0, 3.0]),
    jnp.zeros((3, 1)),
    jnp.array([False, False, True]),
)


def test_the_target_is_the_reward_and_the_least_value_of_what_follows():
    """π = (¼, ¾) and Q = (8, 4), (2, 6): the least are (2, 4), worth 3.5. The last episode ended."""
    config = s.SacConfig()
    agent = agent_with_targets([[8.0, 4.0], [2.0, 6.0]])
    found = s.td_target(KEY, KEY, agent, THREE, 0.5, config)
    np.testing.assert_allclose(found, [1 + 0.5 * 3.5, 2 + 0.5 * 3.5, 3], rtol=1e-6)


def test_entropy_is_part_of_the_target_only_if_asked():
    config = s.SacConfig(entropy_in_backup=True)
    agent = agent_with_targets([[2.0, 2.0], [4.0, 4.0]], log_alpha=np.log(3.0))
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    found = s.td_target(KEY, KEY, agent, THREE, 0.5, config)
    np.testing.assert_allclose(found, [1 + 0.5 * (2 + 3 * entropy), 2 + 0.5 * (2 + 3 * entropy), 3], rtol=1e-5)
    without = s.td_target(KEY, KEY, agent, THREE, 0.5, s.SacConfig())
    np.testing.assert_allclose(without, [2, 3, 3], rtol=1e-6)


def test_the_target_of_action_vectors_is_the_least_of_the_critics_too():
    actor = SquashedGaussian(Constant())
    agent = agent_with_targets([[7.0], [5.0], [6.0]], actor, log_alpha=np.log(2.0))
    batch = THREE._replace(actions=jnp.zeros((3, 1)))
    found = s.td_target(KEY, KEY, agent, batch, 0.5, s.SacConfig(num_qs=3))
    np.testing.assert_allclose(found, [3.5, 4.5, 3], rtol=1e-6)
    soft = s.td_target(KEY, KEY, agent, batch, 0.5, s.SacConfig(num_qs=3, entropy_in_backup=True))
    log_pi = np.asarray(actor.sample(KEY, batch.next_states)[1])
    np.testing.assert_allclose(soft, [3.5 - log_pi[0], 4.5 - log_pi[1], 3], rtol=1e-5)


def test_the_target_takes_the_least_of_each_random_subset():
    """Two of five critics with the values 0 … 4: k is the least of 4 − k of the 10 pairs."""
    config = s.SacConfig(num_qs=5, num_min_qs=2)
    agent = agent_with_targets(jnp.arange(5.0)[:, None].repeat(2, axis=1))
    batch = THREE._replace(rewards=jnp.zeros(3), ended=jnp.zeros(3, bool))
    keys = jax.random.split(KEY, 2000)
    found = jax.vmap(lambda key: s.td_target(KEY, key, agent, batch, 1.0, config))(keys)
    np.testing.assert_array_equal(found, found[:, :1].repeat(3, axis=1))  # one subset for the whole batch
    shares = np.bincount(np.rint(found[:, 0]).astype(int), minlength=5) / len(keys)
    np.testing.assert_allclose(shares, [0.4, 0.3, 0.2, 0.1, 0.0], atol=0.045)


def test_actor_and_temperature_wait_for_their_turn():
    config = s.SacConfig(hidden=16, batch=8, replay=8, actor_every=3)
    spec, full = one_state(0.0, config)
    low = RewardUnits(jnp.asarray(-7.0), jnp.ones((), bool), jnp.asarray(-7.0), jnp.asarray(13.0))
    agent = s.create_agent(KEY, spec, full, low, config)
    np.testing.assert_allclose(s.q_values(agent.critics.params, jnp.zeros((1, 1))), -7.0, atol=1.5)
    counts = []
    for updates in (1, 3, 4):
        after, _ = s.improve(KEY, agent, full, None, RAW, jnp.asarray(updates), *2 * (jnp.asarray(1e-3),), spec, config)
        counts.append([int(x.optimiser[0].count) for x in (after.actor, after.critics, after.log_alpha)])
    assert counts == [[1, 1, 1], [1, 3, 1], [2, 4, 2]]


def test_the_temperature_rises_where_the_entropy_is_below_its_target():
    before = s.TrainState.create(jnp.zeros(()))
    for entropy, sign in ((-1.0, 1), (3.0, -1)):
        after = s.update_temperature(before, jnp.asarray(entropy), 1.0, jnp.asarray(0.01))
        assert np.sign(float(after.params)) == sign


def test_targets_move_slowly_towards_the_critics():
    spec = Spec(3, 2, actions=2)
    agent = s.create_agent(KEY, spec, off_policy.empty_replay(spec, SMALL), RAW, SMALL)
    moved = jax.tree.map(lambda x: x + 1.0, agent.critics.params)
    agent = eqx.tree_at(lambda a: a.critics.params, agent, moved)
    after = s.update_targets(agent, SMALL).targets
    change = jax.tree.map(lambda new, old: new - old, after, agent.targets)
    for leaf in jax.tree.leaves(change):
        np.testing.assert_allclose(leaf, SMALL.tau, atol=1e-6)


def test_the_actor_takes_over_at_any_step_and_as_often_as_asked_at_once():
    at = np.asarray(off_policy.switch_steps(KEY, 20_000, 10, 0.3))
    np.testing.assert_allclose(np.bincount(at, minlength=10) / len(at), [0.37] + [0.07] * 9, atol=0.015)
    assert not off_policy.switch_steps(KEY, 50, 10, 1.0).any()


SMALL = s.SacConfig(
    iterations=8, steps=16 * 36 * 5, episodes=16, random_collections=4, utd=1.0, actor_every=1, hidden=32,
    learning_rate=3e-3, average=0.99, check=20,
)  # fmt: skip


@pytest.mark.learning
@pytest.mark.parametrize("discrete", [False, True])
def test_sac_drives_the_point_to_its_goal(discrete):
    """From 0 to 1 in two steps and stay: −0.5 at best; uniform actions: about −5."""
    model = JaxTraceModel(PointMass(discrete=discrete))
    policy = off_policy.sac(model, None, SMALL, KEY, MemoryRun(curve_episodes=2))
    assert float(model.evaluation().rollout(KEY, policy, 500).returns.mean()) > -1.2
    assert model.ledger.episodes == 16 * (4 + 8 * 4) + SMALL.race_episodes


class Right(Policy):
    def act(self, key, observations, h):
        return jnp.ones((len(observations), 1))


class Sparse(PointMass):
    """The goal is 8 steps away, and only near it is anything paid: random pushes do not come there."""

    def step(self, key, latent, actions, h):
        latent, _, _ = super().step(key, latent, actions, h)
        reward = (jnp.abs(latent[:, 0] - self.goal) < 0.3).astype(float)
        return latent, reward, reward > 0


@pytest.mark.learning
def test_a_roll_in_or_offline_tuples_show_what_random_actions_do_not_find():
    env = Sparse(horizon=12, goal=4.0)
    batch = JaxTraceModel(env).record(KEY, Right(), 200, steps=tuple(range(12)))
    steps = zip(batch.states, batch.actions, batch.rewards, batch.next_states, strict=True)
    tuples = TransitionDataset(tuple(Transitions(*map(np.asarray, step)) for step in steps))
    online = dataclasses.replace(SMALL, steps=16 * 36 * 12)
    small = dataclasses.replace(
        rlpd.PRESETS["fast"],
        **sizes(dataclasses.replace(online, steps=2 * online.steps)),
        num_qs=6,
        learning_rate=3e-3,
        temperature=0.1,
        average=0.99,
    )
    learned, with_tuples, alone = (
        learn(JaxTraceModel(env), source, config, KEY, MemoryRun(curve_episodes=2))
        for learn, source, config in (
            (off_policy.cpi_trace, Right(), s.RollInSacConfig(**vars(online), from_start=0.0)),
            (rlpd.rlpd, tuples, small),
            (off_policy.sac, None, online),
        )
    )
    policies = (learned, with_tuples, Right(), alone)
    returns = [float(JaxTraceModel(env).rollout(KEY, p, 200).returns.mean()) for p in policies]
    assert returns[0] > returns[2] + 1  # the roll-in runs past the goal; what is learned stays
    assert returns[1] > returns[2] + 1
    assert returns[3] < 1


def linear_actions(spec, config, n=512):
    """A replay buffer in which actions follow from the state: 0.6 s and −0.4, or 1 where s > 0."""
    states = jax.random.uniform(KEY, (n, 1), minval=-1.0, maxval=1.0)
    vectors = jnp.concatenate([0.6 * states, jnp.full_like(states, -0.4)], axis=1)
    actions = vectors if spec.action_size else (states[:, 0] > 0).astype(int)
    rows = s.SacBatch(states, actions, jnp.zeros(n), states, jnp.zeros(n, bool))
    return off_policy.empty_replay(spec, config).add(rows, jnp.ones(n, bool))


@pytest.mark.slow
@pytest.mark.parametrize("spec", [Spec(1, 1, 0, 2), Spec(1, 1, 2)])
def test_a_clone_does_what_was_done(spec):
    config = s.SacConfig(replay=512, hidden=16)
    replay = linear_actions(spec, config)
    agent = s.clone(KEY, s.create_agent(KEY, spec, replay, RAW, config), replay, config)
    states = jnp.array([[-0.5], [0.5]])
    for actor in (agent.actor.params, agent.average):
        done = s.deterministic(actor).act(KEY, states, 0)
        expected = [[-0.3, -0.4], [0.3, -0.4]] if spec.action_size else [0, 1]
        np.testing.assert_allclose(done, expected, atol=0.05)


def test_critics_can_learn_while_the_actor_waits():
    spec, config = Spec(1, 1, 0, 2), s.SacConfig(replay=512, hidden=16)
    replay = linear_actions(spec, config)
    agent = s.create_agent(KEY, spec, replay, RAW, config)
    rates = jnp.asarray(1e-3), jnp.asarray(0.0)
    after, _ = s.improve(KEY, agent, replay, None, RAW, jnp.asarray(3), *rates, spec, config)
    assert eqx.tree_equal(after.actor.params, agent.actor.params)
    assert eqx.tree_equal(after.log_alpha.params, agent.log_alpha.params)
    assert not eqx.tree_equal(after.critics.params, agent.critics.params)


def test_the_temperature_has_a_learning_rate_of_its_own():
    """The first step of Adam is the learning rate, whatever the gradient."""
    spec, config = Spec(1, 1, 0, 2), s.SacConfig(replay=512, hidden=16, temperature_rate=7.0)
    replay = linear_actions(spec, config)
    agent = s.create_agent(KEY, spec, replay, RAW, config)
    rates = [jnp.asarray(1e-3)] * 2
    after, _ = s.improve(KEY, agent, replay, None, RAW, jnp.asarray(1), *rates, spec, config)
    np.testing.assert_allclose(abs(after.log_alpha.params - agent.log_alpha.params), 7e-3, rtol=1e-3)


def learner_from(roll_in, **options):
    model = JaxTraceModel(PointMass(horizon=6))
    config = s.RollInSacConfig(episodes=8, hidden=16, replay=500, **options)
    return off_policy.OffPolicyLearner(model, off_policy.LearningSource.of(roll_in, config), config, Keys(KEY))


@pytest.mark.slow
def test_at_first_the_roll_in_plays_alone_and_the_actor_becomes_its_clone():
    learner = learner_from(Right(), clone=3)
    now = learner.begin(learner.start())
    assert learner.model.ledger.episodes == 3 * 8
    np.testing.assert_array_equal(now.replay.rows.actions[: 3 * 8 * 6], 1.0)
    states = now.replay.rows.states[:50]
    assert float(learner.policy(now.first).act(KEY, states, 0).min()) > 0.9
    values = s.q_values(now.agent.critics.params, states, jnp.ones((50, 1)))
    fresh = s.create_agent(learner.keys.create, learner.spec, now.replay, now.units, learner.config)
    assert float(jnp.abs(values - s.q_values(fresh.critics.params, states, jnp.ones((50, 1)))).max()) > 0.1


def test_an_actor_that_is_ahead_of_the_roll_in_plays_more_episodes_from_the_start():
    learner = learner_from(Right(), clone=1, from_start=0.0, from_start_ahead=1.0)
    now = learner.begin(learner.start())
    roll_in = JaxTraceModel(PointMass(horizon=6)).rollout(KEY, Right(), 500).returns.mean()
    assert float(now.to_beat) == pytest.approx(float(roll_in), abs=0.4)
    keys = Keys(KEY).at(0)
    _, behind = learner.collect(keys, now.agent.actor.params, now)
    _, ahead = learner.collect(keys, now.agent.actor.params, now._replace(ahead=jnp.asarray(True)))
    assert len(behind) < 8
    assert len(ahead) == 8


def test_a_share_of_the_episodes_has_no_noise():
    learner = learner_from(Right(), without_noise=0.25)
    actor, states = SquashedGaussian(Constant()), jnp.zeros((64, 1))
    actions = learner.exploring(actor).rows(0, 64).act(KEY, states, 0)
    plain = int((actions[:, 0] == s.deterministic(actor).act(KEY, states, 0)[:, 0]).sum())
    assert abs(plain - 16) <= 1
