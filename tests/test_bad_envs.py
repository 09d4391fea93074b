"""Environments that misbehave: one line with step and seed, nothing counted wrongly, no run that blocks the next."""

import json
import threading
import time

import jax
import numpy as np
import pytest

import hyrlo
from hyrlo.cli.main import main
from hyrlo.core.policies import Uniform
from hyrlo.envs.gym.answers import number_of, shown, success_of, truth_of
from hyrlo.envs.gym.model import episode_seeds
from hyrlo.runs.render import render_strip
from tests.bad_envs import FAULTS, OUTSIDE, RESETS, SPACES, STEP, Bad, Spoilt
from tests.walks import KEY, SMALL, message, small_data

NAME = "gym:tests.bad_envs:Bad-v0"
HORIZON, N = 5, 3


def bad(horizon=HORIZON, num_envs=2, asynchronous=False, timeout=None, name=NAME, **kwargs):
    return hyrlo.make(name, horizon, num_envs=num_envs, asynchronous=asynchronous, timeout=timeout, kwargs=kwargs)


def seeds():
    return episode_seeds(jax.random.split(KEY)[0], N)


def played(world):
    """The message of a roll-out that fails, and what it cost."""
    model = world.trace_model()
    line = message(lambda: model.rollout(KEY, Uniform(2), N))
    return line, (model.ledger.episodes, model.ledger.steps)


def test_the_good_one_among_them_plays():
    model = bad().trace_model()
    assert model.rollout(KEY, Uniform(2), N).returns.tolist() == [HORIZON] * N
    assert (model.ledger.episodes, model.ledger.steps) == (N, N * HORIZON)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_bad_step_is_one_line_with_step_and_seed(kind):
    line, cost = played(hyrlo.make(lambda: Bad(step=kind), HORIZON, num_envs=2))
    said = FAULTS[kind][1]
    assert line.startswith(f"custom:Bad: {said}") or (said in line and line.startswith("custom:Bad: returned")), line
    assert f"at step {STEP} of the episode with seed {seeds()[0]}" in line
    assert "fix the environment" in line
    assert cost == (2, 2 * (STEP + 1))  # the step that failed has been taken, in both


@pytest.mark.parametrize("kind", RESETS)
def test_a_bad_reset_is_one_line_with_step_and_seed(kind):
    line, cost = played(bad(reset=kind))
    assert RESETS[kind][1] in line, line
    assert f"at step 0 of the episode with seed {seeds()[0]}" in line
    assert cost == (0, 0)


@pytest.mark.parametrize("kind", OUTSIDE)
def test_observations_outside_of_their_space(kind):
    line, _ = played(bad(name="gym:tests.bad_envs:Outside-v0", kind=kind))
    assert "returned" in line
    assert f"at step 0 of the episode with seed {seeds()[0]}" in line
    assert "raised" not in line


@pytest.mark.parametrize("kind", SPACES)
def test_spaces_that_cannot_be_used(kind):
    name = "gym:tests.bad_envs:Spoilt-v0"
    for make in (lambda: bad(name=name, kind=kind), lambda: hyrlo.make(Spoilt(kind), HORIZON)):
        line = message(make)
        assert any(said in line for said in ("no dimensions", "unsupported", "bounds")), line


def test_workers_say_the_same():
    for kind in ("four things", "terminated none", "exits"):
        world = bad(asynchronous=True, step=kind)
        line, cost = played(world)
        assert (line, cost) == played(bad(step=kind))
        world.vector().close()


def test_environment_objects_and_functions_say_the_same():
    for source in (Bad(step="terminated text"), lambda: Bad(step="terminated text")):
        model = hyrlo.make(source, HORIZON).trace_model()
        line = message(lambda model=model: model.rollout(KEY, Uniform(2), N))
        assert line.startswith("custom:Bad: returned 'False' as terminated")
        assert f"at step {STEP} of the episode with seed {seeds()[0]}" in line
    assert "raised SystemExit: 5" in message(lambda: hyrlo.make(lambda: Spoilt("exits"), HORIZON))
    assert "raised ZeroDivisionError: close" in message(lambda: hyrlo.make(lambda: Spoilt("close"), HORIZON))


def test_an_environment_that_exits_when_it_is_made():
    assert "cannot be made: SystemExit: 5" in message(lambda: bad(name="gym:tests.bad_envs:Spoilt-v0", kind="exits"))


@pytest.mark.parametrize(
    ("traits", "said"),
    [(7, "is of type int; give a dict"), ({"eval": 1}, "has 'eval'"), ({"eval_episodes": "9"}, "is '9'; its type is int"),
     ({"eval_episodes": -1}, "is -1"), ({"horizon_from_data": 1}, "its type is bool")],
)  # fmt: skip
def test_traits_of_other_types(traits, said, monkeypatch):
    monkeypatch.setattr(Bad, "hyrlo_traits", traits, raising=False)
    assert said in message(lambda: bad().traits)


def test_an_environment_that_exits_while_it_is_rendered(tmp_path):
    world = bad(step="exits")
    world.render_env = lambda: Rendering(step="exits")
    with pytest.raises(hyrlo.HyrloError, match="SystemExit: 0"):
        render_strip(world, Uniform(2), tmp_path / "a.png", steps=[0, 4])


class Rendering(Bad):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


def test_copies_of_other_sizes():
    world = hyrlo.make("gym:tests.bad_envs:Growing-v0", HORIZON, num_envs=2)
    assert "a copy of it cannot be made" in message(lambda: world.trace_model().rollout(KEY, Uniform(2), 2))


