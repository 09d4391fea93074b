"""The examples run as they stand."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
def test_first_run_opens_the_lock(tmp_path, capsys):
    main = runpy.run_path(str(EXAMPLES / "first_run.py"))["main"]
    assert main(horizon=3, out=str(tmp_path / "run")) == 1
    assert (tmp_path / "run" / "curve.png").exists()
    assert "opens in 100%" in capsys.readouterr().out


def test_every_example_is_valid_python():
    """The one for Stable-Baselines3 needs a package that the tests do without."""
    for path in EXAMPLES.glob("*.py"):
        compile(path.read_text(), path.name, "exec")
