"""Names from outside are printed as they are: no markup, no emoji codes; escapes are shown, not obeyed."""

import io

import numpy as np
import pytest
from rich.table import Table

from hyrlo.core.plain import visible
from hyrlo.runs.progress import PlainConsole, Progress
from tests.test_cli import one_line_error, run

NAME = "[red]x[/red] :smile: [link=http://a]b"
HOSTILE = NAME + "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r"
SHOWN = NAME + "\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\u202e\\r"


@pytest.mark.parametrize("terminal", [False, True])
def test_tables_and_lines_show_names_as_they_are(terminal):
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=terminal, width=200, color_system=None)
    shown = Table(HOSTILE, title=HOSTILE)
    shown.add_row(HOSTILE)
    console.print(shown, HOSTILE)
    text = file.getvalue()
    assert text.count(SHOWN) == 4
    assert not any(letter in text for letter in "\x1b\x07\x9b\u202e\r")


def test_progress_shows_names_as_they_are():
    for terminal in (False, True):
        file = io.StringIO()
        progress = Progress(label=HOSTILE, console=PlainConsole(file=file, force_terminal=terminal, width=200))
        progress.say("said")
        with progress.phase("forward", 1, 0) as bar:
            bar.note(NAME)
        text = file.getvalue()
        assert SHOWN in text
        assert "\x07" not in text
        assert "\x1b]0;" not in text


def test_visible_text_is_left_alone():
    for text in ("π ∘_h π′, 25–75 % · 世界 é", "two\nlines", ""):
        assert visible(text) == text
    assert visible("a\u200bb\x00\x7f") == "a\\u200bb\\x00\\x7f"


def test_commands_show_paths_and_columns_as_they_are(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("[bold]d.npz", observations=np.zeros((3, 4, 2), np.float32))
    assert run("data", "info", "[bold]d.npz") == 0
    assert "[bold]d.npz" in capsys.readouterr().out
    assert run("data", "import", "[bold]d.npz", "--out", ":smile:[red]e.npz") == 0
    assert "wrote :smile:[red]e.npz" in capsys.readouterr().out
    (tmp_path / "t.csv").write_text("timesteps,\x1b[31mevil\n0,nan\n1,2\n")
    assert run("data", "info", "t.csv") == 2
    assert "\x1b" not in one_line_error(capsys)
    assert run("eval", "runs/\x1b[31m[bold]none") == 2
    assert "runs/\\x1b[31m[bold]none" in one_line_error(capsys)
