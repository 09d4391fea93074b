"""One process writes to a run directory, to its own files only, and a full disk or a kill leaves nothing half-written."""

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys

import pytest

from hyrlo.core import files
from hyrlo.core.errors import RunError
from hyrlo.core.files import atomic_file, remove_temporary, write_atomically
from hyrlo.runs import lock
from hyrlo.runs.directory import FORMAT, RunDirectory
from hyrlo.runs.lock import LOCK_FILE, WriterLock
from tests.test_cli import one_line_error, train_small

CONFIG = {"format": FORMAT, "algo": "fail", "env": "lock", "env_options": {}, "horizon": 2, "seed": 0}
CLAIM = """
import json, sys, time
from pathlib import Path
from hyrlo.core.errors import RunError
from hyrlo.runs.directory import RunDirectory

base, number, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in range(rounds):
    (base / f"ready-{i}-{number}").touch()
    while len(list(base.glob(f"ready-{i}-*"))) < 3:
        pass
    try:
        run = RunDirectory(base / f"run-{i}", json.loads(sys.argv[4]), resume=i % 2 == 1)
        print(i, "won", flush=True)
    except RunError as error:
        print(i, str(error), flush=True)
    (base / f"done-{i}-{number}").touch()
    while len(list(base.glob(f"done-{i}-*"))) < 3:  # the winner keeps its lock until all have tried
        time.sleep(0.001)
"""


@pytest.mark.slow
def test_of_processes_that_start_at_once_exactly_one_wins(tmp_path):
    """With and without --resume."""
    rounds = 40
    command = [sys.executable, "-c", CLAIM, str(tmp_path)]
    arguments = [str(rounds), json.dumps(CONFIG)]
    processes = [
        subprocess.Popen([*command, str(number), *arguments], stdout=subprocess.PIPE, text=True) for number in range(3)
    ]
    lines = [line for process in processes for line in process.communicate(timeout=120)[0].splitlines()]
    assert len(lines) == 3 * rounds
    for i in range(rounds):
        said = sorted(line.split(" ", 1)[1] for line in lines if line.startswith(f"{i} "))
        assert said.count("won") == 1, said
        for line in said:
            assert line == "won" or f"run-{i}: process " in line or f"run-{i}: already holds a run" in line
        assert {file.name for file in (tmp_path / f"run-{i}").iterdir()} == {"config.json", LOCK_FILE}


HOLD = (
    "import sys; from pathlib import Path; from hyrlo.runs.lock import WriterLock; lock = WriterLock(Path(sys.argv[1]))"
)


@pytest.fixture
def held(tmp_path):
    """A directory that another process writes to."""
    command = [sys.executable, "-c", f"{HOLD}; print('held', flush=True); sys.stdin.read()", str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_gets_one_line_that_names_the_first(held, tmp_path, capsys):
    for options in ((), ("--resume",)):
        assert train_small(tmp_path, *options) == 2
        said = one_line_error(capsys)
        assert f"{tmp_path}: process {held.pid} on " in said
        assert "is writing to this run; wait" in said
    assert os.listdir(tmp_path) == [LOCK_FILE]


def test_a_lock_dies_with_its_process(held, tmp_path):
    held.kill()
    held.wait()
    assert (tmp_path / LOCK_FILE).exists()
    taken = WriterLock(tmp_path)
    assert (tmp_path / LOCK_FILE).read_text().split()[0] == str(os.getpid())
    taken.release()
    taken.release()
    assert os.listdir(tmp_path) == []


def test_a_lock_is_not_kept_by_children_of_a_killed_process(tmp_path):
    """Such as the workers of an environment, which may live on for a while."""
    script = f"import os, time; {HOLD}; os.fork() or (print(os.getpid(), flush=True), time.sleep(60)); os._exit(0)"
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        WriterLock(tmp_path).release()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lock_on_a_file_that_its_owner_has_removed_is_none(tmp_path, monkeypatch):
    """A process may open the file, and get its lock only after the one before has removed it."""
    take, before = lock.fcntl.lockf, []

    def released_in_between(file, how):
        if not before:
            before.append(os.fstat(file).st_ino)
            (tmp_path / LOCK_FILE).unlink()
        take(file, how)

    monkeypatch.setattr(lock.fcntl, "lockf", released_in_between)
    taken = WriterLock(tmp_path)
    assert os.path.samestat(os.fstat(taken.file), os.stat(tmp_path / LOCK_FILE))
    taken.release()


def test_what_a_lock_file_says_is_not_trusted(held, tmp_path):
    for content in (b"1 \x1b[31m[bold]\n", b"\xff" * 50, b"", b"x" * 10_000):
        (tmp_path / LOCK_FILE).write_bytes(content)
        with pytest.raises(RunError, match=r": another process is writing to this run"):
            WriterLock(tmp_path)


def test_without_locks_of_the_platform_a_run_goes_on(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "lockf", none)
    RunDirectory(tmp_path / "run", CONFIG).release()
    monkeypatch.setattr(lock, "fcntl", None)
    RunDirectory(tmp_path / "other", CONFIG).release()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK_FILE).symlink_to(victim)
    with pytest.raises(OSError, match=re.escape(LOCK_FILE)):
        RunDirectory(tmp_path / "run", CONFIG)
    assert victim.read_text() == "mine"


@pytest.fixture
def begun(tmp_path):
    path = tmp_path / "run"
    RunDirectory(path, CONFIG).release()
    (path / "checkpoint").mkdir()
    return path


