"""`hyrlo.load(DIR)` and `run.agent`: act in the environment's own spaces, NumPy in and out."""

import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten

import hyrlo
from hyrlo.core.networks import MLP, LatentQ
from hyrlo.core.policies import (
    Blend,
    Gaussian,
    Greedy,
    LatentSoftmax,
    LatentTable,
    Mixture,
    MostLikely,
    Policy,
    Softmax,
    SquashedGaussian,
    Stack,
    Switch,
    Uniform,
    UniformBox,
    switch,
)
from hyrlo.runs.agent import Agent
from hyrlo.runs.directory import FORMAT, MemoryRun, RunDirectory
from hyrlo.runs.learned_reset import Actor
from hyrlo.runs.loading import evaluate_run
from tests.gym_envs import Spaces, Walk
from tests.test_render import constant, save_run

KEY = jax.random.key(0)
HORIZON = 4


def world_of(observations, actions):
    return hyrlo.make(lambda: Spaces(observations, actions), HORIZON, num_envs=2)


def policy_of(spec):
    size = spec.observation_size
    if spec.action_size:
        return Gaussian(MLP.create(KEY, (size, 5, spec.action_size)), jnp.zeros(spec.action_size))
    return Softmax(MLP.create(KEY, (size, 5, spec.actions)))


def by_step(actions=3, inputs=3):
    """Action h at step h."""
    return Stack(
        jax.tree.map(lambda *x: jnp.stack(x), *(constant(h % actions, actions, inputs) for h in range(HORIZON)))
    )


def walk_agent(policy, **kw):
    return Agent(policy, hyrlo.make(Walk, HORIZON, num_envs=2), **kw)


def message(action, *args, **kw):
    with pytest.raises(hyrlo.HyrloError) as error:
        action(*args, **kw)
    assert "\n" not in str(error.value)
    return str(error.value)


# Spaces


@pytest.mark.parametrize("observations", ["dict", "tuple", "discrete", "picture"])
@pytest.mark.parametrize("actions", ["discrete", "box", "whole", "many"])
def test_observations_and_actions_are_the_environment_s_own(observations, actions):
    """By hand: Gymnasium's flatten, the flag, the policy, and the action of the adapter."""
    world = world_of(observations, actions)
    agent = Agent(policy_of(world.spec), world)
    space = world.env.env.observation_space
    space.seed(0)
    samples = [space.sample() for _ in range(6)]
    flat = np.stack([[*flatten(space, sample), 0] for sample in samples]).astype(np.float32)
    expected = [world.env.convert(action) for action in np.asarray(agent.policy.mode(flat, 0))]
    single = [agent.predict(sample) for sample in samples]
    assert all(agent.action_space.contains(action) for action in single)
    assert (actions == "discrete") == all(type(action) is int for action in single)
    np.testing.assert_allclose(np.stack(single), np.stack(expected), atol=1e-6)
    batch = agent.predict(gymnasium.vector.utils.concatenate(space, samples, empty(space, 6)))
    np.testing.assert_allclose(batch, np.stack(expected), atol=1e-6)
    assert batch.dtype == np.asarray(expected).dtype
    assert len(np.unique(batch, axis=0)) > 1 or actions == "whole"


def empty(space, n):
    return gymnasium.vector.utils.create_empty_array(space, n)


def test_what_does_not_fit_is_one_clear_line():
    agent = walk_agent(constant(1, 3, 3))
    assert "has shape (3,), not (2,); a batch has shape (n, 2)" in message(agent.predict, np.zeros(3))
    assert "observation 1, dimension 0 is nan" in message(agent.predict, np.array([[0, 0], [np.nan, 0]]))
    assert "empty batch" in message(agent.predict, np.zeros((0, 2)))
    dicts = Agent(policy_of(world_of("dict", "discrete").spec), world_of("dict", "discrete"))
    assert "'b'" in message(dicts.predict, {"a": 1})
    numbers = Agent(policy_of(world_of("discrete", "discrete").spec), world_of("discrete", "discrete"))
    assert "1 is not in its space" in message(numbers.predict, 1)  # the space starts at 2
    assert "other states or actions" in message(walk_agent, constant(1, 3, 7))
    assert "other states or actions" in message(walk_agent, UniformBox(2))
    assert "has 3 actions, the policy chose 4" in message(walk_agent(constant(4, 5, 3)).predict, np.zeros(2))


# Steps


