"""`hammer-binary`: step for step Gymnasium's hammer, its reward, its seeds, and runs by name."""

import json

import gymnasium
import jax
import mujoco
import numpy as np
import pytest
from PIL import Image

import hyrlo
from hyrlo.cli.main import main
from hyrlo.core.access import TraceModel
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Gaussian
from hyrlo.data.states import ObservationDataset
from hyrlo.envs import hammer
from hyrlo.envs.gym.model import episode_seeds
from hyrlo.envs.gym.sources import load_libraries
from hyrlo.envs.gym.wrappers import Start
from hyrlo.envs.hammer import NAME, HammerConfig, HammerVector, single_hammer
from hyrlo.runs.render import MUJOCO_HELP, render_strip
from tests.test_cli import one_line_error
from tests.walks import KEY, message, same

FORWARD = {
    "samples": 40, "offline-samples": 20, "rounds": 1, "hidden": 8, "updates": 4, "batch": 16,
    "features": 16, "dynamics.hidden": 8, "dynamics.updates": 4, "dynamics.batch": 16,
}  # fmt: skip
BACKWARD = {"iterations": 2, "steps": 16, "episodes": 4, "utd": 0.5, "batch": 16, "hidden": 8, "replay": 100}
SHORT = ["--curve-episodes", "2", "--eval-episodes", "4", "--quiet"]
NAIL = "nail_dir"
PUSHED = (0.0, 0.0795, 0.086)
"""Where the nail begins, in metres; the goal is at 0.091, and nearer than 0.01 to it is in."""


def options(prefix: str, values: dict) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{prefix}{name}", str(value))]


def smooth_actions(steps: int, rows: int) -> np.ndarray:
    """The hand goes down and closes, with slow noise that also leaves [−1, 1]."""
    rng, actions = np.random.default_rng(0), np.zeros((steps, rows, 26), np.float32)
    noise = np.zeros((rows, 26))
    for h in range(steps):
        noise = 0.8 * noise + 0.2 * rng.standard_normal((rows, 26))
        actions[h] = noise + np.concatenate([[1.0, 0.0, 0.0, 0.0], np.full(22, 0.8)])
    return actions


def gymnasium_steps(seed: int, pushed: float, actions: np.ndarray):
    """Observations and successes of the original environment."""
    load_libraries()
    env = gymnasium.make("AdroitHandHammer-v1", disable_env_checker=True)
    env.reset(seed=seed)
    scene = env.unwrapped
    scene.data.joint(NAIL).qpos[:] = pushed
    mujoco.mj_forward(scene.model, scene.data)
    steps = [env.step(action) for action in actions]
    return np.stack([step[0] for step in steps]), [bool(step[4]["success"]) for step in steps]


@pytest.mark.parametrize(("reward", "paid"), [("paper", (-1, 1)), ("shifted", (-1, 0)), ("scaled", (-93, 107))])
def test_every_step_is_gymnasiums(reward, paid):
    vector = HammerVector(hammer.load_model(), HammerConfig(reward, num_envs=4, threads=2))
    actions, seeds = smooth_actions(50, 4), [11, 12, 13]
    first, news = vector.reset(seeds, Start(3))
    assert news.ended.tolist() == [False, False, False, True]
    vector.batch.joint(NAIL).qpos[:3, 0] = PUSHED
    vector.batch.forward()
    observations, rewards, news = zip(*(vector.step(actions[h], h) for h in range(50)), strict=True)
    hammers = np.stack(observations)[:, :3, 36:39]
    assert (np.abs(hammers[-1] - hammers[10]).max(axis=1) > 0.01).any(), "the hammer lies where it fell"
    for row in range(3) if reward == "paper" else [2]:
        expected, success = gymnasium_steps(seeds[row], PUSHED[row], actions[:, row])
        np.testing.assert_allclose([o[row] for o in observations], expected, atol=1e-5, rtol=0)
        assert [bool(n.success[row]) for n in news] == success
        assert [r[row] for r in rewards] == [paid[s] for s in success]
    assert success == [True] * 50
    assert not any(n.success[0] or n.success[1] or n.ended.any() for n in news)
    assert first.shape == (4, 46)


