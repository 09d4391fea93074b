"""Compiled programs are kept between runs, in a folder that belongs to the user alone. Users' flags give the same bytes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from hyrlo.runs import cache
from hyrlo.runs.cache import enable_compilation_cache
from tests.walks import SMALL as WALK_SMALL
from tests.walks import WALK, small_data

SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user without a cache of their own, whose cache folder is `tmp_path`; JAX's settings come back afterwards."""
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    monkeypatch.setenv("HYRLO_CACHE", str(tmp_path / "cache"))
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)


def test_folder_is_private_and_of_this_version(folder):
    used = enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(used)
    assert used.parent == folder / "jax"
    assert used.name.startswith(f"{jax.__version__}-")
    assert used.stat().st_mode & 0o777 == 0o700
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 0
    assert jax.config.jax_persistent_cache_min_entry_size_bytes == -1
    assert enable_compilation_cache() == used


TRAIN = """
import sys
import jax
from hyrlo.cli.main import main
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
assert main(sys.argv[1:]) == 0
hits, asked = (events.count(f"/jax/compilation_cache/{name}") for name in ("cache_hits", "compile_requests_use_cache"))
print("hits", hits, asked)
"""


def users_environment():
    """Without the flags that make compilation fast in the tests; some of them change results."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}


SMALL = "--samples 64 --offline-samples 16 --fit.updates 4 --fit.restarts 2 --fit.rounds 1 --eval-episodes 8 --quiet"


@pytest.mark.slow
def test_second_run_loads_what_the_first_compiled_and_learns_the_same_bytes(folder, tmp_path):
    """Fresh processes with the flags that users have, not those of the tests."""
    env = users_environment()
    runs, policies = [], []
    for name in ("cold", "warm"):
        command = ["train", "psdp", "lock", "--horizon", "2", "--out", str(tmp_path / name), *SMALL.split()]
        process = [sys.executable, "-c", TRAIN, *command]
        runs.append(subprocess.run(process, env=env, capture_output=True, text=True, check=True))
        policies.append((tmp_path / name / "policy.safetensors").read_bytes())
    assert policies[0] == policies[1]
    (cold, asked), (warm, asked_again) = (map(int, run.stdout.split("hits")[1].split()) for run in runs)
    assert cold < asked
    assert warm == asked_again == asked
    assert [run.stderr for run in runs] == ["", ""]


KILLED = """
import os, signal, sys
from hyrlo.cli.main import main
from hyrlo.runs.directory import RunDirectory
keep = RunDirectory.keep
def keep_and_die(self, phase):
    keep(self, phase)
    if len(self.metrics) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
RunDirectory.keep = keep_and_die
main(sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jax", "gym"])
def test_with_the_flags_of_users_a_killed_run_resumes_to_the_same_bytes(kind, folder, tmp_path):
    """A whole run, and one that is killed after some steps and resumed: PSDP on a JAX world, FAIL on a Gymnasium one."""
    data = small_data(tmp_path / "data.npz")
    lines, *command = {
        "jax": [1, "psdp", "lock", "--horizon", "2", *SMALL.split()],
        "gym": [2, "fail", WALK, "--data", data, "--gym.num-envs", "2", "--quiet", *WALK_SMALL],
    }[kind]

    def train(name, *start):
        process = [sys.executable, *start, "train", *command, "--out", str(tmp_path / name)]
        done = subprocess.run(process, env=users_environment(), capture_output=True, text=True, timeout=300)
        return done.returncode, done.stderr

    assert train("whole", "-m", "hyrlo") == (0, "")
    assert train("killed", "-c", KILLED, str(lines))[0] == -signal.SIGKILL
    assert not (tmp_path / "killed" / "result.json").exists()
    assert len((tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()) == lines
    command.append("--resume")
    assert train("killed", "-m", "hyrlo") == (0, "")
    for name in ("policy.safetensors", "policy.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("value", ["off", "OFF", "0"])
def test_variable_turns_it_off(folder, monkeypatch, value):
    monkeypatch.setenv("HYRLO_CACHE", value)
    assert enable_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None


def test_argument_turns_it_off_also_afterwards(folder):
    assert enable_compilation_cache(False) is None
    assert not folder.exists()
    assert enable_compilation_cache() is not None
    assert enable_compilation_cache(False) is None
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize("enabled", [True, False])
def test_cache_of_the_user_stays(folder, tmp_path, enabled):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert enable_compilation_cache(enabled) == tmp_path / "own"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
    assert not folder.exists()


def test_folder_that_cannot_be_made_is_no_error(folder):
    folder.write_text("a file is in the way")
    assert enable_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None


def test_folder_of_another_user_is_not_trusted(folder, monkeypatch):
    enable_compilation_cache()
    monkeypatch.setattr(os, "geteuid", lambda: Path.home().stat().st_uid + 1)
    assert enable_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_folder_that_others_can_write_to_is_not_trusted(folder, mode):
    enable_compilation_cache().chmod(mode)
    assert enable_compilation_cache() is None


def test_default_is_the_users_cache_folder(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("HYRLO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert enable_compilation_cache().is_relative_to(tmp_path / "xdg" / "hyrlo")
    enable_compilation_cache(False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert enable_compilation_cache().is_relative_to(tmp_path / "Library" / "Caches" / "hyrlo")


def test_other_processor_has_another_folder(folder, monkeypatch):
    here = enable_compilation_cache()
    enable_compilation_cache(False)
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else "flags : sse2"
    monkeypatch.setattr(Path, "read_text", lambda *_: text.replace("flags\t\t:", "flags\t\t: avx999"))
    monkeypatch.setattr(cache.platform, "processor", lambda: "another")
    assert enable_compilation_cache() != here


def test_programs_unused_for_longest_go_first(folder, monkeypatch):
    used = enable_compilation_cache()
    for age, name in enumerate(("newest", "middle", "oldest")):
        (used / name).write_bytes(bytes(1000))
        os.utime(used / name, (1e9 - age, 1e9 - age))
    os.utime(used / "middle", (2e9, 1e9))  # read lately
    monkeypatch.setattr(cache, "MAX_BYTES", 2500)
    enable_compilation_cache(False)
    enable_compilation_cache()
    assert {path.name for path in used.iterdir()} == {"newest", "middle"}
    monkeypatch.setattr(cache, "MAX_BYTES", 1500)
    enable_compilation_cache(False)
    enable_compilation_cache()
    assert {path.name for path in used.iterdir()} == {"middle"}
