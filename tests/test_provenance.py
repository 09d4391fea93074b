"""Which code made a run: the last commit of the package, uncommitted changes, or a hash of the source."""

import subprocess
import time

import pytest

import hyrlo
from hyrlo.core.errors import RunError
from hyrlo.core.files import write_json
from hyrlo.runs import provenance
from hyrlo.runs.directory import FORMAT, RunDirectory
from hyrlo.runs.provenance import code_of_package, running_code, short_name, source_hash


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def package(tmp_path):
    """A package in a git checkout, with one commit."""
    folder = tmp_path / "checkout" / "src" / "package"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "code.py").write_text("x = 1\n")
    git(tmp_path / "checkout", "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "code")
    return folder


def test_the_commit_is_the_last_that_touched_the_package(package):
    first = git(package, "rev-parse", "HEAD").strip()
    assert code_of_package(package) == {"commit": first, "dirty": False}
    (package.parents[1] / "notes.md").write_text("text")
    git(package.parents[1], "add", ".")
    git(package.parents[1], "commit", "-qm", "documentation")
    assert git(package, "rev-parse", "HEAD").strip() != first
    assert code_of_package(package) == {"commit": first, "dirty": False}
    (package / "inner" / "code.py").write_text("x = 2\n")
    git(package, "commit", "-qam", "more code")
    assert code_of_package(package) == {"commit": git(package, "rev-parse", "HEAD").strip(), "dirty": False}


def test_only_tracked_files_of_the_package_make_it_dirty(package):
    (package.parents[1] / "notes.md").write_text("text")
    git(package.parents[1], "add", "notes.md")
    (package / "new.py").write_text("")
    assert not code_of_package(package)["dirty"]
    (package / "inner" / "code.py").write_text("x = 2\n")
    one = code_of_package(package)
    assert one["dirty"]
    (package / "inner" / "code.py").write_text("x = 3\n")
    assert short_name(code_of_package(package)) != short_name(one)  # other changes on the same commit
    git(package, "commit", "-qam", "more code")
    assert not code_of_package(package)["dirty"]


def test_another_repository_in_the_environment_does_not_count(package, tmp_path, monkeypatch):
    code = code_of_package(package)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))  # as git hooks set it
    assert code_of_package(package) == code


def test_an_untracked_package_is_named_by_its_source(package, tmp_path, monkeypatch):
    installed = package.parents[1] / "site-packages" / "package"  # inside the checkout, but not part of it
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert code_of_package(installed) == {"wheel": source_hash(installed)}
    git(installed, "add", ".")
    assert code_of_package(installed) == {"wheel": source_hash(installed)}  # added, but in no commit
    (installed / "code.py").write_text("x = 1\n")
    before = source_hash(installed)
    (installed / "code.py").rename(installed / "other.py")
    assert source_hash(installed) != before
    tracked = code_of_package(package)
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", str(tmp_path))
        assert code_of_package(package) == {"wheel": source_hash(package)} != tracked
    git(package, "rm", "-rq", "--cached", ".")
    git(package, "commit", "-qm", "no longer tracked")
    assert code_of_package(package) == {"wheel": source_hash(package)}


def test_a_slow_git_is_not_waited_for(package, tmp_path, monkeypatch):
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent))
    monkeypatch.setattr(provenance, "TIMEOUT", 0.1)
    assert set(code_of_package(package)) == {"wheel"}


def test_names_and_time():
    running_code.cache_clear()
    begin = time.perf_counter()
    code = running_code()
    assert time.perf_counter() - begin < 2
    assert code["version"] == hyrlo.__version__
    assert running_code() is code
    assert short_name({"version": "1", "commit": "0123456789abcdef", "dirty": False}) == "0123456789"
    assert short_name({"version": "1", "commit": "0123456789abcdef", "dirty": True}) == "0123456789+"
    assert short_name({"commit": "0123456789abcdef", "dirty": True, "source": "fedcba98"}) == "0123456789+fedcba"
    assert short_name({"version": "1", "wheel": "0123456789abcdef"}) == "wheel-0123456789"
    assert short_name(None) == "unrecorded code"


def test_a_run_of_code_with_other_random_numbers_is_not_resumed(tmp_path):
    settings = {"format": FORMAT, "algo": "fail", "env": "lock", "env_options": {}, "horizon": 2, "seed": 0}
    write_json(tmp_path / "config.json", settings)
    with pytest.raises(RunError, match=r"begun by hyrlo 0.2.* give another --out"):
        RunDirectory(tmp_path, {**settings, "code": running_code()}, resume=True)
