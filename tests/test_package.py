"""What is published: the wheel holds all that the five lines of the README need, and the address of every link is whole."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-c",
        f"import hatchling.build as b; b.build_sdist({str(out)!r}); b.build_wheel({str(out)!r})",
    ]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert len(list(out.glob("*.tar.gz"))) == 1
    return next(out.glob("*.whl"))


@pytest.mark.slow
def test_the_five_lines_run_from_the_wheel(wheel, tmp_path):
    """Unpacked into an empty folder, which is what pip does with it, away from the repository."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "installed")
    lines = re.search(r"## Five lines of Python\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(
        1
    )
    lines = lines.replace("horizon=10", "horizon=3") + "print(hyrlo.__file__)\n"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    told = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    *_, numbers, where = told.stdout.strip().splitlines()
    assert float(numbers.split()[0]) > 0.9
    assert where.startswith(str(tmp_path / "installed"))


@pytest.mark.slow
def test_the_wheel_needs_no_tools_of_developers(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        metadata = file.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert all(name.startswith("hyrlo") for name in names)
    assert "hyrlo/py.typed" in names
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not [line for line in needed if re.search(r"pytest|ruff|mypy|mkdocs|mujoco|torch|hypothesis", line)]


def test_the_project_has_addresses():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert {"Homepage", "Documentation", "Changelog"} <= set(urls)
    assert all(url.startswith("https://") for url in urls.values())
