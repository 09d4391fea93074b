"""Gymnasium environments behind the access models: what algorithms see, what is counted, and what is said if it fails."""

import json
import multiprocessing
import os
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten

import hyrlo
from hyrlo.access import JaxTraceModel, ResetModel, TraceModel, evaluate
from hyrlo.cli import main
from hyrlo.envs.gym import GymResetModel, GymTraceModel
from hyrlo.envs.gym_collect import collect_states
from hyrlo.envs.gym_model import episode_seeds
from hyrlo.envs.gym_reset import Resettable, resettable
from hyrlo.policies import Mixture, Policy, Uniform, UniformBox, switch
from tests.gym_envs import ACTIONS, OBSERVATIONS
from tests.locks import LOCK, Always, always
from tests.locks import H as LOCK_H

KEY = jax.random.key(3)
LOCK_ID = "gym:hyrlo/CombinationLock-v0"
WALK, SPACES = "gym:tests.gym_envs:Walk-v0", "gym:tests.gym_envs:Spaces-v0"


class Constant(Policy):
    """One action vector, whatever it sees."""

    action: jax.Array

    def act(self, key, observations, h):
        return jnp.broadcast_to(self.action, (len(observations), *self.action.shape))


def walk(horizon=None, num_envs=4, asynchronous=False, **kwargs):
    return hyrlo.make(WALK, horizon, num_envs=num_envs, asynchronous=asynchronous, kwargs=kwargs)


def every(world):
    return tuple(range(world.spec.horizon))


def same(one, other):
    for name, x, y in zip(one._fields, one, other, strict=True):
        assert (x is None) == (y is None), name
        if x is not None:
            np.testing.assert_array_equal(x, y, err_msg=name)


def message(call):
    with pytest.raises(hyrlo.HyrloError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What a roll-out returns


@pytest.mark.parametrize("record", [(), 2, (0, 3), np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 4]])], ids=str)
@pytest.mark.parametrize("next_states", [False, True])
def test_shapes_and_types_are_those_of_the_jax_model(record, next_states):
    world = hyrlo.make(LOCK_ID, LOCK_H, num_envs=2)
    ours = world.trace_model().rollout(KEY, Uniform(10), 5, record=record, next_states=next_states)
    theirs = JaxTraceModel(LOCK).rollout(KEY, Uniform(10), 5, record=record, next_states=next_states)
    for name, x, y in zip(ours._fields, ours, theirs, strict=True):
        if name == "ended":
            assert (x is None) == (ours.states is None)
        elif y is None:
            assert x is None, name
        else:
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
    batch = model.rollout(KEY, Uniform(2), n, record=every(world), next_states=True)
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
    batch = world.trace_model().rollout(KEY, Uniform(3), 4, record=every(world), next_states=True)
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
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), 0), 0)
    batch = world.trace_model().rollout(key, world.spec.uniform(), 12, record=every(world), next_states=True)
    for h in range(40):
        ours, theirs = np.asarray(batch.states[h]), prepared.at(h)
        np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])
    assert data.observation_size == 4


def test_time_that_runs_out_at_the_horizon_is_no_end_but_before_it_is():
    world = walk(5)
    batch = world.trace_model().rollout(KEY, Uniform(3), 3, record=(3, 4), next_states=True)
    assert not batch.ended.any()
    assert not batch.next_states[-1, :, -1].any()
    assert walk(20).trace_model().rollout(KEY, Uniform(3), 2, record=19).rewards.tolist() == [20, 20]  # registered: 8
    early = walk(5, cut=4).trace_model().rollout(KEY, Uniform(3), 3, record=(2, 3, 4), next_states=True)
    np.testing.assert_array_equal(early.ended[:, 0], [False, True, True])
    at_the_end = walk(5, ends=5).trace_model().rollout(KEY, Uniform(3), 3, record=4, next_states=True)
    assert at_the_end.ended.all()
    assert not at_the_end.next_states[:, -1].any()


def test_stop_plays_no_further():
    world = walk()
    model = world.trace_model()
    batch = model.rollout(KEY, Uniform(3), 5, record=2, next_states=True, stop=3)
    assert batch.returns.tolist() == [6.0] * 5
    assert (model.ledger.episodes, model.ledger.steps) == (5, 15)
    whole = world.trace_model().rollout(KEY, Uniform(3), 5, record=2, next_states=True)
    np.testing.assert_array_equal(whole.states, batch.states)
    np.testing.assert_array_equal(whole.next_states, batch.next_states)


