"""Numbers that are too large for the memory are refused with the estimate, and leave no run directory behind."""

import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.cli.main import main
from hyrlo.core.memory import out_of_memory_in_one_line
from hyrlo.core.policies import Uniform
from hyrlo.runs.algorithms import ALGORITHMS
from tests.walks import KEY, message, small_data

GYM = "gym:CartPole-v1"
LARGE = str(10**12)
TOO_LARGE = {
    "horizon": ["fail", "lock", "--horizon", str(10**9)],
    "horizon whose states grow with it": ["fail", "lock", "--horizon", "200000"],
    "horizon of gym": ["sac", GYM, "--horizon", str(10**11)],
    "horizon beyond 64 bits": ["sac", GYM, "--horizon", str(10**30)],
    "samples": ["fail", "lock", "--horizon", "5", "--forward", "regression", "--samples", LARGE],
    "nested samples": ["foobar", "lock", "--horizon", "5", "--forward", "regression", "--forward.samples", LARGE],
    "offline samples": ["psdp", "lock", "--horizon", "5", "--offline-samples", LARGE],
    "replay": ["sac", GYM, "--replay", LARGE],
    "hidden": ["sac", GYM, "--hidden", str(10**7)],
    "features": ["fail", "lock", "--horizon", "5", "--forward", "regression", "--witness.features", LARGE],
    "evaluation": ["sac", GYM, "--eval-episodes", LARGE],
    "curve": ["sac", GYM, "--curve-episodes", LARGE],
    "actions": ["sac", "lock", "--horizon", "5", "--lock.actions", LARGE],
    "states": ["inter-fail", "discounted", "--discounted.states", str(10**7)],
    "environments": ["sac", GYM, "--gym.num-envs", str(10**9)],
}


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_what_cannot_fit_is_refused_with_the_estimate(kind, tmp_path, capsys):
    assert main(["train", *TOO_LARGE[kind], "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "of memory would be needed" in line or "whole number" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("env", ["lock", GYM])
def test_more_data_than_fit_are_not_collected(env, tmp_path, capsys):
    argv = ["data", "collect", env, "--horizon", "5", "--episodes", str(2**31 - 1), "--out", str(tmp_path / "a.npz")]
    assert main(argv) == 2
    assert "of memory would be needed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_more_episodes_of_evaluation_than_fit():
    model = hyrlo.make("lock", 5).trace_model()
    assert "episodes of evaluation" in message(lambda: hyrlo.core.access.evaluate(model, Uniform(10), KEY, 10**15))


def exhaust(*_):
    jnp.zeros(2**50)


def fill(*_, **__):
    np.zeros(2**50)


def overflow(*_):
    jnp.asarray(2**70)


def descend(*_):
    descend()


@pytest.mark.parametrize("fail", [exhaust, fill, overflow, descend])
def test_an_error_of_the_memory_is_one_line_and_the_directory_is_free_again(fail, tmp_path, monkeypatch):
    monkeypatch.setattr(type(ALGORITHMS["sac"]), "train", fail)
    out = tmp_path / "deep" / "run"
    line = message(lambda: hyrlo.train("sac", GYM, out=out))
    assert line.startswith("sac on gym:CartPole-v1: ")
    assert ("not enough memory" in line) == (fail in (exhaust, fill))
    assert len(line) < 400
    assert not out.parent.exists()


def test_an_error_of_the_memory_anywhere_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hyrlo.cli.data_read.read_states", fill)
    assert main(["data", "info", small_data(tmp_path / "a.npz")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: hyrlo data: there is not enough memory (Unable to allocate 8.00 PiB")


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="other"), out_of_memory_in_one_line("x"):
        raise RuntimeError("other")
