"""Tuples of Gymnasium environments whose episodes end: collected, prepared as the models record them, and learned from."""

import dataclasses
import json

import gymnasium
import jax
import jax.numpy as jnp
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer

import hyrlo
from hyrlo.backward.reward_units import RewardUnits
from hyrlo.backward.sac import create_agent, improve, q_values
from hyrlo.baselines.rlpd import RlpdConfig, offline_replay
from hyrlo.cli.main import main
from hyrlo.core.errors import DataError
from hyrlo.data.readers import read_transitions
from hyrlo.data.transitions import Transitions
from hyrlo.envs.gym.collect import collect_states, collect_transitions
from hyrlo.envs.gym.model import GymTraceModel
from tests.walks import FIRST, SECOND, SPACES, WALK, tempting, walk


def cart(horizon=40, **options):
    return hyrlo.make("gym:CartPole-v1", horizon, **options)


# Collecting


def test_collected_tuples_are_those_that_the_model_records(monkeypatch):
    """Up to their ends. Prepared for the world, they are its records bit by bit."""
    records, record = [], GymTraceModel.record
    monkeypatch.setattr(GymTraceModel, "record", lambda *args: records.append(record(*args)) or records[-1])
    world, n = cart(), 30
    data = collect_transitions(world, [], n, seed=5)
    (batch,) = records
    over = np.concatenate([np.zeros((1, n), bool), batch.ended[:-1]])
    assert over.any()
    for h, step in enumerate(world.prepare_transitions(data).steps[: data.horizon]):
        for name, other in (("terminals", "ended"), *((f, f) for f in Transitions._fields[:4])):
            np.testing.assert_array_equal(getattr(step, name), getattr(batch, other)[h][~over[h]], err_msg=name)


def test_states_of_collected_tuples_are_the_collected_states():
    world = cart()
    states, tuples = (collect(world, [], 25, seed=1) for collect in (collect_states, collect_transitions))
    assert states.horizon == tuples.horizon
    for one, other in zip(states.steps, tuples.observations().steps, strict=True):
        np.testing.assert_array_equal(np.sort(one, axis=0), np.sort(other, axis=0))


def test_action_vectors_are_collected_from_minus_one_to_one():
    world = hyrlo.make(SPACES, 3, kwargs={"actions": "box"})
    step = collect_transitions(world, [], 40).at(2)
    assert step.actions.shape == (40, 2)
    assert 0.9 < np.abs(step.actions).max() <= 1
    np.testing.assert_allclose(step.rewards, step.actions @ [2.0, 5.0] + 5, atol=1e-4)  # in [-2, 2] and [0, 10]


def test_the_command_writes_tuples_with_terminals(tmp_path, capsys):
    path = tmp_path / "tuples.npz"
    command = ["data", "collect", WALK, "--episodes", "6", "--out", str(path), "--transitions"]
    assert main([*command, "--gym.kwargs", '{"ends": 3}']) == 0
    assert "18 transitions" in capsys.readouterr().out
    with np.load(path) as archive:
        assert archive["terminals"].tolist() == [[False, False, True]] * 6
        assert archive["rewards"].tolist() == [[1, 2, 3]] * 6
    assert main([*command, "--horizon", "3"]) == 0
    with np.load(path) as archive:
        assert set(archive.files) == {"observations", "actions", "rewards"}  # the horizon is no end
        assert archive["observations"].shape == (6, 4, 2)


# Preparing


def test_a_horizon_beyond_the_data_needs_ended_episodes():
    ended, running = (collect_transitions(walk(3, **options), [], 5) for options in ({"ends": 3}, {}))
    prepared = walk(6).prepare_transitions(ended)
    assert [len(step.states) for step in prepared.steps] == [5, 5, 5, 1, 1, 1]
    assert prepared.at(3).states.tolist() == [[0, 0, 1]]
    with pytest.raises(DataError, match="timesteps 0 … 2 but the horizon is 6"):
        walk(6).prepare_transitions(running)
    with pytest.raises(DataError, match=r"states have 2 dimensions but gym:CartPole-v1 has 4; give the environment's"):
        cart().prepare_transitions(ended)


def test_rlpd_takes_terminals_for_ends_and_no_absorbing_states():
    """As online: the horizon is a time limit, unless the config says otherwise."""
    world = walk(5, ends=3)
    data = world.prepare_transitions(collect_transitions(world, [], 4))
    replay = offline_replay(data, world.spec, RlpdConfig())
    assert int(replay.added) == replay.capacity == 12
    np.testing.assert_array_equal(replay.rows.ended, replay.rows.rewards == 3)
    np.testing.assert_array_equal(replay.rows.states[:, -1], 0)
    running = walk(3)
    data = running.prepare_transitions(collect_transitions(running, [], 4))
    assert not offline_replay(data, running.spec, RlpdConfig()).rows.ended.any()
    last = offline_replay(data, running.spec, RlpdConfig(ends_at_horizon=True)).rows
    np.testing.assert_array_equal(last.ended, last.rewards == 3)


# Values: what follows an end is worth nothing