def test_the_loop_counts_the_steps_of_the_episode():
    agent, env = walk_agent(by_step()), Walk(ends=HORIZON)
    for _ in range(2):
        observation, _ = env.reset(seed=0)
        agent.reset()
        over, actions = False, []
        while not over:
            actions.append(agent.predict(observation))
            observation, _, terminated, truncated, _ = env.step(actions[-1])
            over = terminated or truncated
        assert actions == [0, 1, 2, 0]
    assert "call agent.reset() when an episode begins" in message(agent.predict, observation)


def test_a_given_step_leaves_the_count_alone():
    agent, state = walk_agent(by_step()), np.zeros(2)
    assert [agent.predict(state, step=2), agent.predict(state), agent.predict(state)] == [2, 0, 1]
    assert agent.predict(np.zeros((3, 2)), step=1).tolist() == [1, 1, 1]
    assert agent.predict(np.zeros((3, 2)), step=np.array([2, 0, 1])).tolist() == [2, 0, 1]
    assert agent.predict(state) == 2
    assert "give step with a batch" in message(agent.predict, np.zeros((3, 2)))
    assert "step is 4" in message(agent.predict, state, step=4)
    assert "step is -1" in message(agent.predict, state, step=-1)
    assert "give a whole number" in message(agent.predict, state, step=1.5)
    assert "one for each of the 3" in message(agent.predict, np.zeros((3, 2)), step=[0, 1])


def test_each_row_has_its_own_step():
    networks = (Softmax(MLP.create(jax.random.key(h), (3, 8, 3))) for h in range(HORIZON))
    agent = walk_agent(Stack(jax.tree.map(lambda *x: jnp.stack(x), *networks)))
    states, steps = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % HORIZON
    expected = [agent.predict(state, step=h) for state, h in zip(states, steps, strict=True)]
    assert agent.predict(states, step=steps).tolist() == expected
    assert len({tuple(agent.predict(states, step=h)) for h in range(HORIZON)}) > 1


def test_stationary_policies_need_no_step():
    agent = walk_agent(constant(2, 3, 3))
    assert not agent.needs_step
    assert [agent.predict(np.zeros(2)) for _ in range(HORIZON + 2)] == [2] * (HORIZON + 2)
    steps = agent.step
    assert agent.predict(np.zeros((2, 2))).tolist() == [2, 2]
    assert agent.step == steps  # a batch is no step of the episode
    assert walk_agent(switch(constant(1, 3, 3), at=2, to=constant(2, 3, 3))).needs_step


# Chance


def test_drawn_actions_are_those_of_the_policy_and_repeat_with_the_seed():
    policy = Softmax(MLP((jnp.zeros((3, 3)),), (jnp.log(jnp.array([0.6, 0.3, 0.1])),)))
    draws = lambda agent, n=300: [agent.predict(np.zeros(2), deterministic=False) for _ in range(n)]  # noqa: E731
    agent = walk_agent(policy, seed=3)
    first = draws(agent)
    shares = np.bincount(first, minlength=3) / 300
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.1)
    assert draws(agent) != first
    agent.reset()
    assert draws(agent) != first
    agent.reset(seed=3)
    assert draws(agent) == first
    assert draws(walk_agent(policy, seed=3)) == first
    assert draws(walk_agent(policy, seed=4)) != first
    batch = walk_agent(policy).predict(np.zeros((600, 2)), deterministic=False)
    np.testing.assert_allclose(np.bincount(batch) / 600, [0.6, 0.3, 0.1], atol=0.1)


def test_a_mixture_keeps_to_one_policy_for_an_episode():
    agent = walk_agent(Mixture(constant(0, 3, 3), constant(2, 3, 3), jnp.asarray(0.3)))
    assert not agent.needs_step
    firsts = []
    for _ in range(100):
        agent.reset()
        actions = {agent.predict(np.zeros(2), deterministic=False) for _ in range(3)}
        assert len(actions) == 1
        firsts += actions
    assert np.mean(np.asarray(firsts) == 2) == pytest.approx(0.3, abs=0.05)
    batch = agent.predict(np.zeros((100, 2)), deterministic=False)
    assert np.mean(batch == 2) == pytest.approx(0.3, abs=0.05)
    assert agent.predict(np.zeros(2)) == 0  # of the larger share


def logits_policies():
    """Policies of three actions whose most likely one changes with the state."""
    table = jnp.array([[0.2, 0.7, 0.1], [0.6, 0.1, 0.3]])
    encoder = jnp.array([[4.0, -4.0], [0.0, 0.0], [0.0, 0.0], [0.3, 0.0]])
    greedy = jax.tree.map(lambda *x: jnp.stack(x), *(Greedy(MLP.create(jax.random.key(s), (3, 3))) for s in range(4)))
    yield Softmax(MLP.create(KEY, (3, 4, 3)))
    yield LatentSoftmax(encoder, MLP((3 * jnp.log(table),), (jnp.zeros(3),)))
    yield LatentTable(encoder, table)
    yield Blend(greedy, jnp.array([0.5, 0.2, 0.15, 0.0]), 3)


