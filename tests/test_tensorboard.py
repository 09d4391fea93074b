"""`--tensorboard`: the metrics of a run as TensorBoard reads them."""

import dataclasses
import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hyrlo.cli.main import main
from hyrlo.runs.algorithms import ALGORITHMS
from hyrlo.runs.tensorboard import TensorBoard
from tests.test_cli import one_line_error, run


def line(phase, h, steps, **more):
    return {"phase": phase, "horizon": h, "steps": steps, "seconds": float(steps), "success_rate": None, **more}


def scalars(directory):
    """Tag to (step, value) pairs, of the only event file there is."""
    assert len(list(directory.glob("events.out.tfevents.*"))) == 1
    events = EventAccumulator(str(directory)).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_number_of_a_line_is_a_scalar(tmp_path):
    metrics = [line("forward", 0, 100, mmd=0.5)]
    board = TensorBoard(tmp_path / "tensorboard")
    assert not board.directory.exists()  # nothing is written before there is something to write
    board(metrics[0])
    board(line("backward", 1, 250, loss=0.25))
    read = scalars(board.directory)
    assert read["forward/mmd"] == [(100, 0.5)]
    assert read["backward/loss"] == [(250, 0.25)]
    assert read["backward/horizon"] == [(250, 1.0)]
    assert not any("success_rate" in tag or "phase" in tag for tag in read)


def test_a_resumed_run_has_each_line_once(tmp_path):
    metrics = [line("forward", h, 100 * (h + 1), mmd=float(h)) for h in range(5)]
    TensorBoard(tmp_path).replay(metrics[:3])  # the checkpoint knows of two of them
    later = TensorBoard(tmp_path)
    later.replay(metrics[:1])
    later.replay(metrics[:2])
    for new in metrics[2:]:
        later(new)
    assert scalars(tmp_path)["forward/mmd"] == [(100 * (h + 1), float(h)) for h in range(5)]


def two_passes(model, source, config, key, run):
    """An algorithm that learns nothing, in two phases."""
    uniform = model.spec.uniform()
    for name in ("forward", "backward"):
        phase = run.phase(name, range(3), uniform, model)
        for h in phase:
            model.ledger.book(1, 10)
            phase.done(h, uniform, evaluate=uniform, loss=0.5 * h)
    return uniform


def test_the_flag_writes_what_metrics_jsonl_holds(tmp_path, monkeypatch):
    function = f"{__name__}:two_passes"
    monkeypatch.setitem(ALGORITHMS, "fail", dataclasses.replace(ALGORITHMS["fail"], function=function))
    out = tmp_path / "run"
    arguments = ["train", "fail", "lock", "--horizon", 3, "--out", out, "--curve-episodes", 5, "--eval-episodes", 5]
    assert run(*arguments) == 0
    assert not (out / "tensorboard").exists()
    lines = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
    for name in ("result.json", "policy.json", "policy.safetensors"):  # as if stopped before the last step
        (out / name).unlink()
    assert run(*arguments, "--resume", "--tensorboard") == 0
    check(scalars(out / "tensorboard"), lines)
    assert run(*arguments, "--resume", "--tensorboard") == 0  # of a finished run too
    check(scalars(out / "tensorboard"), lines)


def check(read, lines):
    for phase in ("forward", "backward"):
        of_phase = [entry for entry in lines if entry["phase"] == phase]
        for name in of_phase[0].keys() - {"phase", "seconds", "checksum"}:
            expected = [(entry["steps"], pytest.approx(entry[name])) for entry in of_phase]
            assert read[f"{phase}/{name}"] == expected


def test_without_tensorboard_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    out = tmp_path / "run"
    assert main(["train", "fail", "lock", "--horizon", "2", "--out", str(out), "--tensorboard"]) == 2
    assert "pip install 'hyrlo[tensorboard]'" in one_line_error(capsys)
    assert not out.exists()
