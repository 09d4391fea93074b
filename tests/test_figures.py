"""Figures: matplotlib is loaded when one is made, and its global state stays as it was."""

import subprocess
import sys

SCRIPT = """
import sys
import hyrlo.diagnostics.page
import hyrlo.experiments.theory_plots
from hyrlo.runs import plots

assert "matplotlib" not in sys.modules
lines = [{"episodes": n, "phase": "forward", "success_rate": 0.1 * n, "return_mean": 0.0} for n in range(1, 4)]
plots.curve(__import__("pathlib").Path(sys.argv[1]), [lines, lines], "two runs")
assert "matplotlib.pyplot" not in sys.modules
"""


def test_a_figure_needs_neither_pyplot_nor_a_backend(tmp_path):
    path = tmp_path / "curve.png"
    subprocess.run([sys.executable, "-c", SCRIPT, path], check=True)
    assert path.read_bytes().startswith(b"\x89PNG")
