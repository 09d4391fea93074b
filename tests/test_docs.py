"""The examples of README and docs run as they stand."""

import json
import re
from pathlib import Path

import pytest

from hyrlo.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TUTORIAL = "own-environment.md"  # has a test of its own
BLOCKS = [
    (page.name, block)
    for page in PAGES
    if page.name != TUTORIAL
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page}-{i}" for i, (page, _) in enumerate(BLOCKS)])
def test_python_examples_run(page, block, capsys):
    exec(compile(block, page, "exec"), {})
    printed = capsys.readouterr().out
    if page == "README.md":
        success, episodes = printed.split()
        assert float(success) >= 0.95
        assert int(episodes) == 20_000


def test_data_commands_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^hyrlo (data .*?)(?:\s+#.*)?$", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) == 2
    for command in commands:
        assert main(command.split()) == 0


@pytest.mark.learning
def test_the_tutorial_leads_to_a_better_policy(tmp_path, monkeypatch, capsys):
    """Files and commands of own-environment.md, in their order."""
    page = (ROOT / "docs" / "own-environment.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module, logs = re.findall(r"```python\n(.*?)```", page, re.S)
    (tmp_path / "cart.py").write_text(module)
    exec(compile(logs, "logs.py", "exec"), {})
    operator = float(capsys.readouterr().out.split()[-1])
    for command in re.findall(r"^hyrlo (.*)$", "\n".join(re.findall(r"```sh\n(.*?)```", page, re.S)), re.M):
        assert main(command.split()) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert 0.1 < operator < 0.8
    assert result["success_rate"] > operator + 0.15


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_of_the_docs_parse(page, capsys):
    """Every `hyrlo train …` of a page is accepted up to its flags (`--help` stops it there)."""
    for command in re.findall(r"^hyrlo (train [^#\n]*)", page.read_text(), re.M):
        assert main([*command.split(), "--help"]) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), f"{page.name}: {link}"
