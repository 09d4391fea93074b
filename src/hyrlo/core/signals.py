"""SIGINT and SIGTERM on the command line: one line, no worker left behind, exit code 130 or 143, at any moment.

Nothing is raised in the main thread: an exception could get lost in a callback, or wait until a program is compiled. A thread
of its own is told by the operating system and ends the process as a kill would, which every run survives. This module is
imported before everything else and must stay light.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 2.0
"""Seconds to release what outlives a process, such as named semaphores."""


class Interrupts:
    """What this process does when it is told to stop."""

    def __init__(self) -> None:
        self.installed = self.leaving = False
        self.hint = ""
        """How to go on."""

    def install(self) -> None:
        """Leave at once when told to. A signal that is ignored, as after `nohup`, stays so."""
        if self.installed or threading.current_thread() is not threading.main_thread():
            return
        self.installed = True
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        threading.Thread(target=self._watch, args=(reader,), daemon=True).start()
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, frame: None)  # the thread does the rest

    def then(self, hint: str) -> None:
        """Say how to go on, once there is something to go on with; the first hint stays."""
        self.hint = self.hint or hint

    def line(self) -> str:
        return f"interrupted{'; ' if self.hint else ''}{self.hint}"

    def wait_if_leaving(self) -> None:
        """What fails now fails because the workers have been ended: it is not worth a word."""
        while self.leaving:
            time.sleep(1.0)

    def _watch(self, reader: int) -> None:
        while (number := os.read(reader, 1)[0]) not in NUMBERS:
            pass
        self.leaving = True
        cursor = "\x1b[?25h\r\n" if os.isatty(2) else ""  # a progress bar hides it
        with suppress(OSError):  # nobody reads
            os.write(2, f"{cursor}{self.line()}\n".encode())
        ending = threading.Thread(target=_end_workers, daemon=True)
        ending.start()
        ending.join(PATIENCE)
        os._exit(128 + number)


def _end_workers() -> None:
    """Kill the worker processes, and release what they shared."""
    library: Any = sys.modules.get("multiprocessing")
    if library is None:
        return
    with suppress(Exception):
        for process in library.active_children():
            process.kill()
        sys.modules["multiprocessing.util"]._exit_function()


interrupts = Interrupts()


@contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C; this one ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # starting it would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_command() -> bool:
    """Whether this process is the `hyrlo` command itself: neither a library in another program, nor a worker."""
    words = [word for word in sys.orig_argv[1:] if not word.startswith("-")]
    return bool(words) and os.path.basename(words[0]).removesuffix(".exe") == "hyrlo"