@pytest.mark.parametrize("policy", logits_policies(), ids=lambda p: type(p).__name__)
def test_the_most_likely_action_is_the_one_drawn_most_often(policy):
    states = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    draws = jax.vmap(lambda key: policy.act(key, states, 0))(jax.random.split(KEY, 2000))
    counts = np.stack([np.bincount(column, minlength=3) for column in np.asarray(draws).T])
    ordered = np.sort(counts, axis=1)
    clear = ordered[:, -1] > 1.2 * ordered[:, -2]
    assert clear.sum() >= 3
    np.testing.assert_array_equal(policy.mode(states, 0)[clear], counts.argmax(axis=1)[clear])
    np.testing.assert_array_equal(MostLikely(policy).act(KEY, states, 0), policy.mode(states, 0))


def test_without_noise_vectors_are_their_own_mode():
    states = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for noisy, quiet in (
        (Gaussian(MLP.create(KEY, (3, 2)), jnp.zeros(2)), Gaussian(MLP.create(KEY, (3, 2)), jnp.zeros(2), noise=False)),
        (SquashedGaussian(MLP.create(KEY, (3, 4))), SquashedGaussian(MLP.create(KEY, (3, 4)), noise=False)),
    ):
        np.testing.assert_array_equal(noisy.mode(states, 0), quiet.act(KEY, states, 0))
    assert not np.any(UniformBox(2).mode(states, 0))
    assert not np.any(Uniform(3).mode(states, 0))


def test_each_row_may_switch_at_its_own_step():
    policy = Switch(constant(0, 3, 3), constant(2, 3, 3), jnp.array([1, 3]))
    assert policy.mode(np.zeros((2, 3)), 2).tolist() == [2, 0]


class Third(Policy):
    """A policy of a user's own, which says nothing of its mode."""

    def act(self, key, observations, h):
        return jax.random.randint(key, observations.shape[:1], 0, 3)


def test_a_policy_of_a_user_s_own_acts_without_chance_too():
    agent = walk_agent(Third())
    assert agent.needs_step  # it may
    assert len({agent.predict(np.zeros(2), step=h) for h in (1, 1, 2)}) == 1
    assert len({agent.predict(np.zeros(2), step=1, deterministic=False) for _ in range(20)}) > 1


# Runs


def test_an_agent_is_loaded_from_a_run(tmp_path):
    run = save_run(tmp_path / "run", "gym:CartPole-v1", 30, constant(1, 2, 5), num_envs=2)
    agent = hyrlo.load(run)
    assert agent.predict(np.zeros(4)) == 1
    assert agent.evaluate(5, seed=2) == evaluate_run(run, 5, seed=2)
    assert agent.evaluate(5, deterministic=True).return_mean == agent.evaluate(5).return_mean
    assert agent.roll_in.predict(np.zeros(4)) == 1  # a `fail` run is its own roll-in
    assert "episodes is 0" in message(agent.evaluate, 0)


def test_evaluation_can_leave_chance_out(tmp_path):
    right = Softmax(MLP((jnp.zeros((3, 3)),), (jnp.array([0.0, 0.0, 0.5]),)))
    agent = walk_agent(right)
    drawn, likely = (agent.world.trace_model().record(KEY, p, 3, 3).states for p in (right, MostLikely(right)))
    assert not np.allclose(drawn[:, 0] - drawn[0, 0], likely[:, 0] - likely[0, 0])
    assert agent.evaluate(3, deterministic=True).return_mean == 10


def test_the_gif_is_that_of_the_command(tmp_path):
    pytest.importorskip("pygame")
    run = save_run(tmp_path / "run", "gym:MountainCar-v0", 3, constant(2, 3, 3))
    assert hyrlo.load(run).render().file == run / "episode.gif"
    assert hyrlo.load(run).render(tmp_path / "other.gif", seed=1).frames == 4
    assert "ends with .gif" in message(hyrlo.load(run).render, tmp_path / "x.mp4")


@pytest.mark.parametrize("given", [Walk, Walk()], ids=["function", "object"])
def test_a_run_of_an_object_is_loaded_with_it(given, tmp_path):
    world = hyrlo.make(given, HORIZON)
    run = save_run(tmp_path / "run", world.name, HORIZON, by_step(), **world.options)
    assert "pass the world" in message(hyrlo.load, run)
    for one in (given, world):
        agent = hyrlo.load(run, world=one)
        assert agent.world.spec.horizon == HORIZON
        assert agent.predict(np.zeros(2), step=2) == 2


