"""What is no number, and run directories that are not what they were, are refused with one line."""

import json
import os
import shutil

import numpy as np
import pytest
import safetensors.numpy

import hyrlo
from hyrlo.core.files import read_json, write_json
from hyrlo.core.tensors import save_tensors
from hyrlo.runs.directory import MemoryRun
from hyrlo.runs.provenance import running_code
from hyrlo.runs.training import versions
from tests.test_cli import SMALL, one_line_error, run, train_small
from tests.walks import KEY, message


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("refusals") / "run"
    assert train_small(path) == 0
    return path


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("train foobar lock --horizon 3 --lock.anti-reward nan", "--lock.anti-reward is nan"),
        ("train foobar lock --horizon 3 --forward.game.learning-rate inf", "--forward.game.learning-rate is inf"),
        ("train sac lock --horizon 3 --gamma nan", "--gamma is nan"),
        ("train foobar lock --horizon 3 --seed 9223372036854775807 --seeds 2", "the last of --seeds is 9223372036854775808"),
        ("data collect lock --horizon 3 --out d.npz --epsilon nan", "--epsilon is nan"),
        ("data collect lock --horizon 3 --out d.npz --epsilon 2", "--epsilon is 2.0"),
        ("data collect lock --horizon 3 --out d.csv", "--out: d.csv will be an npz file"),
        ("data collect lock --horizon 3 --out none/d.npz", "none/d.npz: No such file or directory"),
    ],
)  # fmt: skip
def test_numbers_that_are_none_are_refused_by_name(argv, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*argv.split()) == 2
    error = one_line_error(capsys)
    assert said in error
    assert ("--resume" in error) == ("train" in argv and "No such" in said)
    assert not os.listdir(tmp_path)


def test_a_config_in_python_is_checked_as_well():
    assert "gamma is nan" in message(lambda: hyrlo.config("sac", gamma=float("nan")))


@pytest.mark.slow
def test_training_that_diverges_is_stopped_where_it_does(tmp_path, capsys):
    assert train_small(tmp_path / "run", "--backward.fit.learning-rate", "1e38") == 2
    assert "backward at step 2: loss is" in one_line_error(capsys)
    assert not (tmp_path / "run" / "result.json").exists()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["phase"] for line in lines] == ["forward"] * 3
    model = hyrlo.make("lock", 2).trace_model()
    run_in_memory = MemoryRun(KEY, 5)
    phase = run_in_memory.phase("forward", range(1), None, model)
    for _ in phase:
        said = message(lambda: phase.done(0, None, model.spec.uniform(), loss=float("inf")))
    assert "forward at step 0: loss is inf" in said
    assert not run_in_memory.metrics


def test_a_policy_with_numbers_that_are_none_is_neither_saved_nor_loaded(copy, capsys):
    file = copy / "policy.safetensors"
    tensors = safetensors.numpy.load_file(file)
    name = sorted(name for name, values in tensors.items() if values.ndim == 3)[0]
    policy = hyrlo.load_policy(copy)
    tensors[name][1, 2, 0] = np.nan
    arrays = save_tensors(file, tensors, {})
    write_json(copy / "policy.json", {**read_json(copy / "policy.json"), "arrays": arrays})
    assert run("eval", copy) == 2
    assert f"policy.safetensors: {name}[1, 2, 0] is nan" in one_line_error(capsys)
    broken = hyrlo.core.policies.Switch(policy, policy, np.array(np.inf))
    before = set(os.listdir(copy))
    assert "at[] is inf" in message(lambda: hyrlo.save_policy(copy, broken))
    assert set(os.listdir(copy)) == before


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", "{}", "config.json: is not the config of a hyrlo run"),
        ("config.json", "[]", "config.json: is not the config of a hyrlo run"),
        ("policy.json", "[]", "policy.json: does not describe a policy"),
        ("policy.json", '{"module": "Stack"}', "policy.json: has no checksum"),
        ("policy.json", {"module": "Stack"}, "does not hold the policy that policy.json describes"),
    ],
)
def test_a_damaged_run_is_not_evaluated(name, content, said, copy, capsys):
    if isinstance(content, dict):
        write_json(copy / name, {**content, "arrays": read_json(copy / name)["arrays"]})
    else:
        (copy / name).write_text(content)
    assert run("eval", copy) == 2
    assert said in one_line_error(capsys)