@pytest.mark.parametrize(
    "name",
    ["checkpoint", "metrics.jsonl", "policy.json", "result.json", "checkpoint/forward.safetensors",
     "checkpoint/forward-before.safetensors", "checkpoint/online-rows-00000.safetensors"],
)  # fmt: skip
@pytest.mark.parametrize("dangling", [False, True])
def test_links_are_refused_and_not_followed(name, dangling, begun, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / "victim"
    if name == "checkpoint":
        (begun / name).rmdir()
        target.mkdir()
        (target / f".hyrlo-{'0' * 32}.tmp").write_text("mine")
    elif not dangling:
        target.write_text("mine")
    (begun / name).symlink_to(target, target_is_directory=name == "checkpoint")
    before = {file: file.read_bytes() for file in elsewhere.rglob("*") if file.is_file()}
    with pytest.raises(RunError, match=f"{re.escape(str(begun / name))}: is (not a folder of its own but )?a link"):
        RunDirectory(begun, CONFIG, resume=True)
    assert {file: file.read_bytes() for file in elsewhere.rglob("*") if file.is_file()} == before


def test_a_pipe_in_place_of_a_file_is_not_waited_for(begun):
    os.mkfifo(begun / "metrics.jsonl")
    with pytest.raises(RunError, match=r"metrics\.jsonl: is a link or no file at all"):
        RunDirectory(begun, CONFIG, resume=True)


def test_only_temporary_files_are_removed(begun, tmp_path):
    """And of those, a link itself, not what it leads to."""
    victim, name = tmp_path / "victim", f".hyrlo-{'a' * 32}.tmp"
    victim.write_text("mine")
    (begun / name).symlink_to(victim)
    (begun / "checkpoint" / name).write_text("left behind")
    others = [
        ".notes.2024",
        ".config.json.4711",
        f".hyrlo-{'a' * 31}.tmp",
        f"x.hyrlo-{'a' * 32}.tmp",
        ".hyrlo-notes.tmp",
    ]
    others += [f"checkpoint/{other}" for other in others]
    for other in others:
        (begun / other).write_text("mine")
    folder = begun / f".hyrlo-{'b' * 32}.tmp"
    folder.mkdir()
    RunDirectory(begun, CONFIG, resume=True).release()
    assert all((begun / other).read_text() == "mine" for other in others)
    assert victim.read_text() == "mine"
    assert folder.is_dir()
    assert not os.path.lexists(begun / name)
    assert not (begun / "checkpoint" / name).exists()


def test_a_new_run_does_not_take_the_files_of_another(tmp_path):
    for name in ("metrics.jsonl", "policy.json", "curve.png", "checkpoint"):
        path = tmp_path / name.replace(".", "-")
        (path / name).mkdir(parents=True)
        with pytest.raises(RunError, match=rf"already holds files of a run \({name}\)|no file at all"):
            RunDirectory(path, CONFIG)
        assert os.listdir(path) == [name]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.md").write_text("mine")
    RunDirectory(tmp_path / "notes", CONFIG).release()  # other files are no obstacle


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    """Names cannot be guessed. If one were, the file is not opened."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f".config.json.{os.getpid()}").symlink_to(victim)
    write_atomically(tmp_path / "config.json", "one")
    monkeypatch.setattr(files.os, "urandom", lambda n: bytes(n))
    planted = tmp_path / f".hyrlo-{'0' * 32}.tmp"
    for plant in (lambda: planted.symlink_to(victim), lambda: planted.symlink_to(tmp_path / "new"), planted.touch):
        planted.unlink(missing_ok=True)
        plant()
        with pytest.raises(FileExistsError):
            write_atomically(tmp_path / "config.json", "two")
    assert victim.read_text() == "mine"
    assert (tmp_path / "config.json").read_text() == "one"
    assert not (tmp_path / "new").exists()


def test_files_have_the_rights_that_the_user_wants(tmp_path):
    for mask, rights in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            write_atomically(tmp_path / "file", "content")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == rights


def test_names_of_any_length_can_be_written(tmp_path):
    write_atomically(tmp_path / ("x" * 255), "content")


def test_a_kill_in_the_middle_of_a_write_leaves_what_resuming_removes(tmp_path):
    script = (
        "import sys; from pathlib import Path; from hyrlo.core.files import atomic_file\n"
        "with atomic_file(Path(sys.argv[1]) / 'file') as file:\n"
        "    file.write(b'half'); file.flush(); print('half', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    process.kill()
    process.communicate()
    (left,) = os.listdir(tmp_path)
    assert files.TEMPORARY.fullmatch(left)
    remove_temporary(tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_error_while_writing_names_the_file(tmp_path):
    with pytest.raises(OSError, match="No space") as error, atomic_file(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert error.value.filename == str(tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_a_refused_run_leaves_nothing(tmp_path):
    run_directory = RunDirectory(tmp_path / "a" / "b", CONFIG)
    run_directory.keep_rows("online", 0, ())
    run_directory.withdraw()
    assert os.listdir(tmp_path) == []
    (tmp_path / "mine").mkdir()
    run_directory = RunDirectory(tmp_path / "mine", CONFIG)
    (tmp_path / "mine" / "notes.md").write_text("mine")
    run_directory.withdraw()
    assert os.listdir(tmp_path / "mine") == ["notes.md"]
