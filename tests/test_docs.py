"""The examples of README and docs run as they stand."""

import re
from pathlib import Path

import pytest

from hyrlo.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [(page.name, block) for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_of_the_docs_parse(page, capsys):
    """Every `hyrlo train …` of a page is accepted up to its flags (`--help` stops it there)."""
    for command in re.findall(r"^hyrlo (train [^#\n]*)", page.read_text(), re.M):
        assert main([*command.split(), "--help"]) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), f"{page.name}: {link}"