def test_rlpd_values_nothing_after_an_end():
    world, data = tempting()
    config = RlpdConfig(hidden=32, layers=1, num_qs=2, learning_rate=3e-3, tau=0.05, temperature=0.01, batch=64)
    replay = offline_replay(world.prepare_transitions(data), world.spec, config)
    agent = create_agent(jax.random.key(0), world.spec, replay, RewardUnits.raw(), config)
    updates, rates = jnp.asarray(1500), [jnp.asarray(config.learning_rate)] * 2
    agent, _ = improve(jax.random.key(1), agent, replay, replay, RewardUnits.raw(), updates, *rates, world.spec, config)
    for values in np.asarray(q_values(agent.critics.params, jnp.array([FIRST, SECOND]))):
        np.testing.assert_allclose(values[0, 0], 1, atol=0.1)  # 1 + 0.99 · 2, if the end were none
        np.testing.assert_allclose(values[1], [0, 2], atol=0.1)
        assert values[0, 1] > 1.5


# Learning

TINY = {
    "hyq": ["--online.samples", "2", "--online.iterations", "1", "--online.trial-episodes", "2", "--fit.updates", "3"],
    "rlpd": ["--iterations", "1", "--steps", "10", "--episodes", "2", "--random-collections", "1", "--check", "1"],
}


@pytest.mark.parametrize(("algo", "env"), [("hyq", "CartPole-v1"), ("rlpd", "CartPole-v1"), ("rlpd", "Pendulum-v1")])
def test_train_on_collected_tuples(algo, env, tmp_path):
    """Collected from a run's policy as well, for a horizon at which every CartPole episode of the data has ended."""
    path, out, env = str(tmp_path / "tuples.npz"), str(tmp_path / "run"), f"gym:{env}"
    few = ["--curve-episodes", "2", "--eval-episodes", "2", "--quiet"]
    horizon = [] if "Pendulum" in env else ["--horizon", "100"]
    collect = ["data", "collect", env, "--transitions", "--episodes", "5", "--out", path, "--seed", "3"]
    assert main([*collect, *(horizon or ["--horizon", "20"])]) == 0
    assert read_transitions(path).horizon < 100
    assert main(["train", algo, env, "--data", path, "--out", out, *horizon, *TINY[algo], *few]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["horizon"] == (100 if horizon else 20)
    assert result["steps"] > 0
    assert main([*collect, "--run", out, "--epsilon", "0.1"]) == 0
    again = read_transitions(path)
    assert hyrlo.make(env, again.horizon).prepare_transitions(again).horizon == again.horizon


def small_rlpd(world, **options):
    options = {"hidden": 64, "check": 10, "learning_rate": 1e-3, "temperature": 0.1, "utd": 1.0, **options}
    return dataclasses.replace(hyrlo.config("rlpd", world=world), **options)


@pytest.mark.learning
def test_rlpd_balances_the_pole_from_tuples_of_uniform_actions():
    """Three seeds reach 97, 100 and 95. Online ends alone can be enough here: the tests above hold the offline ones."""
    world = cart(100)
    data = collect_transitions(world, [], 100)
    behaviour = sum(step.rewards.sum() for step in data.steps) / 100
    config = small_rlpd(world, iterations=4, episodes=8, steps=5000)
    trained = hyrlo.train("rlpd", world, data, config=config, curve_episodes=2, eval_episodes=20)
    assert behaviour < 30
    assert trained.result["return_mean"] > 3 * behaviour


def record_pendulum(dataset_id, episodes=50, horizon=100):
    """Uniform actions, from −2 to 2, as a Minari data set. Returns the mean return."""
    env, buffers = gymnasium.make("Pendulum-v1"), []
    env.action_space.seed(0)
    for seed in range(episodes):
        steps, observations = [], [env.reset(seed=seed)[0]]
        for h in range(horizon):
            action = env.action_space.sample()
            observation, reward, terminated, _, _ = env.step(action)
            observations.append(observation)
            steps.append((action, reward, terminated, h == horizon - 1))
        columns = [np.stack(column) for column in zip(*steps, strict=True)]
        buffers.append(EpisodeBuffer(None, seed, None, np.stack(observations), *columns))
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    minari.create_dataset_from_buffers(dataset_id, buffers, **spaces)
    return sum(sum(buffer.rewards) for buffer in buffers) / episodes


@pytest.mark.learning
@pytest.mark.filterwarnings("ignore:.*None:UserWarning")
def test_rlpd_learns_to_swing_up_from_a_minari_data_set(minari_home):
    """From collected tuples two seeds reach −290 and −173, uniform actions −630 and −602."""
    behaviour = record_pendulum("pendulum/uniform-v0")
    world = hyrlo.make("gym:Pendulum-v1", 100)
    config = small_rlpd(world, iterations=6, episodes=4, steps=6 * 2 * 4 * 100)
    options = {"config": config, "curve_episodes": 2, "eval_episodes": 20}
    trained = hyrlo.train("rlpd", world, "minari:pendulum/uniform-v0", **options)
    assert trained.result["return_mean"] > behaviour + 200
