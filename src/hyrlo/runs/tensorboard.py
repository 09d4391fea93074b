"""Metrics for TensorBoard, beside `metrics.jsonl`: every number of a line is a scalar `phase/name` at the ledger's steps.

Written with TensorBoard's own record format and protos, so that neither TensorFlow nor PyTorch is needed.
"""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

from hyrlo.core.errors import HyrloError


def require_tensorboard() -> None:
    """Say what to install before anything is trained or written."""
    found = importlib.util.find_spec("tensorboard")
    if found is None or found.origin is None:  # a folder of that name is no package
        raise HyrloError("--tensorboard: tensorboard is not installed; pip install 'hyrlo[tensorboard]'")


class TensorBoard:
    """A listener that writes metrics into an event file of its own.

    The first call replaces what earlier sessions of a resumed run wrote: they may have got further than the checkpoint
    from which it goes on, and the metrics are all there.
    """

    def __init__(self, directory: Path):
        require_tensorboard()
        self.directory = directory
        self.written = 0
        self._file: Any = None

    def __call__(self, line: dict[str, Any]) -> None:
        """A new line of metrics."""
        self._write_lines([line])

    def replay(self, metrics: list[dict[str, Any]]) -> None:
        """All lines of earlier sessions; those already written are skipped."""
        self._write_lines(metrics[self.written :])

    def _write_lines(self, lines: list[dict[str, Any]]) -> None:
        if self._file is None:
            self._file = self._replace()
        for line in lines:
            ago = lines[-1]["seconds"] - line["seconds"]  # lines of earlier sessions are spread over their time
            self._write(wall_time=time.time() - ago, step=line["steps"], summary=_summary(line))
        self._file.flush()
        self.written += len(lines)

    def _replace(self) -> Any:
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        self.directory.mkdir(exist_ok=True)
        earlier = list(self.directory.glob("events.out.tfevents.*"))
        self._file = RecordWriter(open(self.directory / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}", "wb"))  # noqa: SIM115
        self._write(wall_time=time.time(), file_version="brain.Event:2")
        for path in earlier:
            path.unlink()
        return self._file

    def _write(self, **fields: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]

        self._file.write(Event(**fields).SerializeToString())


def _summary(line: dict[str, Any]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

    numbers = {name: value for name, value in line.items() if isinstance(value, int | float)}
    return Summary(
        value=[Summary.Value(tag=f"{line['phase']}/{name}", simple_value=value) for name, value in numbers.items()]
    )
