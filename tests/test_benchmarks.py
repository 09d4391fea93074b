"""Benchmarks call the library's inner functions, so that they must run with it; how fast is not a matter of tests."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_section_runs():
    root = Path(__file__).parent.parent
    ran = subprocess.run([sys.executable, "-m", "benchmarks", "--quick"], cwd=root, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for section in ("lock (episodes)", "One forward step", "Exact MMD", "One iteration", "hammer-binary"):
        assert section in ran.stdout
