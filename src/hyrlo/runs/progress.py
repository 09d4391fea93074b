"""Live progress: phase, step, success so far and time left; plain lines where there is no terminal."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from hyrlo.core.plain import visible


class PlainConsole(Console):
    """Prints text as it is, without markup or emoji codes; control characters are shown. Colour is `rich.text.Text`."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **{**options, "markup": False, "emoji": False})


class Bar:
    """One phase's bar."""

    def __init__(self, name: str, total: int, finished: int, advance: Any, scores: bool = True):
        self.name, self.total, self.finished, self._advance, self.scores = name, total, finished, advance, scores

    def advance(self, line: dict[str, Any]) -> None:
        success = line["success_rate"]
        score = f"return {line['return_mean']:.2f}  " if success is None else f"success {success:.2f}  "
        self.note(f"{score * self.scores}{line['episodes']:,} episodes")

    def note(self, text: str) -> None:
        """One more is finished; say this beside the bar."""
        self.finished += 1
        self._advance(self, text)


class Progress:
    """Bars on a terminal and in notebooks (with ipywidgets), a line for every tenth of a phase elsewhere."""

    def __init__(self, enabled: bool = True, label: str = "", console: Console | None = None):
        self.enabled, self.label = enabled, label
        self.console = console or PlainConsole(stderr=True)
        self.scores = True

    def without_scores(self, label: str) -> Progress:
        """For work whose evaluations are too few to be shown."""
        other = Progress(self.enabled, f"{label}  ", self.console)
        other.scores = False
        return other

    def say(self, line: str) -> None:
        """A line that stays."""
        if self.enabled:
            print(visible(f"{self.label}{line}"), file=self.console.file, flush=True)

    @contextmanager
    def phase(self, name: str, total: int, finished: int) -> Iterator[Bar]:
        if not self.enabled or finished >= total:
            yield Bar(name, total, finished, lambda bar, note: None)
        elif not self.console.is_terminal and not _in_notebook(self.console):
            yield Bar(name, total, finished, self._print_line, self.scores)
        else:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            with RichProgress(*columns, console=self.console) as bars:
                task = bars.add_task(
                    visible(f"{self.label}{name:8s}"), total=total, completed=finished, note="compiling"
                )
                show = lambda bar, note: bars.update(task, advance=1, note=note)  # noqa: E731
                yield Bar(name, total, finished, show, self.scores)

    def _print_line(self, bar: Bar, note: str) -> None:
        if bar.finished % max(1, bar.total // 10) == 0 or bar.finished == bar.total:
            line = visible(f"{self.label}{bar.name} {bar.finished}/{bar.total}  {note}")
            print(line, file=self.console.file, flush=True)


def _in_notebook(console: Console) -> bool:
    """Whether rich can show bars in a notebook, which it does with ipywidgets."""
    return console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
