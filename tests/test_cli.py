"""The contracts of commands, flags, files, keys, exit codes and error lines."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from hyrlo.cli.main import main
from tests.algorithms.contract import BACKWARD, FORWARD

RESULT_KEYS = {
    "algo", "env", "seed", "horizon", "episodes", "steps", "return_mean", "success_rate",
    "eval_episodes", "wall_seconds", "spent", "chosen", "warnings", "versions", "code",
    "files", "checksum",
}  # fmt: skip
SMALL = [
    "--forward.samples", str(FORWARD), "--forward.offline-samples", "50", "--forward.witness.features", "32",
    "--forward.game.iterations", "20", "--forward.game.learning-rate", "0.001",
    "--backward.samples", str(BACKWARD),
    "--backward.fit.updates", "20", "--backward.fit.restarts", "2", "--backward.fit.rounds", "1",
    "--curve-episodes", "20", "--eval-episodes", "50",
]  # fmt: skip


def run(*argv):
    return main([str(a) for a in argv])


def train_small(out, *argv):
    return run("train", "foobar", "lock", "--horizon", 3, "--out", out, *argv, *SMALL)


def one_line_error(capsys):
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert lines[-1].startswith("error: ")
    assert "Traceback" not in captured.err
    return lines[-1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    assert train_small(path) == 0
    return path


def test_a_run_directory_holds_what_the_contract_says(finished):
    names = {p.name for p in finished.iterdir()}
    assert names == {
        "config.json", "metrics.jsonl", "checkpoint", "policy.safetensors", "policy.json", "curve.png", "report.html",
        "result.json",
    }  # fmt: skip
    assert set(json.loads((finished / "result.json").read_text())) == RESULT_KEYS
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["phase"] for line in lines] == ["forward"] * 3 + ["backward"] * 3
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((finished / "config.json").read_text())
    assert (config["algo"], config["env"], config["horizon"], config["seed"]) == ("foobar", "lock", 3, 0)
    assert config["config"]["forward"]["samples"] == FORWARD


def test_the_config_of_a_run_is_a_file_of_its_options(finished, capsys):
    assert run("train", "--config", finished / "config.json", "--seed", 5, "--print-config=json") == 0
    printed, record = json.loads(capsys.readouterr().out), json.loads((finished / "config.json").read_text())
    same = ("algo", "env", "env_options", "horizon", "config", "curve_episodes", "eval_episodes")
    assert {name: printed[name] for name in same} == {name: record[name] for name in same}
    assert printed["seed"] == 5


def test_seeds_give_a_directory_each_and_a_summary(tmp_path):
    assert train_small(tmp_path / "many", "--seeds", 2, "--seed", 5) == 0
    assert {p.name for p in (tmp_path / "many").iterdir()} == {"seed-5", "seed-6", "summary.json", "curve.png"}
    summary = json.loads((tmp_path / "many" / "summary.json").read_text())
    rates = [json.loads((tmp_path / "many" / f"seed-{s}" / "result.json").read_text())["success_rate"] for s in (5, 6)]
    assert summary["success_rate"]["median"] == pytest.approx(np.median(rates))
    assert summary["seeds"] == [5, 6]
    assert set(summary["success_rate"]) == {"median", "q25", "q75"}


def test_eval_prints_json_for_programs(finished, capsys):
    assert run("eval", finished, "--episodes", 64, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 64
    assert {"algo", "env", "seed", "horizon", "return_mean", "success_rate"} <= set(result)
    assert run("eval", finished, "--episodes", 64) == 0
    assert "success_rate" in capsys.readouterr().out


def test_list_names_everything(capsys):
    assert run("list") == 0
    text = capsys.readouterr().out
    for name in ("foobar", "fail", "psdp", "psdp-trace", "lock", "paper", "fast", "lean", "gym:<id>"):
        assert re.search(rf"\b{re.escape(name)}", text)
    assert "hyrlo[robotics]" in " ".join(text.split())


@pytest.mark.parametrize("argv", [["--help"], ["train", "--help"], ["train", "foobar", "--help"], ["eval", "--help"],
                                  ["data", "--help"], ["data", "collect", "--help"], ["list", "--help"]])  # fmt: skip
def test_help_helps(argv, capsys):
    assert run(*argv) == 0
    assert "hyrlo" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        "foobar lock", "foobar lock --preset paper", "foobar lock --improve sac", "foobar lock --explore 0.1",
        "foobar gym:Pendulum-v1", "foobar gym:CartPole-v1", "foobar hammer-binary", "fail lock", "hyq lock", "briee lock",
        "foobar lock --discriminator value-network --explore 0.1", "foobar lock --forward importance --discriminator value",
    ],
)  # fmt: skip
def test_help_shows_at_most_forty_options_that_apply(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert run("train", *words.split(), "--help") == 0
    text = capsys.readouterr().out
    assert 15 < len(re.findall(r"^[│| ]{1,3}--\w", text, re.M)) <= 40
    assert len(text.splitlines()) <= 120
    assert ("--lock." in text) == ("lock" in words)


@pytest.mark.slow
def test_all_options_are_shown_if_asked_for_and_hidden_ones_are_taken(capsys, tmp_path):
    assert run("train", "foobar", "gym:Pendulum-v1", "--help") == 0
    assert "--backward.tau" not in capsys.readouterr().out
    assert run("train", "foobar", "gym:Pendulum-v1", "--help-all") == 0
    assert "--backward.tau" in capsys.readouterr().out
    sizes = "--horizon 2 --iterations 1 --episodes 2 --hidden 4 --replay 50 --curve-episodes 2 --eval-episodes 2"
    assert run("train", "sac", "lock", *sizes.split(), "--tau", "0.01", "--out", tmp_path / "run") == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["tau"] == 0.01


@pytest.mark.parametrize(
    "words", ["fail --samples 500 lock", "sac --layer-norm lock", "fail --forward=model --seed 3 lock"]
)
def test_options_may_come_before_the_environment(words, capsys):
    assert run("train", *words.split(), "--help") == 0
    assert "--lock.noise" in capsys.readouterr().out


def test_values_of_options_are_not_taken_for_environments(capsys):
    """The folder's name used to change the defaults."""
    assert run("train", "foobar", "lock", "--out", "hammer-binary", "--help") == 0
    assert "--lock.noise" in capsys.readouterr().out