def test_a_world_of_trace_models():
    world = hyrlo.make(NAME, num_envs=4)
    assert world.spec == hyrlo.core.access.Spec(50, 46, 0, 26, ends=False)
    model = world.trace_model()
    assert isinstance(model, TraceModel)
    batch = model.record(KEY, world.spec.uniform(), 6, steps=(0, 3), stop=5)
    assert (model.ledger.episodes, model.ledger.steps) == (6, 30)
    assert batch.returns.tolist() == [-5.0] * 6
    assert batch.return_to_go.tolist() == [[-5.0] * 6, [-2.0] * 6]
    assert not batch.success.any()
    assert not batch.ended.any()
    start_key, _ = jax.random.split(KEY)
    heights = [gymnasium.utils.seeding.np_random(s)[0].uniform(0.1, 0.25) for s in episode_seeds(start_key, 6)]
    nail = np.asarray(batch.states[0][:, 44])
    np.testing.assert_allclose(nail - heights, (nail - heights).mean(), atol=1e-6)  # the nail is fixed to the board
    assert len(set(heights)) == 6

    same(batch, model.record(KEY, world.spec.uniform(), 6, steps=(0, 3), stop=5))
    one = hyrlo.make(NAME, num_envs=4, threads=1).trace_model()
    three = hyrlo.make(NAME, num_envs=4, threads=3).trace_model()
    for other in (one, three):
        same(batch, other.record(KEY, world.spec.uniform(), 6, steps=(0, 3), stop=5))
    other = model.record(jax.random.key(8), world.spec.uniform(), 6, steps=(0, 3), stop=5)
    assert not np.array_equal(batch.states, other.states)

    own = np.array([[0, 3, 0, 3, 0, 3], [3, 0, 3, 0, 3, 0]])
    each = model.record(KEY, world.spec.uniform(), 6, steps=own, stop=5)
    for name in ("states", "actions", "return_to_go", "next_states", "rewards"):
        kept, all_kept = np.asarray(getattr(each, name)), np.asarray(getattr(batch, name))
        np.testing.assert_array_equal(kept, all_kept[(own == 3).astype(int), np.arange(6)], err_msg=name)
    assert model.evaluation().ledger.steps == 0


def test_the_horizon_may_be_another_and_actions_are_checked():
    assert hyrlo.make(NAME, 7).spec.horizon == 7
    assert "horizon is 0" in message(lambda: hyrlo.make(NAME, 0))
    assert "no option rewards; did you mean reward" in message(lambda: hyrlo.make(NAME, rewards="paper"))
    assert "reward is 'dense'" in message(lambda: hyrlo.make(NAME, reward="dense"))
    assert "num_envs is 0" in message(lambda: hyrlo.make(NAME, num_envs=0))
    assert "threads is -1" in message(lambda: hyrlo.make(NAME, threads=-1))
    assert "no reset model" in message(lambda: hyrlo.make(NAME).reset_model())
    world = hyrlo.make(NAME, 3, num_envs=2)
    broken = Gaussian(MLP.create(KEY, (46, 26)), np.full(26, np.inf))
    assert "at step 0 of the episode with seed" in message(lambda: world.trace_model().rollout(KEY, broken, 2))


