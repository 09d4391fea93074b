"""The Gymnasium lock: a good Gymnasium citizen, and the same lock as the one in JAX."""

import itertools

import gymnasium
import jax
import numpy as np
import pytest
import scipy.linalg
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from hyrlo.core.access import evaluate
from hyrlo.core.policies import Uniform
from hyrlo.envs import make
from hyrlo.envs.lock import BAD, Lock, LockConfig, optimal_actions

ID = "hyrlo/CombinationLock-v0"
H = 5
LOCK = Lock.create(H)
MODES = ["sync", "vector_entry_point"]


decode = jax.jit(lambda observations: LOCK.decode(observations))
optimal = jax.jit(lambda observations, h: optimal_actions(LOCK, LOCK.decode(observations), h))


def correct(observations: np.ndarray, h: int) -> np.ndarray:
    """The optimal actions, by the JAX lock's own decoding and combination."""
    return np.asarray(optimal(observations, h))


def undo_hadamard(observations: np.ndarray) -> np.ndarray:
    size = observations.shape[-1]
    return observations @ scipy.linalg.hadamard(size).T / size


def time_of(observations: np.ndarray) -> np.ndarray:
    return undo_hadamard(observations)[..., 3 : H + 4].argmax(axis=-1)


@pytest.fixture
def env():
    env = gymnasium.make(ID, horizon=H)
    yield env
    env.close()


@pytest.fixture(params=MODES)
def vector(request):
    envs = gymnasium.make_vec(ID, num_envs=6, vectorization_mode=request.param, horizon=H)
    yield envs
    envs.close()


@pytest.mark.filterwarnings("ignore:.*infinity.*")
def test_gymnasium_finds_nothing_wrong(env):
    check_env(env.unwrapped)


def test_spaces_are_those_of_the_lock(env, vector):
    assert env.observation_space.shape == (16,)
    assert env.action_space.n == 10
    assert vector.num_envs == 6
    assert vector.single_observation_space == env.observation_space
    assert vector.single_action_space == env.action_space
    assert vector.observation_space.shape == (6, 16)
    assert vector.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP


def test_the_default_horizon_is_a_hundred():
    env = gymnasium.make(ID)
    assert env.observation_space.shape == (128,)
    assert env.unwrapped.dynamics.horizon == 100


@pytest.mark.parametrize("seed", range(4))
def test_correct_actions_open_one_lock(env, seed):
    observation, info = env.reset(seed=seed)
    assert info == {"success": False}
    for h in range(H):
        observation, reward, terminated, truncated, info = env.step(int(correct(observation[None], h)[0]))
        assert time_of(observation) == h + 1
        assert not truncated
        assert terminated == (h == H - 1)
        assert reward == float(terminated)
        assert info == {"success": terminated}


def test_correct_actions_open_every_lock_of_a_batch(vector):
    observations, info = vector.reset(seed=0)
    assert not info["success"].any()
    for h in range(H):
        observations, rewards, terminated, truncated, info = vector.step(correct(observations, h))
        assert observations.shape == (6, 16)
        assert observations.dtype == np.float32
        assert not truncated.any()
        np.testing.assert_array_equal(terminated, h == H - 1)
        np.testing.assert_array_equal(rewards, float(h == H - 1))
        np.testing.assert_array_equal(info["success"], h == H - 1)


def test_an_ended_episode_starts_anew_on_the_next_step(vector):
    observations, _ = vector.reset(seed=1)
    for h in range(H):
        observations, _, terminated, _, _ = vector.step(correct(observations, h))
    assert terminated.all()
    np.testing.assert_array_equal(time_of(observations), H)
    anything = vector.action_space.sample()
    observations, rewards, terminated, truncated, info = vector.step(anything)  # only resets
    np.testing.assert_array_equal(time_of(observations), 0)
    assert (np.asarray(decode(observations)) != BAD).all()
    assert not rewards.any()
    assert not terminated.any()
    assert not truncated.any()
    assert not np.any(info["success"])
    for h in range(H):
        observations, rewards, terminated, _, _ = vector.step(correct(observations, h))
    assert terminated.all()
    np.testing.assert_array_equal(rewards, 1.0)


def test_the_step_that_resets_ignores_the_action():
    """A correct first action there must neither count as a step nor pay, nor a wrong one."""
    envs = gymnasium.make_vec(ID, num_envs=400, horizon=1)
    lock = Lock.create(1)
    observations, _ = envs.reset(seed=0)
    for action in (int(lock.correct[0, 0]), (int(lock.correct[0, 0]) + 1) % 10):
        _, _, terminated, _, _ = envs.step(np.full(400, action))
        assert terminated.all()
        observations, rewards, terminated, _, info = envs.step(np.full(400, action))
        assert not rewards.any()
        assert not terminated.any()
        assert not info["success"].any()
        latent = np.asarray(lock.decode(observations))
        assert (latent != BAD).all()
        assert 0.3 < latent.mean() < 0.7