def test_what_is_no_single_finished_run_is_one_line(tmp_path):
    save_run(tmp_path / "many" / "seed-3", "gym:CartPole-v1", 3, constant(1, 2, 5))
    assert "seed-3" in message(hyrlo.load, tmp_path / "many")
    unfinished = save_run(tmp_path / "run", "gym:CartPole-v1", 3, constant(1, 2, 5))
    (unfinished / "policy.json").unlink()
    assert "has not finished" in message(hyrlo.load, unfinished)
    assert "no such file" in message(hyrlo.load, tmp_path / "nothing")


def two_passes(model, source, config, key, run):
    """A `foobar` that learns nothing: the roll-in is action 1, the policy action 2."""
    run.keep_policy("roll_in", constant(1, 10, model.spec.observation_size))
    for _ in (phase := run.phase("backward", range(1), (), model)):
        phase.done(0, (), evaluate=model.spec.uniform())
    return constant(2, 10, model.spec.observation_size)


@pytest.fixture
def quick_foobar(monkeypatch):
    monkeypatch.setattr("hyrlo.foobar.foobar", two_passes)


@pytest.mark.slow
def test_a_trained_run_has_an_agent_with_its_roll_in(quick_foobar, tmp_path):
    lock = hyrlo.make("lock", 3)
    state = np.zeros(lock.spec.observation_size)
    options = {"curve_episodes": 2, "eval_episodes": 2}
    memory = hyrlo.train("foobar", lock, **options)
    kept = hyrlo.train("foobar", lock, out=tmp_path / "run", **options)
    again = hyrlo.train("foobar", lock, out=tmp_path / "run", resume=True, **options)
    for agent in (memory.agent, kept.agent, again.agent, hyrlo.load(tmp_path / "run")):
        assert (agent.predict(state), agent.roll_in.predict(state)) == (2, 1)
        assert agent.roll_in.roll_in.predict(state) == 1
    assert memory.agent is memory.agent  # it counts steps
    assert hyrlo.load(tmp_path / "run").about["algo"] == "foobar"


def test_a_run_without_roll_in_says_so():
    line = message(lambda: walk_agent(constant(0, 3, 3), about={"algo": "sac"}).roll_in)
    assert line == "sac: the run keeps no roll-in; runs of foobar and fail do"


def test_runs_keep_policies_by_name(tmp_path):
    config = {"format": FORMAT, "algo": "fail", "env": "lock", "env_options": {}, "horizon": 3, "seed": 0}
    for run in (MemoryRun(), RunDirectory(tmp_path / "run", config)):
        assert run.kept_policy("roll_in") is None
        run.keep_policy("roll_in", Uniform(4))
        assert run.kept_policy("roll_in") == Uniform(4)


# The lock: states without a flag


def test_the_offset_of_a_latent_state_is_not_taken_for_the_flag():
    """Encoders have one row more than states have dimensions; a state with a flag would fill it with zero."""
    lock = hyrlo.make("lock", 3)
    size = lock.spec.observation_size
    encoder = jnp.zeros((size + 1, 2)).at[-1, 1].set(20.0)  # latent state 1 by the offset alone
    policy = Greedy(LatentQ(encoder, jnp.zeros((2, 10)).at[0, 4].set(1.0).at[1, 7].set(1.0), jnp.zeros(())))
    assert Agent(policy, lock).predict(np.zeros(size)) == 7
    env = gymnasium.make("hyrlo/CombinationLock-v0", horizon=3)
    assert Actor(policy, env, size)(np.zeros(size), 0) == 7


def test_acting_takes_far_less_than_a_millisecond():
    agent = walk_agent(Softmax(MLP.create(KEY, (3, 64, 64, 3))))
    state, times = np.zeros(2), []
    for _ in range(300):
        begin = time.perf_counter()
        agent.predict(state)
        times.append(time.perf_counter() - begin)
    assert np.median(times) < 1e-3


def test_drawing_uses_the_seed_of_load(tmp_path):
    run = save_run(tmp_path / "run", "gym:CartPole-v1", 3, Uniform(2))
    draws = lambda agent: [agent.predict(np.zeros(4), deterministic=False) for _ in range(30)]  # noqa: E731
    assert draws(hyrlo.load(run, seed=1)) == draws(hyrlo.load(run, seed=1)) != draws(hyrlo.load(run, seed=2))
    assert "give a whole number" in message(hyrlo.load, run, seed=-1)
