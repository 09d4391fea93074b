"""Gymnasium environments on the command line: runs, killed workers, data, and what is said if it fails."""

import json
import multiprocessing
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.cli.main import main
from hyrlo.envs.gym.collect import collect_states
from tests.locks import Always
from tests.walks import SMALL, WALK, small_data, walk


@pytest.mark.slow
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
    assert main(["eval", str(out), "--episodes", "5"]) == 2
    assert "would import module 'tests.gym_envs'" in capsys.readouterr().err
    assert main(["eval", str(out), "--episodes", "5", "--trust"]) == 0
    capsys.readouterr()
    assert main(["eval", str(out / "seed-0"), "--episodes", "5", "--json", "--trust"]) == 0
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
