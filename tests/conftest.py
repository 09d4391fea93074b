"""Quick compiles for all tests, command-line runs included; what is compiled once is kept on disk for the session.

Test processes (pytest --numprocesses) share what is on disk, and keep to one core each.
"""

import os
import tempfile

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="hyrlo-tests-"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs():
    """Thousands of compiled programs in one process use up the memory maps that the system allows, and it crashes."""
    yield
    jax.clear_caches()


@pytest.fixture
def minari_home(tmp_path, monkeypatch):
    """Minari's data sets of this test, and no others."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"