@pytest.mark.parametrize(
    ("missing", "said"),
    [("gymnasium_robotics", "MuJoCo and Gymnasium-Robotics"), ("mujoco.batch", "MuJoCo 4 or later")],
)
def test_without_the_library_it_is_one_line(missing, said, monkeypatch, capsys):
    find = hammer.importlib.util.find_spec
    monkeypatch.setattr(hammer.importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    assert main(["train", "sac", NAME]) == 2
    error = one_line_error(capsys)
    assert f"needs {said}" in error
    assert "install hyrlo[robotics]" in error


def tiny_data(path, env, horizon, episodes=60, **options):
    """States under uniform actions."""
    world = hyrlo.make(env, horizon, **options)
    batch = world.trace_model().record(KEY, world.spec.uniform(), episodes, steps=tuple(range(horizon)))
    states = np.concatenate([batch.states, batch.next_states[-1:]])
    states = states[..., :-1] if world.spec.ends else states
    ObservationDataset.from_trajectories(states.swapaxes(0, 1)).save(path)
    return str(path)


@pytest.mark.slow
def test_train_and_eval_by_name(tmp_path, capsys):
    data, out = tiny_data(tmp_path / "d.npz", NAME, 3), tmp_path / "run"
    command = ["train", "fail", NAME, "--data", data, "--out", str(out), *SHORT, *options("", FORWARD)]
    command += ["--hammer.num-envs", "8"]
    assert main(command) == 2  # the horizon is the environment's, not that of the data
    assert "timesteps 0 … 3 but the horizon is 50" in one_line_error(capsys)
    assert main([*command, "--horizon", "2", "--hammer.reward", "shifted"]) == 0
    result = json.loads((out / "result.json").read_text())
    assert (result["success_rate"], result["return_mean"]) == (0.0, -2.0)
    assert (result["episodes"], result["steps"]) == (2 * 40, (2 + 2) * 40)  # the first policy looks ahead
    stored = json.loads((out / "config.json").read_text())
    assert stored["config"]["ahead"] == 3  # the settings for motion
    assert stored["env_options"] == {"reward": "shifted", "num_envs": 8, "threads": 0}
    capsys.readouterr()
    assert main(["eval", str(out), "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["success_rate"] == 0.0
    again = [*command, "--horizon", "2", "--hammer.reward", "shifted", "--out", str(tmp_path / "again")]
    assert main([*again, "--hammer.threads", "1"]) == 0
    one, other = ((path / "policy.safetensors").read_bytes() for path in (out, tmp_path / "again"))
    assert one == other


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["train", "fail", NAME], "hammer-binary has no behaviour data of its own; give --data"),
        (["train", "fail", NAME, "--data", "{data}"], "states have 2 dimensions but the environment's have 46"),
        (["train", "fail", NAME, "--lock.noise", "0.2"], "--lock.* options are for other environments"),
        (["train", "fail", "lock", "--hammer.threads", "2"], "--hammer.* options are for other environments"),
        (["train", "hyq", NAME, "--data", "{data}"], "{data}: has no array named actions"),
        (["data", "collect", NAME, "--out", "x.npz"], "no behaviour data of its own"),
    ],
)
def test_errors_are_one_line(argv, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", observations=np.zeros((4, 51, 2)))
    assert main([word.format(data="data.npz") for word in argv]) == 2
    assert said.format(data="data.npz") in one_line_error(capsys)


@pytest.mark.slow
def test_another_hand_needs_no_code(tmp_path):
    """`gym:` finds what Gymnasium-Robotics registers; FOOBAR runs on it with both passes."""
    env = "gym:AdroitHandDoor-v1"
    data, out = tiny_data(tmp_path / "door.npz", env, 2, episodes=100), tmp_path / "run"
    sizes = [*options("forward.", FORWARD), *options("backward.", BACKWARD), *SHORT]
    assert main(["train", "foobar", env, "--data", data, "--out", str(out), *sizes]) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["horizon"] == 2
    assert result["success_rate"] == 0.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--improve", "psdp"], "--improve: 'psdp' is not possible here; give sac"),
        (["--explore", "0.2"], "exploring pass tries every action"),
        (["--forward", "regression"], "--forward: 'regression' is not possible here; give model or importance"),
    ],
)
def test_what_action_vectors_rule_out_is_refused_before_anything_is_played(options, said, tmp_path, capsys):
    data = tmp_path / "states.npz"
    np.savez(data, observations=np.zeros((5, 3, 46)))
    command = ["train", "foobar", NAME, "--horizon", "2", "--data", str(data), "--out", str(tmp_path / "run")]
    assert main([*command, *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_frames_side_by_side(tmp_path):
    world, policy = hyrlo.make(NAME, 2), hyrlo.core.policies.UniformBox(26)
    file = tmp_path / "strip.png"
    assert "steps are (0, 3)" in message(lambda: render_strip(world, policy, file, steps=(0, 3)))
    assert "ends with .png" in message(lambda: render_strip(world, policy, tmp_path / "strip.gif"))
    try:
        rendered = render_strip(world, policy, file, seed=3, steps=(0, 2))
    except hyrlo.HyrloError as error:
        pytest.skip(f"cannot draw here: {error}")
    assert rendered == (file, 2, -2.0)
    pixels = np.asarray(Image.open(file))
    assert pixels.shape == (480, 960, 3)
    assert pixels.std() > 10
    assert (pixels[:, :480] != pixels[:, 480:]).any()


def test_what_cannot_be_drawn_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "glass")
    world = hyrlo.make(NAME, 2)
    said = message(lambda: render_strip(world, hyrlo.core.policies.UniformBox(26), tmp_path / "s.png", steps=(0,)))
    assert "hammer-binary: cannot be rendered" in said
    assert MUJOCO_HELP in said
    assert not list(tmp_path.iterdir())


def test_one_hammer_pays_like_many():
    world = hyrlo.make(NAME, 2, reward="shifted")
    env = single_hammer(world)
    env.reset(seed=0)
    _, reward, terminated, truncated, _ = env.step(np.zeros(26))
    assert (reward, terminated, truncated) == (-1.0, False, False)
    env.unwrapped.data.joint(NAIL).qpos[:] = 0.086
    _, reward, terminated, truncated, _ = env.step(np.zeros(26))
    assert (reward, terminated, truncated) == (0.0, False, True)


def test_what_mujoco_cannot_do_is_one_line(monkeypatch, capsys, tmp_path):
    assert main(["train", "sac", NAME, "--hammer.num-envs", str(3 * 10**9), "--out", str(tmp_path / "run")]) == 2
    assert "num-envs is 3000000000" in one_line_error(capsys)
    assert not list(tmp_path.iterdir())

    world = hyrlo.make(NAME, 2, num_envs=3)
    vector, model = world.vector(), world.trace_model()
    vector.reset([7, 8, 9], Start(3))

    def fail(*arguments):
        raise vector.failure(np.array([1]), "no room", 3)

    monkeypatch.setattr(vector.batch, "step", fail)
    assert "no room at step 1 of the episode with seed 8" in message(lambda: vector.step(np.zeros((3, 26)), 1))
    assert "no room at step 0" in message(lambda: model.rollout(jax.random.key(0), world.spec.uniform(), 5))
    assert (model.ledger.episodes, model.ledger.steps) == (3, 3)  # counted all the same
