"""One process at a time writes to a run directory.

The lock is of the operating system, which drops it when the process ends, however it ends. Where the platform or the file
system has no locks, there is none.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from contextlib import suppress
from pathlib import Path

from hyrlo.core.errors import RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".hyrlo-lock"
TAKEN = (errno.EACCES, errno.EAGAIN)
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class WriterLock:
    """Taken on creation, if no other process has it. Its file names the process, and is removed on release."""

    def __init__(self, folder: Path):
        self.path = folder / LOCK_FILE
        self.file: int | None = None if fcntl is None else self._acquire()

    def _acquire(self) -> int | None:
        while True:
            file = os.open(self.path, OPEN, 0o666)
            try:
                # Not flock, which child processes would inherit and keep after this one was killed.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(file):
                    break
            except OSError as error:
                owner = _owner(file) if error.errno in TAKEN else ""
                os.close(file)
                if error.errno in NO_LOCKS:
                    return None
                if error.errno not in TAKEN:
                    raise
                raise RunError(
                    f"{self.path.parent}: {owner} is writing to this run; wait until it has ended, or give another --out"
                ) from error
            os.close(file)  # its former owner has removed it in between
        with suppress(OSError):  # a full disk: the lock holds without a name in it
            os.ftruncate(file, 0)
            os.write(file, f"{os.getpid()} {socket.gethostname()}\n".encode())
        return file

    def _is_current(self, file: int) -> bool:
        """Whether the file is still the one at the path."""
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Once is enough; later calls do nothing."""
        if self.file is not None:
            with suppress(OSError):
                self.path.unlink()
            os.close(self.file)
            self.file = None


def _owner(file: int) -> str:
    """The process that has the lock, as far as the file says."""
    for _ in range(20):
        found = re.fullmatch(rb"(\d{1,10}) ([A-Za-z0-9.-]{1,64})\n", os.pread(file, 200, 0))
        if found:
            return f"process {found[1].decode()} on {found[2].decode()}"
        time.sleep(0.01)  # it has only just got it
    return "another process"