def test_options_that_no_environment_takes_are_one_line(copy, capsys):
    config = json.loads((copy / "config.json").read_text())
    config["env_options"]["noise"] = None
    (copy / "config.json").write_text(json.dumps(config))
    assert run("eval", copy) == 2
    assert "config.json: does not match its checksum" in one_line_error(capsys)
    write_json(copy / "config.json", config)
    (copy / "result.json").unlink()  # it has the checksum of the config
    assert run("eval", copy) == 2
    assert "config.json: env_options: noise is null; give a finite number of at least 0" in one_line_error(capsys)


@pytest.mark.parametrize(
    ("content", "said"), [("no json\n", "line 1 cannot be read"), ("", "has 0 lines where the checkpoint")]
)
def test_damaged_metrics_are_not_continued(content, said, copy, capsys):
    for name in ("result.json", "policy.json"):
        (copy / name).unlink()
    (copy / "metrics.jsonl").write_text(content)
    assert train_small(copy, "--resume") == 2
    error = one_line_error(capsys)
    assert "metrics.jsonl: " in error
    assert said in error


def test_several_seeds_do_not_mix_with_others(tmp_path, whole, capsys):
    many = tmp_path / "many"
    shutil.copytree(whole, many / "seed-0")
    (many / "seed-abc").mkdir()
    (many / "seed-abc" / "config.json").write_text("{}")
    assert train_small(many, "--seed", "1", "--seeds", "2", "--resume") == 2
    assert "already holds other seeds (seed-0)" in one_line_error(capsys)
    assert train_small(many, "--seeds", "1", "--resume") == 0
    assert run("eval", many, "--episodes", "8", "--json") == 0
    assert json.loads(capsys.readouterr().out.split("curve.png", 1)[-1].strip())["seed"] == 0


def test_resuming_leaves_files_of_others_alone(copy):
    others = [copy / "notes" / ".todo.1", copy / "notes.1"]
    (copy / "notes").mkdir()
    (copy / "result.json").unlink()  # else there is nothing to clean up for
    others += [copy / ".notes.2024", copy / ".result.json.123", copy / "checkpoint" / "my-rows-1.safetensors"]
    left_behind = copy / f".hyrlo-{'0' * 32}.tmp"
    for file in [*others, left_behind]:
        file.write_text("mine")
    assert train_small(copy, "--resume") == 0
    assert all(file.read_text() == "mine" for file in others)
    assert not left_behind.exists()


def test_a_source_is_not_written_over(tmp_path, capsys):
    file = tmp_path / "d.npz"
    np.savez(file, observations=np.zeros((2, 3, 1)))
    before = file.read_bytes()
    assert run("data", "import", file, "--out", tmp_path / "." / "d.npz") == 2
    assert "is the source itself" in one_line_error(capsys)
    assert file.read_bytes() == before
    assert train_small(file) == 2
    assert "is a file, not a folder" in one_line_error(capsys)


def test_a_saved_policy_has_a_folder_of_its_own(whole, tmp_path):
    hyrlo.save_policy(tmp_path / "new" / "policy", hyrlo.load_policy(whole))
    assert (tmp_path / "new" / "policy" / "policy.safetensors").read_bytes() == (
        whole / "policy.safetensors"
    ).read_bytes()


def test_resuming_nothing_says_so(tmp_path, capsys):
    refused = [*SMALL, "--forward.game.learning-rate", "1e38"]  # the first step diverges
    assert run("train", "foobar", "lock", "--horizon", 3, *refused, "--out", tmp_path / "typo", "--resume") == 2
    assert f"no run in {tmp_path / 'typo'} yet" in capsys.readouterr().err


def test_a_config_has_the_command_the_versions_and_the_code(whole):
    config, result = (json.loads((whole / name).read_text()) for name in ("config.json", "result.json"))
    assert config["code"] == result["code"] == running_code()
    assert config["command"].startswith("hyrlo train foobar lock --horizon 3 --out ")
    assert config["versions"] == versions()
    assert {"python", "hyrlo", "jax", "jaxlib", "scipy", "mujoco"} <= set(versions())
