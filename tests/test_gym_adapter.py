"""Gymnasium environments behind the access models: what algorithms see, what is counted, and what is said if it fails."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten

import hyrlo
from hyrlo.core.access import ResetModel, TraceModel, evaluate
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Mixture, Policy, Uniform, UniformBox, switch
from hyrlo.envs.gym.collect import collect_states
from hyrlo.envs.gym.model import GymTraceModel, episode_seeds
from tests.gym_envs import ACTIONS, OBSERVATIONS
from tests.locks import LOCK, always
from tests.locks import H as LOCK_H
from tests.walks import KEY, LOCK_ID, SPACES, WALK, Constant, every, message, same, walk

# What a roll-out returns


@pytest.mark.parametrize("steps", [None, 2, (0, 3), np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 4]])], ids=str)
def test_shapes_and_types_are_those_of_the_jax_model(steps):
    models = hyrlo.make(LOCK_ID, LOCK_H, num_envs=2).trace_model(), JaxTraceModel(LOCK)
    ours, theirs = (
        model.rollout(KEY, Uniform(10), 5) if steps is None else model.record(KEY, Uniform(10), 5, steps)
        for model in models
    )
    for name, x, y in zip(ours._fields, ours, theirs, strict=True):
        wide = name in ("states", "next_states")
        assert x.shape == (*y.shape[:-1], y.shape[-1] + 1) if wide else x.shape == y.shape, name
        assert x.dtype == y.dtype, name
        assert isinstance(x, jax.Array)


def test_the_models_satisfy_the_protocols():
    world = hyrlo.make("gym:CartPole-v1")
    trace, reset = world.trace_model(), world.reset_model()
    assert isinstance(trace, GymTraceModel)
    assert isinstance(trace, TraceModel)
    assert not isinstance(trace, ResetModel)
    assert isinstance(reset, ResetModel)
    assert not isinstance(reset.evaluation(), ResetModel)
    assert (world.spec.horizon, world.spec.observation_size, world.spec.actions, world.spec.ends) == (500, 5, 2, True)


def test_an_early_end_is_absorbing_and_agrees_with_a_loop_by_hand():
    """The same seeds and actions in plain Gymnasium give the same states, rewards, ends and counts."""
    horizon, n = 60, 7
    world = hyrlo.make("gym:CartPole-v1", horizon, num_envs=3)
    model = world.trace_model()
    batch = model.record(KEY, Uniform(2), n, steps=every(world))
    seeds, steps = episode_seeds(jax.random.split(KEY)[0], n), 0
    env = gymnasium.make("CartPole-v1")
    lengths = set()
    for row, seed in enumerate(seeds):
        states, rewards, ended = np.zeros((horizon + 1, 5), np.float32), np.zeros(horizon), np.ones(horizon, bool)
        states[:, -1] = 1
        states[0] = [*env.reset(seed=seed)[0], 0]
        for h in range(horizon):
            observation, rewards[h], ended[h], truncated, _ = env.step(int(batch.actions[h, row]))
            states[h + 1] = [*observation, 0]
            steps += 1
            assert not truncated
            if ended[h]:
                break
        lengths.add(h + 1)
        np.testing.assert_array_equal(batch.states[:, row], states[:-1])
        np.testing.assert_array_equal(batch.next_states[:, row], states[1:])
        np.testing.assert_array_equal(batch.rewards[:, row], rewards)
        np.testing.assert_array_equal(batch.ended[:, row], ended)
        np.testing.assert_allclose(batch.return_to_go[:, row], rewards[::-1].cumsum()[::-1])
        assert float(batch.returns[row]) == rewards.sum()
    assert len(lengths) > 3
    assert (model.ledger.episodes, model.ledger.steps) == (n, steps)
    assert batch.success is None


def test_the_state_an_episode_ends_with_has_flag_0_and_those_after_it_are_zeros_and_1():
    world = walk(ends=3)
    batch = world.trace_model().record(KEY, Uniform(3), 4, steps=every(world))
    np.testing.assert_array_equal(batch.states[:, 0, -1], [0, 0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(batch.states[4:, :, :-1], 0)
    np.testing.assert_array_equal(batch.states[:4, 0, 1], [0, 1, 2, 3])
    np.testing.assert_array_equal(batch.ended[:, 0], [False, False, True, True, True, True, True, True])
    np.testing.assert_array_equal(batch.rewards[:, 0], [1, 2, 3, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(batch.next_states[-1, :, -1], 1)


def test_states_agree_with_prepared_data_of_the_same_episodes():
    world = hyrlo.make("gym:CartPole-v1", 40, num_envs=4)
    data = collect_states(world, [], 12, seed=5)
    prepared = world.prepare(data)
    key = jax.random.fold_in(jax.random.fold_in(Keys.of_seed(5).data, 0), 0)
    batch = world.trace_model().record(key, world.spec.uniform(), 12, steps=every(world))
    for h in range(40):
        ours, theirs = np.asarray(batch.states[h]), prepared.at(h)
        np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])
    assert data.observation_size == 4


def test_time_that_runs_out_at_the_horizon_is_no_end_but_before_it_is():
    world = walk(5)
    batch = world.trace_model().record(KEY, Uniform(3), 3, steps=(3, 4))
    assert not batch.ended.any()
    assert not batch.next_states[-1, :, -1].any()
    assert walk(20).trace_model().record(KEY, Uniform(3), 2, steps=19).rewards.tolist() == [20, 20]  # registered: 8
    early = walk(5, cut=4).trace_model().record(KEY, Uniform(3), 3, steps=(2, 3, 4))
    np.testing.assert_array_equal(early.ended[:, 0], [False, True, True])
    at_the_end = walk(5, ends=5).trace_model().record(KEY, Uniform(3), 3, steps=4)
    assert at_the_end.ended.all()
    assert not at_the_end.next_states[:, -1].any()


def test_stop_plays_no_further():
    world = walk()
    model = world.trace_model()
    batch = model.record(KEY, Uniform(3), 5, steps=2, stop=3)
    assert batch.returns.tolist() == [6.0] * 5
    assert (model.ledger.episodes, model.ledger.steps) == (5, 15)
    whole = world.trace_model().record(KEY, Uniform(3), 5, steps=2)
    np.testing.assert_array_equal(whole.states, batch.states)
    np.testing.assert_array_equal(whole.next_states, batch.next_states)


@pytest.mark.parametrize("episodes", [1, 3, 4, 5, 9])
def test_partial_batches_count_only_their_episodes(episodes):
    model = walk(num_envs=4, ends=3).trace_model()
    batch = model.record(KEY, Uniform(3), episodes, steps=0)
    assert batch.states.shape == (episodes, 3)
    assert (model.ledger.episodes, model.ledger.steps) == (episodes, 3 * episodes)
    evaluate(model, Uniform(3), KEY, episodes)
    assert model.ledger.episodes == episodes


def test_ways_to_record_agree():
    world = hyrlo.make("gym:CartPole-v1", 30, num_envs=3)
    model, n = world.trace_model(), 8
    whole = model.record(KEY, Uniform(2), n, steps=every(world))
    one = model.record(KEY, Uniform(2), n, steps=12)
    own = np.stack([np.arange(n), np.arange(n) + 20])
    mine = model.record(KEY, Uniform(2), n, steps=own)
    for name in ("states", "actions", "rewards", "return_to_go", "next_states", "ended"):
        all_steps = np.asarray(getattr(whole, name))
        np.testing.assert_array_equal(getattr(one, name), all_steps[12], err_msg=name)
        np.testing.assert_array_equal(getattr(mine, name), all_steps[own, np.arange(n)], err_msg=name)
    np.testing.assert_array_equal(one.returns, whole.returns)
    for record in ((3, 2), (0, 30), 30, own + 20):
        with pytest.raises(ValueError, match="steps"):
            model.record(KEY, Uniform(2), n, steps=record)


def test_the_same_key_gives_the_same_episodes_here_and_in_workers():
    here, workers = (hyrlo.make("gym:CartPole-v1", 30, num_envs=2, asynchronous=a) for a in (False, True))
    play = lambda world, key: world.trace_model().record(key, Uniform(2), 5, steps=(0, 20))  # noqa: E731
    first = play(here, KEY)
    same(first, play(here, KEY))
    same(first, play(workers, KEY))
    assert (first.actions != play(here, jax.random.key(4)).actions).any()
    vector = workers.vector()
    processes = vector.envs.processes
    assert all(process.is_alive() for process in processes)
    vector.close()
    assert not any(process.is_alive() for process in processes)
    same(first, play(workers, KEY))  # made anew
    workers.vector().close()


def test_the_initial_states_do_not_depend_on_how_many_are_played_at_a_time():
    first = [walk(num_envs=m).trace_model().record(KEY, Uniform(3), 7, steps=0).states for m in (2, 3, 7)]
    np.testing.assert_array_equal(first[0], first[1])
    np.testing.assert_array_equal(first[0], first[2])


def test_every_key_and_every_episode_has_an_initial_state_of_its_own():
    """Walks start at a random position: all differ within a batch and between keys, and the same key gives the same."""
    first = lambda key, n=7: np.asarray(walk(num_envs=3).trace_model().record(key, Uniform(3), n, steps=0).states[:, 0])  # noqa: E731
    ours, again, others = first(KEY), first(KEY), first(jax.random.key(4))
    np.testing.assert_array_equal(ours, again)
    assert len({*ours.tolist(), *others.tolist()}) == 14
    np.testing.assert_array_equal(first(KEY, 4), ours[:4])


def test_seeds_of_episodes_follow_from_the_key():
    seeds = [episode_seeds(jax.random.key(k), 50) for k in range(20)]
    assert len(set(np.ravel(seeds).tolist())) == 1000
    assert seeds[7] == episode_seeds(jax.random.key(7), 50)
    assert 0 <= np.min(seeds) <= np.max(seeds) < 2**31
    assert np.max(seeds) > 2**30


# Policies that differ between episodes


def test_switches_and_mixtures_know_the_episodes_of_a_batch():
    n, world = 11, walk(num_envs=4)
    at = np.arange(n) % 5
    mixed = Mixture(always(0), always(2), jnp.asarray(0.4))
    for policy in (
        switch(always(0), at=at, to=always(2)),
        mixed,
        switch(mixed, at=3, to=switch(always(1), at=at, to=mixed)),
    ):
        batch = world.trace_model().record(KEY, policy, n, steps=every(world))
        wanted = [policy.act(KEY, jnp.zeros((n, 3)), h) for h in every(world)]
        np.testing.assert_array_equal(batch.actions, wanted)


TRACES: list[int] = []


class Traced(Policy):
    """Notes every time that it is traced."""

    def act(self, key, observations, h):
        TRACES.append(1)
        return jnp.ones(len(observations), jnp.int32)


def test_another_step_or_number_of_episodes_compiles_nothing_new():
    model = walk(num_envs=4).trace_model()
    TRACES.clear()
    for h in range(4):
        model.record(KEY, switch(Traced(), at=h, to=Traced()), 3 + 3 * h, steps=h, stop=h + 1)
    assert len(TRACES) == 2  # both sides of the switch, once


# Spaces


@pytest.mark.parametrize("kind", ["dict", "tuple", "discrete", "picture"])
def test_observations_are_flattened_as_gymnasium_does(kind):
    world = hyrlo.make(SPACES, 3, num_envs=2, kwargs={"observations": kind})
    batch = world.trace_model().record(KEY, world.spec.uniform(), 3, steps=(0, 1))
    env = gymnasium.make("Spaces-v0", observations=kind)
    for row, seed in enumerate(episode_seeds(jax.random.split(KEY)[0], 3)):
        first = flatten(OBSERVATIONS[kind], env.reset(seed=seed)[0])
        second = flatten(OBSERVATIONS[kind], env.step(0)[0])
        np.testing.assert_allclose(batch.states[:, row], [[*first, 0], [*second, 0]])
        np.testing.assert_allclose(batch.next_states[0, row], [*second, 0])


def test_actions_from_minus_one_to_one_become_the_environments():
    for action, total in (((-1, -1), -2), ((1, 1), 12), ((0, 0.5), 7.5), ((-9, 3), 8)):
        world = hyrlo.make(SPACES, 2, kwargs={"actions": "box"})
        assert (world.spec.actions, world.spec.action_size) == (0, 2)
        batch = world.trace_model().record(KEY, Constant(jnp.asarray(action, float)), 2, steps=1)
        np.testing.assert_allclose(batch.rewards, total, rtol=1e-6)
        np.testing.assert_array_equal(batch.actions, jnp.asarray([action, action], float))
    whole = hyrlo.make(SPACES, 2, kwargs={"actions": "whole"}).trace_model()
    assert whole.record(KEY, Constant(jnp.asarray([0.62])), 1, steps=0).rewards.tolist() == [8]
    uniform = hyrlo.make(SPACES, 1, kwargs={"actions": "box"}).trace_model().rollout(KEY, UniformBox(2), 400)
    assert abs(float(uniform.returns.mean()) - 5) < 1


def test_discrete_actions_that_start_elsewhere():
    world = hyrlo.make(SPACES, 1)
    assert ACTIONS["discrete"].start == -1
    assert world.spec.actions == 3
    rewards = [float(world.trace_model().rollout(KEY, always(a), 1).returns[0]) for a in range(3)]
    assert rewards == [-1, 0, 1]


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"observations": "text"}, "unsupported observation space Text"),
        ({"observations": "sequence"}, "unsupported observation space Sequence"),
        ({"actions": "unbounded"}, "not finite"),
        ({"actions": "bits"}, "unsupported action space MultiBinary"),
        ({"no_such_argument": 1}, "no_such_argument"),
    ],
)
def test_spaces_and_arguments_that_do_not_fit_are_one_line(kwargs, said):
    line = message(lambda: hyrlo.make(SPACES, 3, kwargs=kwargs))
    assert said in line
    assert line.startswith(SPACES)


@pytest.mark.parametrize(
    "name",
    [
        "gym:CartPol-v1",
        "gym:CartPole-v99",
        "gym:nowhere/CartPole-v1",
        "gym:no_such_module:CartPole-v1",
        "gym:",
        "gym:%",
    ],
)
def test_an_environment_that_does_not_exist_is_one_line(name):
    assert message(lambda: hyrlo.make(name, 5)).startswith(name)


def test_options_are_checked():
    assert "no option num_env; did you mean num_envs" in message(lambda: hyrlo.make("gym:CartPole-v1", num_env=3))
    assert "num_envs is 0" in message(lambda: hyrlo.make("gym:CartPole-v1", num_envs=0))
    assert "not JSON" in message(lambda: hyrlo.make("gym:CartPole-v1", kwargs="{x"))
    assert "JSON object" in message(lambda: hyrlo.make("gym:CartPole-v1", kwargs="[1]"))


# Horizon and success


def test_the_horizon_is_as_told_else_the_time_limit():
    assert hyrlo.make("gym:MountainCar-v0").spec.horizon == 200
    assert hyrlo.make("gym:MountainCar-v0", 300).spec.horizon == 300
    assert hyrlo.make("gym:CartPole").spec.horizon == 500  # the newest version
    assert "give --horizon" in message(lambda: hyrlo.make(SPACES))
    assert "horizon is 0" in message(lambda: hyrlo.make("gym:CartPole-v1", 0))


def test_an_environment_that_takes_a_horizon_is_given_it():
    assert hyrlo.make(LOCK_ID, 3).spec.observation_size == 9
    assert hyrlo.make(LOCK_ID, kwargs={"horizon": 3}).spec.horizon == 3
    assert hyrlo.make(LOCK_ID).spec.horizon == 100


@pytest.mark.parametrize("key", ["success", "is_success"])
def test_success_at_any_step_counts(key):
    batch = walk(succeeds=2, key=key).trace_model().rollout(KEY, Uniform(3), 5)
    assert batch.success.tolist() == [True] * 5
    batch = walk(succeeds=2, key=key).trace_model().rollout(KEY, Uniform(3), 5, stop=1)
    assert batch.success.tolist() == [False] * 5
    assert evaluate(walk().trace_model(), Uniform(3), KEY, 5).success_rate is None


# Errors


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_environment_that_raises_is_named_with_step_and_seed(asynchronous, capfd):
    world = walk(30, num_envs=2, asynchronous=asynchronous, fails=17)
    model = world.trace_model()
    line = message(lambda: model.rollout(KEY, Uniform(3), 3))
    seeds = episode_seeds(jax.random.split(KEY)[0], 3)
    assert line.startswith(f"{WALK}: raised ZeroDivisionError: division by zero (gym_envs.py, line ")
    assert f"at step 17 of the episode with seed {seeds[0]}" in line
    assert "--resume" in line
    assert (model.ledger.episodes, model.ledger.steps) == (2, 2 * 18)  # what was played is counted
    assert model.rollout(KEY, Uniform(3), 3, stop=17).returns.shape == (3,)  # and goes on
    assert (model.ledger.episodes, model.ledger.steps) == (2 + 3, 2 * 18 + 3 * 17)
    world.vector().close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_roll_out_that_fails_late_has_cost_all_that_was_played():
    """The third episode, in the second batch, fails; the first two ended by themselves."""
    model, failing = walk(8, num_envs=2, ends=3).trace_model(), walk(8, num_envs=2, ends=3, odd=2)
    model.rollout(KEY, Uniform(3), 2)
    model.world = failing
    message(lambda: model.record(KEY, Uniform(3), 5, 0))
    assert (model.ledger.episodes, model.ledger.steps) == (2 + 2, 2 * 3 + 2 * 2)


def test_what_is_not_finite_is_refused_with_step_and_seed():
    seed = episode_seeds(jax.random.split(KEY)[0], 1)[0]
    line = message(lambda: walk(odd=3).trace_model().rollout(KEY, Uniform(3), 2))
    assert f"observation is nan at step 2 of the episode with seed {seed}" in line
    line = message(lambda: walk(odd_reward=3).trace_model().rollout(KEY, Uniform(3), 2))
    assert f"reward is inf at step 3 of the episode with seed {seed}" in line
    box = hyrlo.make(SPACES, 2, kwargs={"actions": "box"}).trace_model()
    assert "action is nan at step 0" in message(lambda: box.rollout(KEY, Constant(jnp.full(2, jnp.nan)), 1))
