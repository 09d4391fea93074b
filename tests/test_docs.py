"""The examples of README and docs run as they stand."""

import json
import re
import shlex
from pathlib import Path

import pytest

import hyrlo.cli.train
from hyrlo.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIAL = "own-environment.md"  # has a test of its own
EXAMPLES = {
    page.name: blocks
    for page in PAGES
    if page.name != TUTORIAL and (blocks := re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
}


@pytest.mark.slow
@pytest.mark.parametrize("page", EXAMPLES)
def test_python_examples_run(page, capsys):
    """The blocks of a page, one after the other."""
    names = {}
    for block in EXAMPLES[page]:
        exec(compile(block, page, "exec"), names)
    printed = capsys.readouterr().out
    if page == "README.md":
        success, episodes = printed.split()
        assert float(success) >= 0.95
        assert int(episodes) <= 6_000
        assert names["reward"] == 1  # the loop opened the lock


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


def name_of(page):
    return str(page.relative_to(ROOT))


class Parsed(Exception):
    """Raised in place of training."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_the_docs_parse(page, tmp_path, monkeypatch):
    """Every `hyrlo train …` of a page, on a line of its own or inline, is accepted; its files need not exist."""

    def parsed(*args, **kwargs):
        raise Parsed

    monkeypatch.setattr(hyrlo.cli.train, "_read_data", lambda *_: None)
    monkeypatch.setattr(hyrlo.cli.train, "train", parsed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = page.read_text()
    if page.name == TUTORIAL:
        (tmp_path / "cart.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
    commands = re.findall(r"^hyrlo (train [^#\n]*)|`hyrlo (train [a-z][^`…]*)`", text, re.M)
    for words in (shlex.split(line or inline) for line, inline in commands):
        if len(words) < 3 or words[1].startswith("-") or "ENV" in words:
            continue  # the name of a command, not a command
        if "--help" in words or "--print-config" in words:
            assert main(words[: words.index(">") if ">" in words else None]) == 0
            continue
        with pytest.raises(Parsed):
            main(words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_theorems_and_errata_have_one_numbering():
    """Pages and docstrings use the numbers of the table in results/theory.md, and errata of its list."""
    theory = (ROOT / "docs" / "results" / "theory.md").read_text()
    theorems = set(re.findall(r"^\| Theorem (\w\.\d)", theory, re.M))
    errata = set(re.findall(r"^(\d+)\. \*\*", theory.split("## Errata")[1].split("\n## ")[0], re.M))
    assert theorems == {"5.1", "5.2", "D.1", "D.2", "D.3", "E.1"}
    assert errata == {str(n + 1) for n in range(len(errata))}
    for page in [*PAGES, *sorted((ROOT / "src").rglob("*.py"))]:
        text = page.read_text()
        named = set(re.findall(r"Theorem[\s`]+(\w(?:\.\d)?)\b", text))
        assert named <= theorems, f"{name_of(page)}: {named - theorems}"
        said = set(re.findall(r"errat(?:um|a)\s+(\d+)", text))
        assert said <= errata, f"{name_of(page)}: erratum {said - errata}"