def test_presets_set_the_defaults(capsys):
    run("train", "foobar", "--preset", "paper", "--help")
    paper = capsys.readouterr().out
    assert re.search(r"--backward\.samples INT\s+.*?5000", paper, re.S)


def test_data_collect_writes_the_trajectory_layout_and_trains(tmp_path, capsys):
    path = tmp_path / "states.npz"
    assert run("data", "collect", "lock", "--horizon", 3, "--episodes", 60, "--seed", 1, "--out", path) == 0
    with np.load(path, allow_pickle=False) as archive:
        assert archive.files == ["observations"]
        assert archive["observations"].shape == (60, 4, 8)
    assert run("data", "info", path) == 0
    text = capsys.readouterr().out
    assert "duplicates" in text
    assert "horizon 3" in text
    assert (
        run("train", "foobar", "lock", "--data", path, "--out", tmp_path / "run", *SMALL) == 0
    )  # horizon from the data
    assert json.loads((tmp_path / "run" / "result.json").read_text())["horizon"] == 3


def test_data_import_renames_and_checks(tmp_path):
    source, target = tmp_path / "mocap.npz", tmp_path / "states.npz"
    frames = np.random.default_rng(0).normal(size=(20, 2, 3)).astype(np.float64)
    np.savez(source, frames=frames, t=np.repeat([0, 1], 10))
    assert run("data", "import", source, "--observations", "frames", "--timesteps", "t", "--out", target) == 0
    with np.load(target, allow_pickle=False) as archive:
        assert archive["observations"].shape == (10, 2, 6)


def test_psdp_trace_takes_a_roll_in_from_a_run(finished, tmp_path):
    small = [a.replace("backward.", "") for a in SMALL[SMALL.index("--backward.samples") :]]
    out = tmp_path / "run"
    assert run("train", "psdp-trace", "lock", "--horizon", 3, "--roll-in", finished, "--out", out, *small) == 0
    assert json.loads((out / "config.json").read_text())["roll_in"]["policy"]