def test_random_play_earns_the_same_as_in_jax():
    horizon, n = 3, 20_000
    envs = gymnasium.make_vec(ID, num_envs=n, horizon=horizon)
    envs.reset(seed=0)
    rng, returns, success = np.random.default_rng(0), np.zeros(n), np.zeros(n, bool)
    for _ in range(horizon):
        _, rewards, _, _, info = envs.step(rng.integers(10, size=n))
        returns += rewards
        success |= info["success"]
    exact = sum(0.1**h * 0.9 * 0.05 for h in range(horizon)) + 0.1**horizon
    error = 5 * returns.std() / n**0.5
    jax_return = evaluate(make("lock", horizon=horizon).trace_model(), Uniform(10), jax.random.key(0), n).return_mean
    assert abs(returns.mean() - exact) < error
    assert abs(jax_return - exact) < error
    assert abs(returns.mean() - jax_return) < 1.5 * error
    assert set(np.round(returns, 6)) <= {0.0, 0.1, 1.0}
    np.testing.assert_array_equal(success, returns == 1.0)


def test_a_wrong_action_leads_to_the_bad_state_for_ever():
    n = 2000
    envs = gymnasium.make_vec(ID, num_envs=n, horizon=H)
    observations, _ = envs.reset(seed=0)
    for h in range(H):
        wrong = correct(observations, h) + (1 if h == 0 else 0)
        observations, rewards, _, _, info = envs.step(wrong % 10)
        assert (np.asarray(decode(observations)) == BAD).all()
        assert not info["success"].any()
        if h == 0:
            assert abs(rewards.mean() - 0.05) < 5 * 0.05 / n**0.5
        else:
            assert not rewards.any()


def test_observations_have_the_same_distribution_as_in_jax():
    n = 4000
    envs = gymnasium.make_vec(ID, num_envs=n, horizon=H)
    observations, _ = envs.reset(seed=0)
    for h in range(H + 1):
        latent = np.asarray(decode(observations))
        noise = undo_hadamard(observations) - np.eye(16)[latent] - np.eye(16)[3 + h]
        np.testing.assert_allclose(noise[:, H + 4 :], 0, atol=1e-5)
        np.testing.assert_allclose(noise[:, : H + 4].mean(axis=0), 0, atol=5 * 0.1 / n**0.5)
        np.testing.assert_allclose(noise[:, : H + 4].std(axis=0), 0.1, rtol=5 / (2 * n) ** 0.5)
        assert abs(latent.mean() - 0.5) < 5 * 0.5 / n**0.5
        if h < H:
            observations, *_ = envs.step(correct(observations, h))


def play(env, seed: int) -> list[np.ndarray]:
    env.action_space.seed(0)
    seen = [env.reset(seed=seed)[0]]
    for _ in range(H):
        observation, reward, *_ = env.step(env.action_space.sample())
        seen += [observation, np.asarray(reward)]
    return seen


def test_seeds_repeat_episodes(env, vector):
    for one in (env, vector):
        first, again, other = play(one, 3), play(one, 3), play(one, 4)
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)
        assert not np.array_equal(first[0], other[0])


def test_locks_of_a_batch_are_independent(vector):
    observations, _ = vector.reset(seed=0)
    assert len(np.unique(observations, axis=0)) == 6


def test_options_reach_the_lock():
    env = gymnasium.make(ID, horizon=H, seed=3, actions=4, noise=0.0).unwrapped
    expected = Lock.create(H, LockConfig(seed=3, actions=4, noise=0.0))
    np.testing.assert_array_equal(env.dynamics.correct, expected.correct)
    assert env.action_space.n == 4
    observation, _ = env.reset(seed=0)
    np.testing.assert_allclose(np.sort(undo_hadamard(observation))[-3:], [0, 1, 1], atol=1e-6)


def test_info_says_success_and_nothing_of_the_latent_state(env, vector):
    _, info = env.reset(seed=0)
    assert set(info) == {"success"}
    info = env.step(0)[-1]
    assert set(info) == {"success"}
    assert isinstance(info["success"], bool)
    _, info = vector.reset(seed=0)
    assert set(info) <= {"success", "_success"}
    info = vector.step(vector.action_space.sample())[-1]
    assert set(info) <= {"success", "_success"}
    assert info["success"].shape == (6,)


def test_text_shows_the_path():
    env = gymnasium.make(ID, horizon=H, render_mode="ansi")
    observation, _ = env.reset(seed=0)
    before = env.render()
    assert isinstance(before, str)
    assert "step 0 of 5" in before
    assert before.count("●") == 1
    env.step((int(correct(observation[None], 0)[0]) + 1) % 10)
    after = env.render()
    assert "step 1 of 5" in after
    assert after.count("●") == 2
    bad_row = after.splitlines()[-1]
    assert bad_row.startswith("bad")
    assert bad_row.endswith("·●····")


def test_picture_shows_the_path():
    env = gymnasium.make(ID, horizon=H, render_mode="rgb_array")
    env.reset(seed=0)
    pictures = [env.render()]
    for action in range(H):
        env.step(action)
        pictures.append(env.render())
    for picture in pictures:
        assert picture.dtype == np.uint8
        assert picture.shape == (3 * 8, (H + 1) * 8, 3)
    for h, (before, after) in enumerate(itertools.pairwise(pictures)):
        changed = (before != after).any(axis=(0, 2)).nonzero()[0] // 8
        assert set(changed.tolist()) == {h + 1}
