"""`LearnedReset`: episodes that begin where a trained policy leads, with every step counted."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hyrlo
import tests.gym_envs  # noqa: F401 - registers environments
from hyrlo.core.errors import HyrloError
from hyrlo.core.files import write_json
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Gaussian, Mixture, Softmax, Stack, Uniform, UniformBox
from hyrlo.foobar import FoobarConfig, foobar
from hyrlo.runs.directory import FORMAT, MemoryRun, RunDirectory, kept_policy
from hyrlo.runs.learned_reset import Actor


def network(inputs, outputs, seed=0):
    return MLP.create(jax.random.key(seed), (inputs, 8, outputs))


def car(seed=0):
    """A policy for MountainCar that changes with the step."""
    return Stack.repeat(Softmax(network(3, 3, seed)), 20).with_step(1, Softmax(network(3, 3, seed + 1)))


def constant(action, actions=3, inputs=3):
    bias = jnp.zeros(actions).at[action].set(100.0)
    return Softmax(MLP((jnp.zeros((inputs, actions)),), (bias,)))


def by_hand(env, policy, seed, horizon):
    """The first reset with `seed`, spelt out."""
    rng = np.random.default_rng((seed, 1))
    observation, _ = env.reset(seed=seed)
    while True:
        h, number = int(rng.integers(horizon)), int(rng.integers(2**31))
        for step in range(h):
            key = jax.random.fold_in(jax.random.key(number), step)
            action = policy.act(key, jnp.array([[*observation, 0.0]], jnp.float32), jnp.int32(step))
            observation, _, terminated, truncated, _ = env.step(int(action[0]))
            if terminated or truncated:
                break
        else:
            return observation, h
        observation, _ = env.reset()


@pytest.mark.parametrize(("name", "policy"), [("MountainCar-v0", car()), ("CartPole-v1", Softmax(network(5, 2)))])
def test_the_states_reached_are_those_of_stepping_by_hand(name, policy):
    env = hyrlo.LearnedReset(gymnasium.make(name), policy, horizon=20)
    for seed in range(6):
        observation, info = env.reset(seed=seed)
        expected, h = by_hand(gymnasium.make(name), policy, seed, 20)
        assert info["roll_in_steps"] == h
        np.testing.assert_array_equal(observation, expected)


def test_after_the_switch_the_environment_is_its_own_and_its_clock_goes_on():
    env = hyrlo.LearnedReset(gymnasium.make("MountainCar-v0", max_episode_steps=15), car(), horizon=10)
    observation, info = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    left, over = 0, False
    while not over:
        position, velocity = observation
        observation, reward, terminated, over, _ = env.step(0)
        assert reward == -1
        assert not terminated
        force = velocity - 0.001 - 0.0025 * np.cos(3 * position)
        assert observation[1] == pytest.approx(force, abs=1e-6)
        left += 1
    assert left == 15 - info["roll_in_steps"]


def test_h_is_uniform_and_every_step_is_counted():
    env = hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), constant(1), horizon=5, seed=0)
    lengths = [env.reset()[1]["roll_in_steps"] for _ in range(1000)]
    counts = np.bincount(lengths, minlength=5)
    assert len(counts) == 5
    assert np.abs(counts - 200).max() < 5 * np.sqrt(1000 * 0.2 * 0.8)
    assert env.steps == env.roll_in_steps == sum(lengths)
    for _ in range(7):
        env.step(1)
    assert (env.steps, env.roll_in_steps) == (sum(lengths) + 7, sum(lengths))


def test_a_roll_in_that_ends_is_drawn_again():
    walk = gymnasium.make("Walk-v0", ends=4)  # the fourth step ends the episode
    env = hyrlo.LearnedReset(walk, constant(2), horizon=8, seed=1)
    lengths, starts = [], set()
    for _ in range(300):
        observation, info = env.reset()
        assert observation[1] == info["roll_in_steps"]
        lengths.append(info["roll_in_steps"])
        starts.add(observation[0] - info["roll_in_steps"])
    assert set(lengths) == {0, 1, 2, 3}
    assert len(starts) == 300  # another initial state each time
    assert np.abs(np.bincount(lengths) - 75).max() < 40
    wasted = env.steps - sum(lengths)
    assert wasted > 0
    assert wasted % 4 == 0
    assert wasted / 4 == pytest.approx(300, rel=0.3)  # half of the draws end


def test_the_same_seed_gives_the_same_episodes():
    def episodes(env, seed):
        return [env.reset(seed=seed)[0], *(env.reset()[0] for _ in range(5))]

    make = lambda **kw: hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), car(), horizon=20, **kw)  # noqa: E731
    first = episodes(make(), 4)
    np.testing.assert_array_equal(first, episodes(make(), 4))
    np.testing.assert_array_equal(first, episodes(make(seed=4), None))
    used = make(seed=9)
    used.reset()
    np.testing.assert_array_equal(first, episodes(used, 4))
    assert not np.array_equal(first, episodes(make(), 5))
    check_env(make(), skip_render_check=True)


def test_initial_state_and_length_of_the_roll_in_are_independent():
    env = hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), constant(1), horizon=50)
    plain = gymnasium.make("MountainCar-v0")
    pairs = [(env.reset(seed=s)[1]["roll_in_steps"], plain.reset(seed=s)[0][0]) for s in range(200)]
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 0.25


def test_unusual_spaces_are_flattened_and_scaled_as_in_training():
    seen = []

    class Spy(gymnasium.Wrapper):
        def step(self, action):
            seen.append(action)
            return self.env.step(action)  # asserts that the space contains it

    size = gymnasium.make("Spaces-v0", observations="dict").observation_space
    inputs = gymnasium.spaces.utils.flatdim(size) + 1
    for actions, policy in [
        ("box", Gaussian(network(inputs, 2), jnp.zeros(2))),
        ("whole", UniformBox(1)),
        ("discrete", Softmax(network(inputs, 3))),
    ]:
        env = Spy(gymnasium.make("Spaces-v0", observations="dict", actions=actions))
        wrapped = hyrlo.LearnedReset(env, policy, horizon=30)
        for seed in range(3):
            wrapped.reset(seed=seed)
    starting_at_minus_one = [a for a in seen if np.ndim(a) == 0]
    assert set(map(int, starting_at_minus_one)) <= {-1, 0, 1}
    assert -1 in map(int, starting_at_minus_one)


def test_a_mixture_follows_one_policy_for_a_whole_episode():
    policy = Mixture(constant(0), constant(2), jnp.asarray(0.25))
    actor = Actor(policy, gymnasium.make("MountainCar-v0"))
    seconds = 0
    for number in range(200):
        actor.begin(number)
        actions = {int(actor(np.zeros(2), h)) for h in range(3)}
        assert len(actions) == 1
        seconds += actions == {2}
    assert seconds == pytest.approx(50, abs=2)


def test_a_policy_of_the_lock_is_given_no_flag():
    lock = hyrlo.make("lock", 4)
    policy = Softmax(network(lock.spec.observation_size, 10))
    env = hyrlo.LearnedReset(gymnasium.make("hyrlo/CombinationLock-v0", horizon=4), policy, horizon=4)
    assert {env.reset(seed=s)[1]["roll_in_steps"] for s in range(40)} == {0, 1, 2, 3}


def test_directories_of_policies_and_runs(tmp_path):
    hyrlo.save_policy(tmp_path, constant(2))
    env = hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), tmp_path)
    assert env.horizon == 200  # the time limit
    write_json(tmp_path / "config.json", {"format": FORMAT, "algo": "fail", "horizon": 6})
    assert hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), str(tmp_path)).horizon == 6
    assert hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), str(tmp_path), horizon=3).horizon == 3


def test_a_foobar_run_keeps_its_roll_in(tmp_path, monkeypatch):
    """What is kept is the forward policy, and it is there before the backward pass ends."""
    forward = constant(2)
    monkeypatch.setattr("hyrlo.foobar.forward_pass", lambda *args: (forward, None, 3))  # no estimator that can plan
    monkeypatch.setattr("hyrlo.foobar.psdp.psdp_trace", lambda *args: constant(0))
    run = RunDirectory(tmp_path / "run", {"format": FORMAT, "algo": "foobar", "horizon": 6})
    with pytest.raises(HyrloError, match="holds no forward policy"):
        hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), run.path)
    model = hyrlo.make("lock", horizon=6).trace_model()  # the passes do not look at it
    backward = foobar(model, None, FoobarConfig(), jax.random.key(0), run)
    hyrlo.save_policy(run.path, backward)
    assert kept_policy(run.path, "roll_in").network.biases[0][2] == 100
    env = hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), run.path)
    assert int(env.actor(np.zeros(2), 0)) == 2
    assert env.horizon == 6
    foobar(model, None, FoobarConfig(), jax.random.key(0), MemoryRun())  # in memory nothing is kept


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Softmax(network(5, 3)), "does not take the environment's observations, 2 numbers"),
        (UniformBox(2), "action is a vector of 2 but the environment's is a discrete one"),
    ],
)
def test_a_policy_that_does_not_fit_is_one_clear_line(policy, message):
    with pytest.raises(HyrloError, match=message) as error:
        hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), policy)
    assert "\n" not in str(error.value)


def test_other_errors_are_one_clear_line(tmp_path):
    pendulum = gymnasium.make("Pendulum-v1")
    with pytest.raises(HyrloError, match="a discrete one but the environment's is a vector of 1"):
        hyrlo.LearnedReset(pendulum, Uniform(2))
    with pytest.raises(HyrloError, match="a vector of 2 but the environment's is a vector of 1"):
        hyrlo.LearnedReset(pendulum, UniformBox(2))
    with pytest.raises(HyrloError, match="holds no forward policy; give the directory"):
        hyrlo.LearnedReset(pendulum, tmp_path)
    with pytest.raises(HyrloError, match="horizon is 0"):
        hyrlo.LearnedReset(pendulum, UniformBox(1), horizon=0)
    with pytest.raises(HyrloError, match="give horizon"):
        hyrlo.LearnedReset(pendulum.unwrapped.__class__(), UniformBox(1))
    more = hyrlo.LearnedReset(gymnasium.make("CartPole-v1"), constant(2, inputs=5), horizon=10)
    with pytest.raises(HyrloError, match="chose action 2 but the environment has 2"):
        [more.reset(seed=s) for s in range(10)]