def test_a_module_that_exits_when_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "exits_at_once.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "SystemExit: 0" in message(lambda: hyrlo.make("gym:exits_at_once:X-v0", 3))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_environment_that_fails_when_it_is_closed_is_said(asynchronous, capfd):
    world = bad(name="gym:tests.bad_envs:Spoilt-v0", kind="close", asynchronous=asynchronous)
    assert world.trace_model().rollout(KEY, Uniform(2), 2).returns.tolist() == [0, 0]
    world.vector().close()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 or asynchronous  # of each environment; workers may write elsewhere
    assert all(line.startswith("warning: Spoilt: raised ZeroDivisionError: close (bad_envs.py, line") for line in lines)


# Environments that hang


@pytest.mark.parametrize("hang", ["step", "reset", "stubborn"])
def test_an_environment_that_hangs_is_stopped(hang):
    begin = time.monotonic()
    line, cost = played(bad(timeout=0.2, hang=hang))
    assert time.monotonic() - begin < 5
    step = 0 if hang == "reset" else STEP
    said = (
        f"{NAME}: gave no answer within 0.2 s at step {step} of the episode with seed {seeds()[0]}; fix the environment"
    )
    assert line.startswith(said)
    assert cost == ((0, 0) if hang == "reset" else (2, 2 * (STEP + 1)))


def test_a_worker_that_hangs_is_stopped():
    world = bad(asynchronous=True, timeout=0.2, hang="step")
    line, _ = played(world)
    assert line.startswith(f"{NAME}: gave no answer within 0.2 s at step {STEP} of the episode with seed {seeds()[0]}")
    world.vector().close()


def test_a_worker_that_does_not_hear_the_alarm_is_killed(monkeypatch):
    monkeypatch.setattr("hyrlo.envs.gym.vector.GRACE", -59.5)
    world = bad(asynchronous=True, timeout=60, hang="step")
    vector = world.vector()
    processes = list(vector.envs.processes)
    line, _ = played(world)
    said = f"a worker process gave no answer within 0.5 s at step {STEP} of the episode with seed {seeds()[0]}"
    assert said in line
    assert not any(process.is_alive() for process in processes)


def test_a_timeout_that_is_not_needed_changes_nothing():
    here, timed = (bad(timeout=timeout).trace_model().record(KEY, Uniform(2), N, 1) for timeout in (None, 30))
    np.testing.assert_array_equal(here.states, timed.states)
    assert bad().options == {"num_envs": 2, "asynchronous": False, "kwargs": "{}"}
    assert bad(timeout=30.0).options["timeout"] == 30


def test_timeouts_that_cannot_be():
    for value in (0, -1, float("nan"), float("inf"), 1e300):
        assert "timeout is" in message(lambda value=value: bad(timeout=value))


def test_a_timeout_in_another_thread_needs_workers():
    said = []

    def play():
        said.append(played(bad(timeout=1))[0])
        world = bad(timeout=60, asynchronous=True)
        said.append(world.trace_model().rollout(KEY, Uniform(2), 2).returns.tolist())
        world.vector().close()

    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
    assert "timeout works in the main thread on a POSIX system; else give asynchronous" in said[0]
    assert said[1] == [HORIZON] * 2


def test_ctrl_c_is_the_users():
    world = bad()
    world.vector().envs.envs[1].env.unwrapped.on_step = interrupted
    with pytest.raises(KeyboardInterrupt):
        world.trace_model().rollout(KEY, Uniform(2), N)


def interrupted(_):
    raise KeyboardInterrupt


# What is right in another form


def test_numbers_and_ends_of_other_types_are_taken():
    for value in (1, True, np.float32(1), np.int8(1), np.array(1.0), np.array([[1.0]]), [1.0]):
        assert number_of(value) == 1.0
    for value in (True, np.True_, 1, np.array(True), 1.0, np.int64(1)):
        assert truth_of(value, "terminated") is True
    assert truth_of(np.False_, "terminated") is False
    assert success_of(np.array([0, 1])) is True
    assert success_of(0.0) is False
    assert len(shown("x" * 1000)) < 100


# The command line


def command(tmp_path, capsys, *options, **kwargs):
    """The one line of stderr of a training that fails."""
    argv = ["train", "fail", NAME, "--data", small_data(tmp_path / "data.npz"), *SMALL, "--out", str(tmp_path / "run")]
    code = main([*argv, "--gym.kwargs", json.dumps(kwargs), "--quiet", *options])
    captured = capsys.readouterr()
    assert code == 2, captured
    (line,) = captured.err.splitlines()
    return line


def test_a_run_that_fails_in_its_first_step_leaves_nothing(tmp_path, capsys):
    line = command(tmp_path, capsys, step="observation (1,)")
    assert "observation of shape (1,) where its space has (2,) at step 2 of the episode with seed" in line
    assert not (tmp_path / "run").exists()
    line = command(tmp_path, capsys, "--gym.timeout", "0.2", hang="step")
    assert "gave no answer within 0.2 s" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gym.num-envs", str(10**9)], "1,000,000,000 environments: about 1"),
        (["--gym.timeout", "-1"], "timeout is -1.0"),
        (["--gym.kwargs", "[" * 100_000], "not JSON"),
    ],
)
def test_options_that_cannot_be(tmp_path, capsys, options, said):
    assert said in command(tmp_path, capsys, *options)
    assert not (tmp_path / "run").exists()
