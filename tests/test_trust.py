"""The run directory of someone else imports nothing, unless the user says that he trusts it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import pytest

import hyrlo
from hyrlo.core.files import read_json, write_json
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Softmax, Stack
from hyrlo.runs.trust import world_of_run
from tests.test_cli import one_line_error, run
from tests.test_render import save_run
from tests.walks import message, small_data

SRC = Path(hyrlo.__file__).parent.parent
H = 3
EVIL = "gym:runs.shared-run.evil:MountainCar-v0"
CODE = "from pathlib import Path\nPath(__file__).with_name('pwned').write_text('')\n"


def policy():
    return Stack.repeat(Softmax(MLP.create(jax.random.key(0), (3, 3))), H)


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A run from elsewhere with a module beside it, seen from the folder from which the module could be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = save_run(tmp_path / "runs" / "shared-run", EVIL, H, policy())
    (path / "evil.py").write_text(CODE)
    yield path
    assert not (path / "pwned").exists(), "the module was imported"
    assert not [name for name in sys.modules if name.endswith("evil")]


def test_no_command_imports_what_a_run_names(shared, tmp_path, capsys):
    data = small_data(tmp_path / "d.npz", H)
    plain = "gym:MountainCar-v0"
    refused = [
        ("eval", shared),
        ("eval", shared, "--render"),
        ("eval", shared, "--json"),
        ("data", "collect", plain, "--run", shared, "--out", "x.npz"),
        ("diagnose", plain, "--data", data, "--run", shared),
        ("train", "fail", plain, "--horizon", H, "--data", data, "--out", shared, "--resume"),
    ]
    for command in refused:
        assert run(*command) == 2
        error = one_line_error(capsys)
        assert str(shared) in error
        assert ("--trust" in error) == (command[0] == "eval"), error
    assert not (tmp_path / "x.npz").exists()
    # The policy of a roll-in is arrays. The world is the one that the user has named.
    small = ["--episodes", 4, "--updates", 2, "--batch", 4, "--hidden", 4, "--curve-episodes", 2, "--eval-episodes", 2]
    assert run("train", "distil", plain, "--horizon", H, "--roll-in", shared, "--out", "new", *small, "--quiet") == 0


def test_no_function_imports_what_a_run_names(shared):
    assert "trust=True" in message(lambda: hyrlo.load_run(shared))
    assert "trust=True" in message(lambda: hyrlo.evaluate_run(shared, 2))
    world = hyrlo.make("gym:MountainCar-v0", H)
    assert hyrlo.load_run(shared, world)[0] is world
    assert hyrlo.evaluate_run(shared, 2, world=world).episodes == 2
    env = hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), shared, seed=0)
    assert env.reset()[1]["roll_in_steps"] < H
    assert hyrlo.load_policy(shared).every == 1


def test_a_policy_names_registered_classes_only(shared, capsys):
    structure = read_json(shared / "policy.json")
    for name in ("runs.shared-run.evil:X", "evil", "os.system", "hyrlo.core.policies.Stack", "Policy.__init__"):
        write_json(shared / "policy.json", {**structure, "module": name})
        assert run("eval", shared, "--trust") == 2
        assert "error: " in one_line_error(capsys)


def test_the_command_does_not_look_into_the_current_folder(tmp_path):
    """Neither `hyrlo`, nor `python -m hyrlo`, which Python lets begin there; also where the user trusts the run."""
    path = save_run(tmp_path / "runs" / "shared", "gym:runs.shared.evil:X-v0", H, policy())
    (path / "evil.py").write_text(CODE)
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    script = [os.path.join(os.path.dirname(sys.executable), "hyrlo")]
    for start, options in ((script, []), ([sys.executable, "-m", "hyrlo"], ["--trust"])):
        told = subprocess.run(
            [*start, "eval", "runs/shared", *options], cwd=tmp_path, capture_output=True, text=True, env=environment
        )
        (line,) = told.stderr.strip().splitlines()
        assert told.returncode == 2
        assert ("set PYTHONPATH" if options else "add --trust") in line
        assert not (path / "pwned").exists()


def test_a_user_who_trusts_a_run_gets_its_world(tmp_path, capsys):
    path = save_run(tmp_path / "run", "gym:tests.gym_envs:Walk-v0", H, Softmax(MLP.create(jax.random.key(0), (3, 3))))
    assert "would import module 'tests.gym_envs'" in message(lambda: hyrlo.load_run(path))
    assert hyrlo.load_run(path, trust=True)[0].name == "gym:tests.gym_envs:Walk-v0"
    assert run("eval", path, "--episodes", 2, "--trust") == 0


@pytest.mark.parametrize("name", ["gym:MountainCar-v0", "gym:hyrlo/CombinationLock-v0", "lock", "hard-tree"])
def test_what_installed_packages_register_needs_no_trust(name, tmp_path):
    horizon = {"gym:hyrlo/CombinationLock-v0": 4}.get(name, 4)
    settings = {"env": name, "env_options": {}, "horizon": horizon}
    assert world_of_run(tmp_path / "config.json", settings).name == name


@pytest.mark.parametrize(
    ("kwargs", "allowed"),
    [
        ({"goal_velocity": 0.1}, True),
        ({"render_mode": "rgb_array"}, True),
        ({"goal_velocity": [1, True, None]}, True),
        ({"entry_point": "evil:make"}, False),
        ({"xml_file": "/tmp/evil.xml"}, False),
        ({"inner": {"deep": ["a.b"]}}, False),
        ({"os.system": 1}, False),
    ],
)
def test_arguments_that_may_name_a_module_or_a_file_need_trust(kwargs, allowed, tmp_path):
    options = {"num_envs": 2, "asynchronous": False, "kwargs": json.dumps(kwargs)}
    settings = {"env": "gym:MountainCar-v0", "env_options": options, "horizon": 4}
    try:
        world_of_run(tmp_path / "config.json", settings)
        said = ""
    except hyrlo.HyrloError as error:
        said = str(error)
    assert ("--trust" in said) == (not allowed), said


def test_diagnose_makes_its_world_without_arguments_of_others(tmp_path, capsys):
    data = small_data(tmp_path / "d.npz", H)
    path = save_run(tmp_path / "run", "gym:MountainCar-v0", H, policy(), kwargs='{"file": "../secret.py"}')
    assert run("diagnose", "gym:MountainCar-v0", "--data", data, "--run", path, "--out", tmp_path / "out") == 2
    assert "add --trust" in one_line_error(capsys)
    assert not (tmp_path / "out").exists()
