"""Fast compilation for all tests, command-line runs included.

Compiled programs are kept in `.jax_cache` of the repository. Test processes (pytest --numprocesses) and later sessions share
them. Each process keeps to one core.
"""

import os
from pathlib import Path

# The older code generator for fusions and few optimisations halve the time to compile.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_multi_thread_eigen=false",
)
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("HYRLO_CACHE", str(Path(__file__).parent.parent / ".jax_cache"))

import jax
import pytest

from hyrlo.runs.cache import enable_compilation_cache

if folder := enable_compilation_cache():  # child processes read these
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


@pytest.fixture(autouse=True)
def optimise_long_runs(request):
    """Tests that train spend more time in their programs than on compiling them."""
    before = jax.config.read("jax_disable_most_optimizations")
    if request.node.get_closest_marker("learning"):
        jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


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
