"""Files of a run that are damaged, cut short, swapped or missing: the same policy in the end, or one line."""

import dataclasses
import errno
import itertools
import json
import os
import re
import resource
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hyrlo
from hyrlo.cli.main import main
from hyrlo.core import files
from hyrlo.core.access import Evaluation
from hyrlo.core.errors import RunError
from hyrlo.core.files import read_json, sealed, write_json
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Softmax
from hyrlo.core.replay import ReplayBuffer
from hyrlo.core.tensors import load_tensors, save_tensors
from hyrlo.runs.algorithms import ALGORITHMS
from hyrlo.runs.checkpoints import Checkpoints, without_trailing_zeros
from hyrlo.runs.contents import identity, read_result
from hyrlo.runs.directory import FORMAT, RunDirectory, kept_policy
from hyrlo.runs.metrics import read_lines

STEPS = 3
CHECKPOINTS = [f"checkpoint/{name}.safetensors" for name in ("forward", "forward-before", "online", "online-before")]
ROWS = [f"checkpoint/online-rows-{number:05d}.safetensors" for number in range(STEPS)]
UNFINISHED = ["config.json", "metrics.jsonl", "checkpoint/roll_in.safetensors", *CHECKPOINTS, *ROWS]
FINISHED = ["config.json", "metrics.jsonl", "result.json", "policy.json", "policy.safetensors"]


def policy_with(model, bias):
    return Softmax(MLP((jnp.zeros((model.spec.observation_size, 10)),), (jnp.arange(10.0) + bias,)))


def counting(model, source, config, key, run):
    """No learning, but all that a run can hold: two phases, rows, a replay buffer, a roll-in."""
    forward = run.phase("forward", range(STEPS), policy_with(model, 0.0), model)
    for h in forward:
        model.ledger.episodes += 1
        forward.done(h, policy_with(model, forward.state.network.biases[0][0] * 2 + h + 1), model.spec.uniform())
    run.keep_policy("roll_in", forward.state)
    first = {"x": jnp.tile(forward.state.network.biases[0][None, :5], 40)}
    start = ReplayBuffer.create({"x": jnp.zeros(200)}, 1000).add(first, jnp.ones(1, bool))
    online = run.phase("online", range(STEPS), start, model)
    seen = [rows[0] for rows in online.kept()]
    for h in online:
        model.ledger.episodes += 10
        fresh = jax.random.normal(jax.random.fold_in(key, h), (2, 200)) + online.state.rows["x"].sum()
        seen.append(fresh)
        online.keep((fresh,))
        online.done(h, online.state.add({"x": fresh}, jnp.ones(2, bool)), model.spec.uniform())
    return policy_with(model, online.state.rows["x"].sum() + sum(x.sum() for x in seen))


@pytest.fixture(scope="module", autouse=True)
def algorithm():
    """In place of `fail`; nothing is played or drawn."""
    with pytest.MonkeyPatch.context() as patch:
        replaced = dataclasses.replace(ALGORITHMS["fail"], function=f"{__name__}:counting")
        patch.setitem(ALGORITHMS, "fail", replaced)
        for place in ("hyrlo.runs.directory.evaluate", "hyrlo.runs.training.evaluate"):
            patch.setattr(place, lambda model, policy, key, episodes: Evaluation(1.0, 0.5, episodes))
        patch.setattr("hyrlo.runs.plots.curve", lambda path, metrics, title: path.write_bytes(b"a picture"))
        yield


WORLD = hyrlo.make("lock", 2)


def train(path, seed=0, **options):
    return hyrlo.train("fail", WORLD, seed=seed, out=path, curve_episodes=1, eval_episodes=1, cache=False, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "finished"
    train(path)
    return path


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory, finished):
    """Killed before the end: everything is there but the policy and the result."""
    path = tmp_path_factory.mktemp("damage") / "unfinished"
    train_and_stop(path)
    return path


def train_and_stop(path, **options):
    """Killed before the policy is written."""

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hyrlo.runs.training._finish", stop)
        with pytest.raises(KeyboardInterrupt):
            train(path, **options)


@pytest.fixture
def copy(unfinished, tmp_path):
    return shutil.copytree(unfinished, tmp_path / "copy")


def policy_bytes(path):
    return [(path / name).read_bytes() for name in ("policy.safetensors", "policy.json")]


def flipped(content, bit):
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def error_of(call):
    """What it says, in one line; nothing if it works."""
    try:
        call()
    except hyrlo.HyrloError as error:
        return str(error)
    return ""


def outcome(path, whole):
    """'same' if it resumes to the same policy and the same metrics, else the error, which must be one line."""
    said = error_of(lambda: train(path, resume=True))
    if said:
        assert "\n" not in said
        assert str(path) in said
        return said
    assert policy_bytes(path) == policy_bytes(whole)
    assert untimed(path) == untimed(whole)
    assert read_result(path)["episodes"] == STEPS * 11
    return "same"


