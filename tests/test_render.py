"""`hyrlo eval DIR --render`: one episode as a GIF."""

import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageSequence

import hyrlo
from hyrlo.core.files import write_json
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Softmax
from hyrlo.runs.directory import FORMAT
from hyrlo.runs.render import render_run
from tests.test_cli import one_line_error, run


def constant(action, actions, inputs):
    bias = jnp.zeros(actions).at[action].set(100.0)
    return Softmax(MLP((jnp.zeros((inputs, actions)),), (bias,)))


def save_run(path, env, horizon, policy, **options):
    path.mkdir(parents=True, exist_ok=True)
    settings = {"format": FORMAT, "algo": "fail", "env": env, "seed": 0, "horizon": horizon, "env_options": options}
    write_json(path / "config.json", settings)
    hyrlo.save_policy(path, policy)
    return path


def length(file):
    """Seconds and pictures of a GIF. Equal pictures in a row are one that is shown longer."""
    with Image.open(file) as gif:
        shown = [(frame.info["duration"], frame.copy()) for frame in ImageSequence.Iterator(gif)]
    return sum(duration for duration, _ in shown) / 1000, [frame for _, frame in shown]


def test_an_episode_of_a_gym_run(tmp_path, capsys):
    pytest.importorskip("pygame")
    path = save_run(tmp_path / "run", "gym:CartPole-v1", 60, constant(1, 2, 5), num_envs=4)
    assert run("eval", path, "--episodes", 4, "--render") == 0
    assert "episode.gif" in capsys.readouterr().out
    env, steps, over = gymnasium.make("CartPole-v1"), 0, False
    env.reset(seed=0)
    while not over:
        over, steps = env.step(1)[2], steps + 1
    seconds, frames = length(path / "episode.gif")
    assert steps // 2 < len(frames) <= steps + 1  # pixels are coarse: some steps cannot be seen
    assert seconds == pytest.approx(0.02 * (steps + 1))
    assert frames[0].size == (600, 400)


def test_the_horizon_and_the_arguments_are_those_of_the_run(tmp_path):
    pytest.importorskip("pygame")
    path = save_run(
        tmp_path / "run", "gym:MountainCar-v0", 7, constant(2, 3, 3), kwargs=json.dumps({"goal_velocity": 0.5})
    )
    rendered = render_run(path, tmp_path / "car.gif", seed=2)
    assert rendered.frames == 8
    assert rendered.episode_return == -7
    assert length(rendered.file)[0] == pytest.approx(8 * 0.03)


def test_an_episode_of_a_lock_run(tmp_path, capsys):
    """The path through the lock; the policy is one that knows no flag."""
    inputs = hyrlo.make("lock", 5).spec.observation_size
    policy = Softmax(MLP.create(jax.random.key(0), (inputs, 10)))
    path = save_run(tmp_path / "run", "lock", 5, policy, seed=3)
    file = tmp_path / "lock.gif"
    assert run("eval", "--render", file, path, "--episodes", 4, "--json") == 0
    assert json.loads(capsys.readouterr().out)["render"] == str(file)
    seconds, frames = length(file)
    assert len(frames) == 6
    assert seconds == pytest.approx(6 * 0.25, abs=0.01)
    marked = [int((np.asarray(frame.convert("RGB")).min(axis=-1) < 100).sum()) for frame in frames]
    assert marked == [49 * (h + 1) for h in range(6)]
    assert run("eval", "--render", path, "--episodes", 4) == 0  # a directory is no file name
    assert (path / "episode.gif").read_bytes() == file.read_bytes()


def test_what_cannot_be_rendered_is_one_clear_line(tmp_path, capsys):
    walk = save_run(tmp_path / "walk", "gym:tests.gym_envs:Walk-v0", 4, constant(1, 3, 3))
    adversarial = save_run(tmp_path / "adversarial", "lock-adversarial", 4, constant(1, 10, 8))
    for argv, message in (
        ([walk, "--render", "--trust"], "gym:tests.gym_envs:Walk-v0: cannot be rendered"),
        ([adversarial, "--render"], "lock-adversarial: cannot be rendered"),
        ([adversarial, "--render", "episode.mp4"], "ends with .gif"),
    ):
        assert run("eval", *argv, "--episodes", 2) == 2
        assert message in one_line_error(capsys)
    assert not list(tmp_path.rglob("*.gif"))


def test_several_seeds_have_a_picture_each(tmp_path, capsys):
    inputs = hyrlo.make("lock", 2).spec.observation_size
    for seed in range(2):
        save_run(tmp_path / f"seed-{seed}", "lock", 2, constant(1, 10, inputs))
    assert run("eval", tmp_path, "--render", "one.gif", "--episodes", 2) == 2
    assert "several seeds" in one_line_error(capsys)
    assert run("eval", tmp_path, "--render", "--episodes", 2) == 0
    assert len(list(tmp_path.glob("seed-*/episode.gif"))) == 2