def write_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def bad_data(tmp_path):
    good = np.zeros((5, 4, 8), np.float32)
    whole = write_npz(tmp_path / "whole.npz", observations=np.random.default_rng(0).normal(size=(50, 4, 8)))
    (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:900])
    bad = good.copy()
    bad[2, 1, 3] = np.nan
    infinite = good.copy()
    infinite[4, 0, 0] = np.inf
    objects = np.empty(3, object)
    objects[:] = [{"a": 1}, 2, "x"]
    steps = np.array([0, 0, 1, 3])
    return {
        "missing": (tmp_path / "none.npz", "no such file"),
        "truncated": (tmp_path / "cut.npz", "truncated"),
        "objects": (write_npz(tmp_path / "o.npz", observations=objects), "object arrays"),
        "size": (write_npz(tmp_path / "s.npz", observations=np.zeros((5, 4, 9))), "9 dimensions.*8"),
        "nan": (write_npz(tmp_path / "n.npz", observations=bad), "timestep 1, state 2, dimension 3 is nan"),
        "inf": (write_npz(tmp_path / "i.npz", observations=infinite), "timestep 0, state 4, dimension 0 is inf"),
        "gap": (
            write_npz(tmp_path / "g.npz", observations=np.zeros((4, 8)), timesteps=steps),
            "timestep 2 has no states",
        ),
        "short": (write_npz(tmp_path / "h.npz", observations=np.zeros((5, 3, 8))), "horizon is 3"),
        "names": (write_npz(tmp_path / "w.npz", states=good), "no array named observations"),
    }