def untimed(path):
    lines = read_lines(path, identity(read_json(path / "config.json")))
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def damages(content):
    """Bits of every part of a file, beginnings of it, and nothing at all."""
    size = len(content)
    header = 8 + int.from_bytes(content[:8], "little")
    places = {0, 7, 8, 20, 40, 60, header - 2, header, (header + size) // 2, size // 2, size - 2, size - 1}
    yield from (flipped(content, 8 * at + at % 8) for at in sorted(places) if 0 <= at < size)
    yield from (content[:length] for length in sorted({0, 1, 8, size // 2, size - 1}))
    yield from (None, content + b"\0", bytes(size))


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_damaged_file_of_an_unfinished_run(name, unfinished, finished, tmp_path):
    """The newest checkpoint is not needed. Other files are, or are made again."""
    content = (unfinished / name).read_bytes()
    found = set()
    for number, damaged in enumerate(damages(content)):
        path = shutil.copytree(unfinished, tmp_path / str(number))
        if damaged is None:
            (path / name).unlink()
        else:
            (path / name).write_bytes(damaged)
        if name == "config.json" and damaged is None:
            with pytest.raises(RunError, match="without its config"):
                train(path, resume=True)
            continue
        said = outcome(path, finished)
        assert said == "same" or name in said
        found.add(said == "same")
    if name.startswith("checkpoint") and name not in ROWS[:-1]:
        assert found == {True}
    else:
        assert False in found


@pytest.mark.parametrize("name", ["forward", "online"])
def test_the_checkpoint_before_is_used_with_a_warning(name, copy, finished):
    newest = copy / f"checkpoint/{name}.safetensors"
    newest.write_bytes(flipped(newest.read_bytes(), 1234))
    result = train(copy, resume=True).result
    (warning,) = result["warnings"]
    assert f"{name}.safetensors: does not match its checksum" in warning["what"]
    assert f"continues from the checkpoint before it, {name}-before.safetensors" in warning["what"]
    assert "\n" not in warning["what"]
    assert read_json(copy / "result.json")["warnings"] == [warning]
    assert policy_bytes(copy) == policy_bytes(finished)


def test_a_warning_outlives_the_session(copy):
    (copy / "checkpoint/online.safetensors").unlink()
    train_and_stop(copy, resume=True)
    assert "online.safetensors: is missing" in train(copy, resume=True).result["warnings"][0]["what"]


def test_a_kill_while_a_step_is_repeated_costs_no_later_step(copy, finished, monkeypatch):
    """The lines of later phases stay: their checkpoints count them."""
    (copy / "checkpoint/forward.safetensors").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "keep_policy", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            train(copy, resume=True)
    (warning,) = train(copy, resume=True).result["warnings"]  # of the session before
    assert "forward.safetensors: has 0 bytes" in warning["what"]
    assert policy_bytes(copy) == policy_bytes(finished)
    assert untimed(copy) == untimed(finished)


def test_the_good_checkpoint_is_not_replaced_by_the_damaged_one(copy):
    newest, before = (copy / f"checkpoint/online{end}.safetensors" for end in ("", "-before"))
    newest.write_bytes(b"")
    good = before.read_bytes()
    train(copy, resume=True)
    assert before.read_bytes() == good


def test_without_any_good_checkpoint_nothing_is_guessed(copy):
    for end in ("", "-before"):
        (copy / f"checkpoint/online{end}.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"online\.safetensors: has 7 bytes.* give another --out") as error:
        train(copy, resume=True)
    assert "\n" not in str(error.value)


def test_a_phase_whose_checkpoints_are_gone_begins_anew_and_says_so(copy, finished):
    for end in ("", "-before"):
        (copy / f"checkpoint/online{end}.safetensors").unlink()
    assert "phase online has no checkpoint, and begins anew" in train(copy, resume=True).result["warnings"][0]["what"]
    assert policy_bytes(copy) == policy_bytes(finished)


@pytest.mark.parametrize(("change", "warnings"), [(lambda x: [*x, '{"phase"'], 0), (lambda x: x[:-1], 1)])
def test_lost_lines_are_learned_again(change, warnings, copy, finished):
    """Beyond the checkpoint they do not matter; one line less, and the checkpoint before it is used."""
    metrics = copy / "metrics.jsonl"
    metrics.write_text("".join(change(metrics.read_text().splitlines(keepends=True))))
    assert outcome(copy, finished) == "same"
    assert len(read_result(copy)["warnings"]) == warnings


def test_a_metric_is_not_changed_by_hand(copy):
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    value = json.loads(lines[1])
    for changed in ({**value, "episodes": 7}, {k: v for k, v in value.items() if k != "checksum"}, sealed(value)):
        (copy / "metrics.jsonl").write_text("".join([lines[0], json.dumps(changed) + "\n", *lines[2:]]))
        with pytest.raises(RunError, match=r"metrics\.jsonl: line 2 (has no|does not match its) checksum"):
            train(copy, resume=True)


@pytest.mark.parametrize("name", FINISHED)
def test_a_damaged_file_of_a_finished_run(name, finished, tmp_path):
    """What is read of it is refused, or is what it was."""
    content = (finished / name).read_bytes()
    policy = hyrlo.load_policy(finished)
    for number, damaged in enumerate(damages(content)):
        path = shutil.copytree(finished, tmp_path / str(number))
        if damaged is None:
            (path / name).unlink()
        else:
            (path / name).write_bytes(damaged)
        for read in (lambda p=path: hyrlo.load_run(p)[1], lambda p=path: train(p, resume=True).policy):
            said = error_of(read)
            if said:
                assert name in said or damaged is None
            else:
                assert eqx.tree_equal(read(), policy)
                assert damaged is None or damaged + b"\n" == content or read_result(path) == read_result(finished)


@pytest.mark.parametrize("name", FINISHED)
def test_a_file_of_another_run_is_not_taken_for_its_own(name, finished, tmp_path):
    """The same but for the seed. Their policies differ, and so do their metrics."""
    train(tmp_path / "other", seed=1)
    path = shutil.copytree(finished, tmp_path / "copy")
    shutil.copy(tmp_path / "other" / name, path / name)
    with pytest.raises(RunError) as error:
        train(path, resume=True)
    assert name in str(error.value) or name == "config.json" or (name, "policy.safetensors") == ("policy.json", name)


def test_files_of_one_run_are_not_taken_for_each_other(unfinished, finished, tmp_path):
    places = [*CHECKPOINTS, *ROWS, "checkpoint/roll_in.safetensors"]
    for number, (one, other) in enumerate(itertools.pairwise(places)):
        path = shutil.copytree(unfinished, tmp_path / str(number))
        shutil.copy(unfinished / one, path / other)
        shutil.copy(unfinished / other, path / one)
        said = outcome(path, finished)
        assert said == "same" or "belongs to another run, or was renamed" in said


def test_a_run_of_another_seed_lends_no_checkpoint(unfinished, finished, tmp_path):
    train_and_stop(tmp_path / "other", seed=1)
    path = shutil.copytree(unfinished, tmp_path / "copy")
    for name in (*CHECKPOINTS, *ROWS):
        shutil.copy(tmp_path / "other" / name, path / name)
    with pytest.raises(RunError, match="belongs to another run"):
        train(path, resume=True)
    shutil.copy(tmp_path / "other" / "checkpoint/roll_in.safetensors", path / "checkpoint/roll_in.safetensors")
    with pytest.raises(RunError, match=r"roll_in\.safetensors: belongs to another run"):
        kept_policy(path, "roll_in")


def test_a_checksum_cannot_be_left_out(finished, tmp_path):
    for name in ("config.json", "result.json", "policy.json"):
        path = shutil.copytree(finished, tmp_path / name)
        value = json.loads((path / name).read_text())
        assert list(value)[-1] == "checksum"
        del value["checksum"]
        (path / name).write_text(json.dumps(value))
        with pytest.raises(RunError, match=f"{name}: has no checksum"):
            hyrlo.load_run(path)
        assert name in error_of(lambda path=path: train(path, resume=True))


def test_runs_of_format_2_are_refused_by_name(finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "old")
    value = json.loads((path / "config.json").read_text())
    del value["checksum"]
    (path / "config.json").write_text(json.dumps({**value, "format": FORMAT - 1}))
    with pytest.raises(RunError, match=r"old: was made by hyrlo .* cannot read it"):
        hyrlo.load_run(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage(unfinished, finished, tmp_path, data):
    """Up to three files, each with some bits flipped, or cut short: the same bytes, or one line."""
    path = tmp_path / "run"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(unfinished, path)
    for name in data.draw(st.lists(st.sampled_from(UNFINISHED), min_size=1, max_size=3, unique=True)):
        content = (path / name).read_bytes()
        if data.draw(st.booleans()):
            content = content[: data.draw(st.integers(0, len(content) - 1))]
        else:
            for bit in data.draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=3)):
                content = flipped(content, bit)
        (path / name).write_bytes(content)
    outcome(path, finished)


def test_a_buffer_takes_as_much_room_as_it_is_filled(tmp_path):
    empty = ReplayBuffer.create({"x": jnp.zeros(300)}, 10_000)
    rows = {"x": jnp.ones((3, 300)).at[1].set(-0.0)}
    state = empty.add(rows, jnp.ones(3, bool))
    about = {"finished": 1, "episodes": 1, "steps": 1, "metrics": 1, "seconds": 1.0, "rows": False, "recovered": []}
    kept = Checkpoints(tmp_path / "checkpoint", "run")
    leaves, structure = jax.tree.flatten(state)
    kept.keep("online", leaves, about)
    assert (tmp_path / "checkpoint/online.safetensors").stat().st_size < 3 * 300 * 4 + 1000
    found = Checkpoints(tmp_path / "checkpoint", "run").latest("online", leaves, lambda about: None, pytest.fail)
    restored = jax.tree.unflatten(structure, found.leaves)
    for one, other in zip(jax.tree.leaves(restored), leaves, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, np.inf, np.nan]), max_size=8), st.sampled_from(["f4", "i1", "?", "f8"])
)
def test_only_zeros_at_the_end_are_left_out(values, kind):
    with np.errstate(invalid="ignore"):
        array = np.array(values).astype(kind)
    kept = without_trailing_zeros(array)
    assert kept.tobytes() + bytes(array.nbytes - kept.nbytes) == array.tobytes()
    assert not kept.size or kept[-1:].tobytes().strip(b"\0")


def test_an_array_that_is_larger_than_the_state_is_not_allocated(copy):
    """The checksum is right, and the sizes it declares are those of the state: but the array is another."""
    path = copy / "checkpoint/online.safetensors"
    tensors, about = load_tensors(path)
    del about["checksum"]
    save_tensors(path, {**tensors, "0": np.ones(10**6, np.float32)}, about)
    assert "its arrays are not those that it declares" in train(copy, resume=True).result["warnings"][0]["what"]


def test_a_result_belongs_to_its_files(finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "copy")
    hyrlo.save_policy(path, WORLD.spec.uniform())
    with pytest.raises(RunError, match=r"policy\.json: is not the file that this run ended with"):
        hyrlo.load_run(path)
    assert read_result(finished)["algo"] == "fail"


def test_a_config_that_was_changed_by_hand_is_refused(copy):
    text = (copy / "config.json").read_text()
    (copy / "config.json").write_text(text.replace('"horizon": 2', '"horizon": 3'))
    for call in (lambda: train(copy, resume=True), lambda: hyrlo.load_run(copy)):
        with pytest.raises(RunError, match=r"config\.json: does not match its checksum"):
            call()
    (copy / "config.json").write_text(text.replace('{\n  "format"', '{\n\n  "format"'))  # the same values
    train(copy, resume=True)


def test_a_config_that_a_run_adds_to_keeps_its_identity(tmp_path):
    config = {"format": FORMAT, "algo": "fail", "env": "lock", "env_options": {}, "horizon": 2, "seed": 0}
    run = RunDirectory(tmp_path / "run", config)
    run.choose("forward", "latent", "measured")
    stored = read_json(tmp_path / "run" / "config.json")
    assert stored["chosen"]
    assert identity(stored) == run.identity != identity({**config, "seed": 1})
    write_json(tmp_path / "run" / "config.json", {**stored, "seed": 1})
    with pytest.raises(RunError, match="seed is 1 there and 0 here"):
        RunDirectory(tmp_path / "run", config, resume=True)


def full_disk_at(number):
    """An `fsync` that fails at its n-th call."""
    calls = itertools.count()

    def fsync(descriptor):
        if next(calls) == number:
            raise OSError(errno.ENOSPC, "No space left on device")

    return fsync


def disk_error(path):
    """The file that could not be written, if there is one."""
    try:
        train(path)
    except OSError as error:
        return error.filename
    return None


def test_a_full_disk_at_any_write_leaves_a_run_that_can_be_resumed(finished, tmp_path, monkeypatch):
    for number in itertools.count():
        path = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "fsync", full_disk_at(number))
            named = disk_error(path)
        if named is None:
            break
        assert named.startswith(str(path))
        assert not [file for file in path.rglob("*") if file.name.startswith(".hyrlo")]
        train(path, resume=True)
        assert policy_bytes(path) == policy_bytes(finished)
        assert untimed(path) == untimed(finished)
    assert number > 2 * 2 * STEPS


def test_limits_of_file_sizes_are_one_line(tmp_path, capsys):
    """As the operating system reports them, for file after file."""
    path, stopped = tmp_path / "run", set()
    command = ["train", "fail", "lock", "--horizon", "2", "--no-cache", "--quiet", "--out", str(path), "--resume"]
    for size in range(300, 20_000, 500):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            code = main(command)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        (said,) = capsys.readouterr().err.strip().splitlines() or ("",)
        if code == 0:
            break
        stopped.add(re.fullmatch(rf"error: {path}/(\S+): File too large; check the .* then --resume", said)[1])
        assert not path.exists() or not [name for name in os.listdir(path) if name.startswith(".hyrlo")]
    assert code == 0
    assert {"config.json", "checkpoint/online.safetensors"} <= stopped
    assert read_result(path)["warnings"] == []