@pytest.mark.parametrize("episodes", [1, 3, 4, 5, 9])
def test_partial_batches_count_only_their_episodes(episodes):
    model = walk(num_envs=4, ends=3).trace_model()
    batch = model.rollout(KEY, Uniform(3), episodes, record=0)
    assert batch.states.shape == (episodes, 3)
    assert (model.ledger.episodes, model.ledger.steps) == (episodes, 3 * episodes)
    evaluate(model, Uniform(3), KEY, episodes)
    assert model.ledger.episodes == episodes


def test_ways_to_record_agree():
    world = hyrlo.make("gym:CartPole-v1", 30, num_envs=3)
    model, n = world.trace_model(), 8
    whole = model.rollout(KEY, Uniform(2), n, record=every(world), next_states=True)
    one = model.rollout(KEY, Uniform(2), n, record=12, next_states=True)
    own = np.stack([np.arange(n), np.arange(n) + 20])
    mine = model.rollout(KEY, Uniform(2), n, record=own, next_states=True)
    for name in ("states", "actions", "rewards", "return_to_go", "next_states", "ended"):
        all_steps = np.asarray(getattr(whole, name))
        np.testing.assert_array_equal(getattr(one, name), all_steps[12], err_msg=name)
        np.testing.assert_array_equal(getattr(mine, name), all_steps[own, np.arange(n)], err_msg=name)
    np.testing.assert_array_equal(one.returns, whole.returns)
    for record in ((3, 2), (0, 30), 30, own + 20):
        with pytest.raises(ValueError, match="record"):
            model.rollout(KEY, Uniform(2), n, record=record)


def test_the_same_key_gives_the_same_episodes_here_and_in_workers():
    here, workers = (hyrlo.make("gym:CartPole-v1", 30, num_envs=2, asynchronous=a) for a in (False, True))
    play = lambda world, key: world.trace_model().rollout(key, Uniform(2), 5, record=(0, 20), next_states=True)  # noqa: E731
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
    first = [walk(num_envs=m).trace_model().rollout(KEY, Uniform(3), 7, record=0).states for m in (2, 3, 7)]
    np.testing.assert_array_equal(first[0], first[1])
    np.testing.assert_array_equal(first[0], first[2])


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
        batch = world.trace_model().rollout(KEY, policy, n, record=every(world))
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
        model.rollout(KEY, switch(Traced(), at=h, to=Traced()), 3 + 3 * h, record=h, stop=h + 1)
    assert len(TRACES) == 2  # both sides of the switch, once


# Spaces


@pytest.mark.parametrize("kind", ["dict", "tuple", "discrete", "picture"])
def test_observations_are_flattened_as_gymnasium_does(kind):
    world = hyrlo.make(SPACES, 3, num_envs=2, kwargs={"observations": kind})
    batch = world.trace_model().rollout(KEY, world.spec.uniform(), 3, record=(0, 1), next_states=True)
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
        batch = world.trace_model().rollout(KEY, Constant(jnp.asarray(action, float)), 2, record=1)
        np.testing.assert_allclose(batch.rewards, total, rtol=1e-6)
        np.testing.assert_array_equal(batch.actions, jnp.asarray([action, action], float))
    whole = hyrlo.make(SPACES, 2, kwargs={"actions": "whole"}).trace_model()
    assert whole.rollout(KEY, Constant(jnp.asarray([0.62])), 1, record=0).rewards.tolist() == [8]
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
        ({"actions": "many"}, "unsupported action space MultiDiscrete"),
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
    assert model.ledger.episodes == 0
    assert model.rollout(KEY, Uniform(3), 3, stop=17).returns.shape == (3,)  # and goes on
    world.vector().close()
    assert "Traceback" not in capfd.readouterr().err


