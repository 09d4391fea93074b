"""Ctrl-C and SIGTERM at any moment: one line, exit code 130 or 143, nobody left behind, and the run resumes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hyrlo.core.signals import Interrupts, children_ignore_interrupts
from tests.test_cli import run
from tests.walks import SMALL as SMALL_WALK
from tests.walks import WALK, small_data

LONG = 60.0
EXIT = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(autouse=True)
def children_hear_interrupts():
    """What a shell starts in the background ignores SIGINT, and so do its children unless it says otherwise."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(*argv, **options):
    """The command as a process of a group of its own, so that a signal to the group does not reach the tests."""
    command = [sys.executable, "-m", "hyrlo", *map(str, argv)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        **options,
    )


def wait_for(process, happened):
    """Until something has happened; an error if the process ends before."""
    deadline = time.monotonic() + LONG
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has(pid, number, *fields):
    """Whether one of these signal masks of a process has the signal."""
    lines = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return any(int(words[1], 16) >> (number - 1) & 1 for words in lines if words[0] in fields)


def check_stopped(process, number, line):
    """It ends soon, with one line."""
    begin = time.monotonic()
    out, err = process.communicate(timeout=LONG)
    assert err.splitlines() == [line]
    assert "Traceback" not in out
    assert process.returncode == EXIT[number]
    assert time.monotonic() - begin < 15


def small_run(out):
    fit = ["--fit.updates", 20, "--fit.restarts", 2, "--fit.rounds", 1]
    return [
        "psdp-trace",
        "lock",
        "--horizon",
        4,
        "--samples",
        60,
        *fit,
        "--curve-episodes",
        20,
        "--out",
        out,
        "--quiet",
    ]


def lines_in(file):
    return len(file.read_bytes().splitlines()) if file.exists() else 0


@pytest.mark.parametrize(("number", "delay"), [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.3), (signal.SIGINT, 1.2)])
def test_during_the_first_seconds(number, delay, tmp_path):
    """From the first line of hyrlo on: before that there is only Python's own start."""
    process = start("train", *small_run(tmp_path / "run"))
    wait_for(process, lambda: has(process.pid, signal.SIGTERM, "SigCgt:"))
    time.sleep(delay)
    existed = (tmp_path / "run" / "config.json").exists()
    process.send_signal(number)
    check_stopped(process, number, "interrupted; continue with --resume" if existed else "interrupted")


def test_a_run_that_was_interrupted_resumes_to_the_same_bytes(tmp_path):
    folder = tmp_path / "run"
    for number, lines in ((signal.SIGINT, 1), (signal.SIGTERM, 2)):
        process = start("train", *small_run(folder), "--resume")
        wait_for(process, lambda lines=lines: lines_in(folder / "metrics.jsonl") >= lines)
        os.killpg(process.pid, number)  # as a terminal does
        check_stopped(process, number, "interrupted; continue with --resume")
    assert run("train", *small_run(folder), "--resume") == 0
    assert run("train", *small_run(tmp_path / "whole")) == 0
    for name in ("policy.safetensors", "policy.json"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def children_of(pid):
    """All processes below another."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found = {pid}
    while new := {child for child, parent in parents.items() if parent in found} - found:
        found |= new
    return found - {pid}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_are_ended_too(number, tmp_path):
    """SIGTERM to the command alone, Ctrl-C to all of its processes."""
    options = ["--data", small_data(tmp_path / "d.npz"), "--out", tmp_path / "run", "--quiet", *SMALL_WALK]
    workers = ["--gym.asynchronous", "--gym.num-envs", "2", "--gym.kwargs", json.dumps({"ends": 2})]
    process = start("train", "fail", WALK, *options, *workers)
    wait_for(process, lambda: len(children_of(process.pid)) >= 4)  # a server, a tracker, and two workers
    started = children_of(process.pid)
    assert all(has(pid, signal.SIGINT, "SigBlk:", "SigIgn:") for pid in started)  # Ctrl-C is none of their business
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    check_stopped(process, number, "interrupted; continue with --resume")
    deadline = time.monotonic() + 10
    while any(map(alive, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in started if alive(pid)]


FIRST = """
import signal, sys
class Look:
    def find_spec(self, name, *_):
        if name == "gymnasium":
            print(callable(signal.getsignal(signal.SIGTERM)))
sys.meta_path.insert(0, Look())
sys.orig_argv = {argv}
import hyrlo
"""


@pytest.mark.parametrize(
    ("argv", "expected"), [(["python", "-m", "hyrlo", "list"], True), (["python", "/usr/bin/hyrlo", "list"], True),
                           (["python", "-m", "pytest"], False), (["python", "-c", "import hyrlo"], False)],
)  # fmt: skip
def test_the_command_listens_before_it_imports_libraries_and_other_programs_keep_their_signals(argv, expected):
    code = FIRST.format(argv=argv)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(expected)]


def test_the_hint_is_the_first_one():
    interrupts = Interrupts()
    assert interrupts.line() == "interrupted"
    interrupts.then("the same command continues")
    interrupts.then("continue with --resume")
    assert interrupts.line() == "interrupted; the same command continues"


def test_children_do_not_hear_an_interrupt():
    with children_ignore_interrupts():
        child = subprocess.Popen(["sleep", "60"])
    child.send_signal(signal.SIGINT)
    time.sleep(0.1)
    assert child.poll() is None
    child.kill()
    child.wait()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