@pytest.mark.parametrize("kind", ["missing", "truncated", "objects", "size", "nan", "inf", "gap", "short", "names"])
def test_bad_data_is_one_clear_line_and_leaves_nothing(kind, tmp_path, capsys):
    path, pattern = bad_data(tmp_path)[kind]
    before = set(os.listdir(tmp_path))
    assert train_small(tmp_path / "run", "--data", path) == 2
    line = one_line_error(capsys)
    assert re.search(pattern, line)
    assert path.name in line
    assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("argv", "pattern"),
    [
        (["train", "fobar", "lock"], "unknown algorithm 'fobar'; did you mean foobar"),
        (["train", "foobar", "lokc"], "unknown environment 'lokc'; did you mean lock"),
        (["train", "foobar", "lock", "--preset", "papr"], "unknown preset 'papr'; did you mean paper"),
        (["trian", "foobar", "lock"], "unknown command 'trian'; did you mean train"),
        (["train", "foobar", "lock", "--horizn", "3"], "--horizn"),
        (["train", "foobar", "lock", "--horizon", "three"], "--horizon"),
        (["train", "foobar", "lock", "--horizon", "0"], "horizon is 0"),
        (["train", "foobar", "lock", "--horizon", "3", "--seeds", "0"], "--seeds is 0"),
        (["train", "foobar", "lock", "--horizon", "3", "--seed", "-1"], "--seed is -1"),
        (["train", "foobar", "lock", "--horizon", "3", "--seed", str(2**63)], "--seed is 9"),
        (["train", "foobar", "lock", "--horizon", "3", "--lock.seed", "-1"], "seed is -1"),
        (["diagnose", "lock", "--horizon", "3", "--seed", "-1"], "--seed is -1"),
        (["data", "collect", "lock", "--horizon", "3", "--seed", "-1", "--out", "d.npz"], "--seed is -1"),
        (["train", "distil", "lock", "--horizon", "3"], "give --roll-in"),
        (["train", "foobar", "lock", "--horizon", "3", "--forward.samples", "0"], "samples is 0"),
        (["train", "foobar", "lock", "--horizon", "3", "--backward.samples", "-4"], "samples is -4"),
        (["train", "foobar"], "give an environment"),
        (["train"], "give an algorithm"),
        (["eval", "nowhere"], "nowhere"),
        (["data", "inof", "x"], "unknown data command 'inof'; did you mean info"),
        (["train", "foobar", "lock", "--horizon", "3", "--roll-in", "x"], "--roll-in"),
        (["train", "psdp-trace", "lock", "--horizon", "3", "--data", "{data}"], "roll-in"),
    ],
)
def test_wrong_commands_are_one_clear_line(argv, pattern, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = write_npz(tmp_path / "ok.npz", observations=np.zeros((5, 4, 8)))
    assert run(*(str(data) if a == "{data}" else a for a in argv)) == 2
    assert pattern in one_line_error(capsys)
    assert os.listdir(tmp_path) == ["ok.npz"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--horizon", "4"], "has policies for 3 steps"),
        (["--horizon", "3", "--lock.actions", "5"], "has 10 actions, lock 5"),
        (["--horizon", "3", "--data", "ok.npz"], "learns from a roll-in, not from states"),
    ],
)
def test_a_roll_in_that_does_not_fit_is_refused(options, said, finished, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("ok.npz", observations=np.zeros((2, 4, 8)))
    assert run("train", "psdp-trace", "lock", *options, "--roll-in", finished, "--out", "a/run") == 2
    assert said in one_line_error(capsys)
    assert os.listdir(tmp_path) == ["ok.npz"]


def test_a_refused_run_leaves_the_folders_that_were_there(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    options = ["--horizon", "3", *SMALL, "--forward.game.learning-rate", "1e38"]  # the first step diverges
    assert run("train", "foobar", "lock", *options, "--out", tmp_path / "mine") == 2
    assert "training has diverged" in one_line_error(capsys)
    assert run("train", "foobar", "lock", *options, "--out", tmp_path / "new" / "run", "--seeds", "2") == 2
    one_line_error(capsys)
    assert os.listdir(tmp_path) == ["mine"]
    assert not os.listdir(tmp_path / "mine")


def test_the_command_finds_a_module_in_the_current_folder(tmp_path):
    """As a script, whose own folder is elsewhere; the module registers nothing, which is what is complained about."""
    (tmp_path / "beside.py").write_text("")
    script = os.path.join(os.path.dirname(sys.executable), "hyrlo")
    told = subprocess.run([script, "train", "sac", "gym:beside:Cart-v0"], cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 2
    assert "Cart" in told.stderr
    assert "No module" not in told.stderr


def test_a_directory_with_another_run_is_refused(finished, capsys):
    before = (finished / "config.json").read_bytes()
    assert train_small(finished) == 2
    assert "already holds a run" in one_line_error(capsys)
    assert train_small(finished, "--resume", "--seed", 7) == 2
    assert "seed is 0 there and 7 here" in one_line_error(capsys)
    assert train_small(finished, "--resume", "--backward.fit.decay", 0.5) == 2
    assert "decay" in one_line_error(capsys)
    assert train_small(finished, "--seeds", 2) == 2
    one_line_error(capsys)
    assert (finished / "config.json").read_bytes() == before


def test_damaged_checkpoints_are_refused(finished, tmp_path, capsys):
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", finished, copy], check=True)
    for name in ("result.json", "policy.json", "policy.safetensors"):
        (copy / name).unlink()
    for name in ("backward.safetensors", "backward-before.safetensors"):
        checkpoint = copy / "checkpoint" / name
        checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    assert train_small(copy, "--resume") == 2
    assert "backward.safetensors: has 100 bytes" in one_line_error(capsys)


def test_resuming_a_finished_run_changes_nothing(finished, capsys):
    before = (finished / "result.json").read_bytes()
    assert train_small(finished, "--resume") == 0
    assert (finished / "result.json").read_bytes() == before


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert train_small(blocked / "run") == 2
    assert str(blocked) in one_line_error(capsys)
    assert train_small("/proc/hyrlo-run") == 2
    one_line_error(capsys)
    assert run("data", "collect", "lock", "--horizon", 3, "--episodes", 5, "--out", blocked / "x.npz") == 2
    one_line_error(capsys)


@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache")
def test_a_full_disk_is_one_line_and_leaves_no_half_file(tmp_path, capsys):
    path = tmp_path / "states.npz"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # writing more fails, as on a full disk
    try:
        code = run("data", "collect", "lock", "--horizon", 3, "--episodes", 2000, "--out", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    one_line_error(capsys)
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("lines_before_kill", [1, 4])
def test_a_killed_run_resumes_to_the_same_bytes(lines_before_kill, finished, tmp_path):
    """SIGKILL in the forward and in the backward phase; the rest of the run is a new process."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "hyrlo", "train", "foobar", "lock", "--horizon", "3", "--out", str(out), *SMALL]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    metrics = out / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= lines_before_kill:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.005)
    process.wait()
    assert not (out / "result.json").exists(), "the run ended before it could be killed"
    assert subprocess.run([*command, "--resume"], capture_output=True).returncode == 0
    for name in ("policy.safetensors", "policy.json"):
        assert (out / name).read_bytes() == (finished / name).read_bytes()