def test_what_is_not_finite_is_refused_with_step_and_seed():
    seed = episode_seeds(jax.random.split(KEY)[0], 1)[0]
    line = message(lambda: walk(odd=3).trace_model().rollout(KEY, Uniform(3), 2))
    assert f"observation is nan at step 2 of the episode with seed {seed}" in line
    line = message(lambda: walk(odd_reward=3).trace_model().rollout(KEY, Uniform(3), 2))
    assert f"reward is inf at step 3 of the episode with seed {seed}" in line
    box = hyrlo.make(SPACES, 2, kwargs={"actions": "box"}).trace_model()
    assert "action is nan at step 0" in message(lambda: box.rollout(KEY, Constant(jnp.full(2, jnp.nan)), 1))


def small_data(path, horizon=3, size=2, n=20):
    np.savez(path, observations=np.random.default_rng(0).normal(size=(n, horizon + 1, size)).astype(np.float32))
    return str(path)


SMALL = [
    "--preset", "fast",
    "--samples", "40", "--offline-samples", "20", "--features", "16", "--game.iterations", "5", "--game.batch", "16",
    "--game.learning-rate", "0.001", "--fit.updates", "5", "--fit.restarts", "2", "--fit.rounds", "1",
    "--curve-episodes", "4", "--eval-episodes", "4",
]  # fmt: skip


def test_a_worker_that_is_killed_is_one_line_and_the_run_resumes(tmp_path):
    trap = tmp_path / "trap"
    trap.write_text("")
    command = [
        "train", "fail", WALK, "--data", small_data(tmp_path / "d.npz"), "--out", str(tmp_path / "run"), "--quiet",
        "--gym.asynchronous", "--gym.num-envs", "2", "--gym.kwargs", json.dumps({"trap": str(trap)}), *SMALL,
    ]  # fmt: skip
    stopped = subprocess.run([sys.executable, "-m", "hyrlo", *command], capture_output=True, text=True, timeout=120)
    assert stopped.returncode == 2
    lines = stopped.stderr.strip().splitlines()
    assert lines[-1].startswith(f"error: {WALK}: a worker process died at step 2 of the episode with seed ")
    assert "exit code -9" in lines[-1]
    assert "--resume" in lines[-1]
    assert "Traceback" not in stopped.stderr
    assert not (tmp_path / "run" / "result.json").exists()
    assert main([*command, "--resume"]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["success_rate"] is None
    assert result["episodes"] == 3 * 40
    assert result["steps"] == (1 + 2 + 3) * 40
    assert multiprocessing.active_children() == []
    whole = ["--out", str(tmp_path / "whole"), "--gym.num-envs", "2", "--quiet", *SMALL]  # here, and not interrupted
    assert main(["train", "fail", WALK, "--data", str(tmp_path / "d.npz"), *whole]) == 0
    for name in ("policy.safetensors", "policy.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# The command line


def test_train_and_eval_by_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = small_data(tmp_path / "d.npz")
    kwargs = ["--gym.num-envs", "8", "--gym.kwargs", '{"ends": 2}']
    assert main(["train", "fail", WALK, "--data", data, "--seeds", "2", *kwargs, *SMALL]) == 0
    out = tmp_path / "runs" / "fail-gym-tests.gym_envs-Walk-v0-h3-seeds2"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["success_rate"] is None
    assert summary["return_mean"]["median"] == 3.0
    assert (out / "curve.png").exists()
    config = json.loads((out / "seed-0" / "config.json").read_text())
    assert config["env_options"] == {"num_envs": 8, "asynchronous": False, "kwargs": '{"ends": 2}'}
    assert main(["eval", str(out), "--episodes", "5"]) == 0
    capsys.readouterr()
    assert main(["eval", str(out / "seed-0"), "--episodes", "5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["return_mean"], result["success_rate"]) == (3.0, None)
    assert main(["list"]) == 0
    assert "gym:<id>" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["train", "fail", "gym:CartPole-v1"], "gym:CartPole-v1 has no behaviour data of its own; give --data"),
        (["train", "fail", "gym:CartPol-v1", "--data", "{data}"], "gym:CartPol-v1"),
        (
            ["train", "fail", "gym:CartPole-v1", "--data", "{data}"],
            "states have 2 dimensions but gym:CartPole-v1 has 4",
        ),
        (["train", "fail", "gym:CartPole-v1", "--lock.noise", "0.2"], "--lock.* options are for other environments"),
        (["train", "fail", "lock", "--gym.num-envs", "3"], "--gym.* options are for other environments"),
        (["train", "psdp", WALK, "--data", "{data}"], "reset_model(set_state=...)"),
        (["data", "collect", "lock", "--run", "x", "--out", "x.npz"], "--run is for gym:<id>"),
        (["data", "collect", "gym:CartPole-v1", "--transitions", "--out", "x.npz"], "no behaviour data of its own"),
        (["data", "collect", "gym:CartPole-v1", "--epsilon", "2", "--out", "x.npz"], "epsilon is 2.0"),
        (["data", "collect", "gym:CartPole-v1", "--run", "nowhere", "--out", "x.npz"], "nowhere"),
    ],
)
def test_wrong_commands_are_one_clear_line(argv, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = small_data(tmp_path / "d.npz")
    assert main([data if a == "{data}" else a for a in argv]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert said in line
    assert os.listdir(tmp_path) == ["d.npz"]


def test_collect_writes_observations_without_flag_and_absorbing_states(tmp_path, capsys):
    path = tmp_path / "states.npz"
    command = ["data", "collect", "gym:CartPole-v1", "--horizon", "60", "--episodes", "30", "--out", str(path)]
    assert main(command) == 0
    with np.load(path) as archive:
        observations, timesteps = archive["observations"], archive["timesteps"]
    counts = np.bincount(timesteps)
    assert observations.shape == (counts.sum(), 4)
    assert counts[0] == 30
    assert (np.diff(counts) <= 0).all()
    assert counts[-1] < 30
    first = path.read_bytes()
    assert main(command) == 0
    assert path.read_bytes() == first


def test_collect_follows_the_policies_of_runs(tmp_path):
    runs = [tmp_path / "left", tmp_path / "right"]
    data, world = small_data(tmp_path / "d.npz", horizon=4), walk(4)
    for out in runs:
        assert main(["train", "fail", WALK, "--data", data, "--out", str(out), "--quiet", *SMALL]) == 0
    out = tmp_path / "states.npz"
    command = ["data", "collect", WALK, "--episodes", "5", "--out", str(out)]
    assert main([*command, "--run", str(runs[0]), "--run", str(runs[1])]) == 0
    with np.load(out) as archive:
        assert archive["observations"].shape == (5, 5, 2)  # trajectories: none ended
    left, right = Always(jnp.asarray(0)), Always(jnp.asarray(2))
    steps = np.stack(collect_states(world, [left, right], 6).steps)[..., 0]
    np.testing.assert_allclose(np.diff(steps, axis=0), np.tile([-1, -1, -1, 1, 1, 1], (4, 1)), atol=1e-5)
    noisy = np.diff(np.stack(collect_states(world, [left], 200, epsilon=0.5).steps)[..., 0], axis=0)
    assert abs((np.abs(noisy + 1) > 0.5).mean() - 0.5 * 2 / 3) < 0.1
    assert main([*command, "--run", str(runs[0]), "--horizon", "6"]) == 2


# Reset models


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]
)
@pytest.mark.parametrize("asynchronous", [False])
def test_a_reset_continues_from_the_observation(name, asynchronous):
    """What follows a state is the same whether the environment came there by itself or was put there."""
    world = hyrlo.make(f"gym:{name}", 12, num_envs=4, asynchronous=asynchronous)
    action = jnp.asarray([0.3]) if world.spec.action_size else jnp.asarray(1)
    policy, at = switch(world.spec.uniform(), at=5, to=Constant(action)), 5
    trace = world.trace_model().rollout(KEY, policy, 6, record=(at, at + 1), next_states=True)
    model = world.reset_model()
    batch = model.rollout_from(KEY, trace.states[0], policy, at=at)
    assert isinstance(model, GymResetModel)
    np.testing.assert_array_equal(batch.states, trace.states[0])
    np.testing.assert_array_equal(batch.actions, trace.actions[0])
    np.testing.assert_allclose(batch.returns, trace.return_to_go[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch.rewards, trace.rewards[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(batch.ended, trace.ended[0])
    assert model.ledger.episodes == 6
    assert batch.next_states is None


def test_a_reset_to_positions_and_velocities_of_mujoco():
    pytest.importorskip("mujoco")
    world = hyrlo.make("gym:InvertedPendulum-v5", 8, num_envs=2)
    policy = Constant(jnp.asarray([0.2]))
    trace = world.trace_model().rollout(KEY, policy, 3, record=(2, 3), next_states=True)
    env = world.env
    world.reset_model().set_state(env.env, np.asarray(trace.states[0, 1, :-1]))
    np.testing.assert_allclose(env.env.step(np.array([0.6], np.float32))[0], trace.states[1, 1, :-1], atol=1e-5)
    batch = world.reset_model().rollout_from(KEY, trace.states[0], policy, at=2)
    np.testing.assert_allclose(batch.returns, trace.return_to_go[0], atol=1e-4)
    assert "reset_model(set_state=...)" in message(lambda: hyrlo.make("gym:Hopper-v5").reset_model())


def test_ended_observations_stay_where_they_are():
    world = hyrlo.make("gym:CartPole-v1", 10)
    states = jnp.asarray([[0, 0, 0, 0, 1], [0.01, 0, 0.01, 0, 0], [0, 0, 0.5, 0, 0]], jnp.float32)  # the last: fallen
    model = world.reset_model()
    batch = model.rollout_from(KEY, states, always(1), at=4)
    assert batch.returns.tolist() == [0, 6, 0]
    assert batch.ended.tolist() == [True, False, True]
    assert (model.ledger.episodes, model.ledger.steps) == (3, 6)
    np.testing.assert_array_equal(batch.states, states)


def test_a_reset_function_of_ones_own_reaches_workers():
    for asynchronous in (False, True):
        world = walk(6, num_envs=2, asynchronous=asynchronous)
        model = world.reset_model(set_state=lambda env, observation: env.unwrapped.set_state(observation))
        states = jnp.asarray([[4, 2, 0], [5, 3, 0], [6, 4, 0]], jnp.float32)
        batch = model.rollout_from(KEY, states, always(1), at=4)
        assert batch.returns.tolist() == [3 + 4, 4 + 5, 5 + 6]
        world.vector().close()
    wrong = walk(6).reset_model(set_state=lambda env, observation: observation[7])
    assert "raised IndexError" in message(lambda: wrong.rollout_from(KEY, states, always(1), at=4))


def test_simulators_go_back_to_a_state_exactly():
    pytest.importorskip("mujoco")
    env = gymnasium.make("Hopper-v5")
    env.reset(seed=0)
    simulator = resettable(env)
    assert isinstance(simulator, Resettable)
    action = np.full(3, 0.3, np.float32)
    env.step(action)
    state = simulator.get_state()
    first = [env.step(action)[0] for _ in range(5)]
    simulator.set_state(state)
    np.testing.assert_array_equal([env.step(action)[0] for _ in range(5)], first)
    own = gymnasium.make("Walk-v0")
    assert resettable(own) is own.unwrapped
    assert "get_state" in message(lambda: resettable(gymnasium.make("CartPole-v1")))


def test_psdp_runs_with_resets(tmp_path):
    data = tmp_path / "d.npz"
    assert main(["data", "collect", "gym:CartPole-v1", "--horizon", "30", "--episodes", "40", "--out", str(data)]) == 0
    small = ["--samples", "30", "--offline-samples", "30", *SMALL[SMALL.index("--fit.updates") :]]
    out = str(tmp_path / "run")
    assert main(["train", "psdp", "gym:CartPole-v1", "--horizon", "4", "--data", str(data), "--out", out, *small]) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["return_mean"] == 4.0


@pytest.mark.learning
def test_foobar_opens_the_lock_through_gymnasium_as_it_does_natively(tmp_path):
    """Natively it opens every lock of this size, which tests of learning show; here it is the same data."""
    data = tmp_path / "d.npz"
    hyrlo.make("lock", 3).behaviour_data(0, episodes=500).save(data)
    command = [
        "train", "foobar", LOCK_ID, "--horizon", "3", "--data", str(data), "--out", str(tmp_path / "run"), "--quiet",
        "--gym.num-envs", "100", "--forward.samples", "400", "--backward.samples", "400",
        "--curve-episodes", "16", "--eval-episodes", "200",
    ]  # fmt: skip
    assert main(command) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["success_rate"] >= 0.97
    assert result["steps"] == 400 * (1 + 2 + 3) + 400 * 3 * 3
