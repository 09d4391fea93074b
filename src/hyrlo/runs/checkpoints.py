"""`checkpoint/` of a run: of each phase the newest checkpoint and the one before it, rows of single steps, and policies.

Every file says in its header to which run it belongs and under which name, so that no file is taken for another.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hyrlo.core.errors import RunError
from hyrlo.core.files import DamagedFile, atomic_file
from hyrlo.core.tensors import load_tensors, save_tensors, write_tensors

NAMES = re.compile(r"[A-Za-z_]+(-before|-rows-\d{5,})?\.safetensors")
"""The files that hyrlo writes into the folder."""
COUNTS = ("finished", "episodes", "steps", "metrics")
OTHERS = {"seconds": float, "rows": bool, "recovered": list}
BLOCK = 2**20


class Checkpoint(NamedTuple):
    """The arrays of a state, and where the run was."""

    leaves: list[Array]
    about: dict[str, Any]


class Checkpoints:
    """The folder of a run; `run` is the run's identity."""

    def __init__(self, folder: Path, run: str):
        self.folder, self.run = folder, run
        self._current: set[str] = set()
        """Phases whose newest checkpoint is good."""

    def keep(self, phase: str, leaves: Iterable[Any], about: dict[str, Any]) -> None:
        """Write the newest checkpoint of a phase; the one that was the newest stays as the one before it."""
        self.folder.mkdir(exist_ok=True)
        arrays = [np.asarray(leaf) for leaf in leaves]
        tensors = {str(i): without_trailing_zeros(array) for i, array in enumerate(arrays)}
        newest, before = self._paths(phase)
        with atomic_file(newest) as file:
            write_tensors(file, tensors, {**self._place(newest), **about, "shapes": shapes_of(arrays)})
            file.flush()
            os.fsync(file.fileno())  # from here on it is quick: a kill rarely finds no newest one
            if phase in self._current:
                os.replace(newest, before)
        self._current.add(phase)

    def latest(
        self, phase: str, like: Sequence[Any], check: Callable[[dict[str, Any]], None], warn: Callable[[str], None]
    ) -> Checkpoint | None:
        """The newest usable checkpoint of a phase; None if there is none, so that the phase begins anew.

        `like` are the arrays of the state that it restores. `check` raises `DamagedFile` where what the checkpoint counts is
        no longer there. If the newest is not usable, the one before it is taken, with a warning.
        """
        newest, before = self._paths(phase)
        trouble: list[str] = []
        for path in (newest, before):
            try:
                found = self._read(path, phase, like, check)
            except DamagedFile as error:
                trouble.append(str(error))
                continue
            if path == newest:
                self._current.add(phase)
            else:
                warn(f"{trouble[0]}; the run continues from the checkpoint before it, {before.name}")
            return found
        if before.exists():
            raise RunError(
                f"{trouble[0]}, and the checkpoint before it, {before.name}, cannot be used either; restore one of them, or "
                "give another --out"
            )
        if newest.exists():
            warn(f"{trouble[0]}; there is none before it, so that phase {phase} begins anew")
        return None

    def _read(self, path: Path, phase: str, like: Sequence[Any], check: Callable[[dict[str, Any]], None]) -> Checkpoint:
        tensors, about = self._load(path)
        counts = all(type(about.get(name)) is int and about[name] >= 0 for name in COUNTS)
        if not counts or not all(type(about.get(name)) is kind for name, kind in OTHERS.items()):
            raise DamagedFile(f"{path}: does not say how far the run was")
        if about.get("shapes") != shapes_of(like) or len(tensors) != len(like):
            raise RunError(f"{path}: is a checkpoint of another config; give another --out")
        check(about)
        for number in range(about["finished"]) if about["rows"] else ():
            self._load(self.rows_path(phase, number))
        try:
            return Checkpoint([_filled(tensors[str(i)], x) for i, x in enumerate(like)], about)
        except (KeyError, ValueError) as error:
            raise DamagedFile(f"{path}: its arrays are not those that it declares ({error})") from error

    def keep_rows(self, phase: str, number: int, rows: tuple[Array, ...]) -> None:
        """Each step has a file of its own, written once: a checkpoint does not grow with the steps done."""
        self.folder.mkdir(exist_ok=True)
        path = self.rows_path(phase, number)
        save_tensors(path, {str(i): np.asarray(row, order="C") for i, row in enumerate(rows)}, self._place(path))

    def kept_rows(self, phase: str, number: int) -> tuple[Array, ...]:
        try:
            tensors, _ = self._load(self.rows_path(phase, number))
        except DamagedFile as error:
            raise RunError(f"{error}; restore the file, or give another --out") from error
        return tuple(jnp.asarray(tensors[str(i)]) for i in range(len(tensors)))

    def rows_path(self, phase: str, number: int) -> Path:
        return self.folder / f"{phase}-rows-{number:05d}.safetensors"

    def drop_rows(self, phases: Iterable[str]) -> None:
        """Once the run has ended, nobody needs the rows: they are most of its size."""
        for phase in set(phases):
            for path in self.folder.glob(f"{phase}-rows-*.safetensors"):
                if NAMES.fullmatch(path.name):
                    path.unlink()

    def _paths(self, phase: str) -> tuple[Path, Path]:
        return self.folder / f"{phase}.safetensors", self.folder / f"{phase}-before.safetensors"

    def _place(self, path: Path) -> dict[str, str]:
        return {"file": path.name.replace("-before.", "."), "run": self.run}

    def _load(self, path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The content of a file that is here, undamaged and in its place; else `DamagedFile` names it."""
        try:
            tensors, about = load_tensors(path)
        except FileNotFoundError as error:
            raise DamagedFile(f"{path}: is missing") from error
        except DamagedFile as error:
            raise DamagedFile(f"{path}: {error}") from error
        if any(about.get(name) != value for name, value in self._place(path).items()):
            raise DamagedFile(f"{path}: belongs to another run, or was renamed")
        return tensors, about


def shapes_of(arrays: Iterable[Any]) -> list[list[Any]]:
    """Type and shape of each array, as JSON keeps them."""
    return [[str(x.dtype), list(x.shape)] for x in arrays]


def without_trailing_zeros(array: np.ndarray) -> np.ndarray:
    """The array in one row, up to its last byte that is not zero: of a replay buffer, what has been filled."""
    flat = np.ascontiguousarray(array).reshape(-1)
    content = flat.view(np.uint8)
    end = content.size
    while end > 0 and not content[max(end - BLOCK, 0) : end].max():
        end = max(end - BLOCK, 0)
    begin = max(end - BLOCK, 0)
    used = begin + int(np.flatnonzero(content[begin:end])[-1]) + 1 if end else 0
    return flat[: math.ceil(used / flat.itemsize)]


def _filled(flat: np.ndarray, like: Any) -> Array:
    """The array that `without_trailing_zeros` was given."""
    if flat.ndim != 1 or flat.dtype != like.dtype:
        raise ValueError(f"{flat.dtype}{flat.shape} does not fit {like.dtype}{like.shape}")
    whole = np.zeros(like.shape, like.dtype)
    whole.reshape(-1)[: flat.size] = flat  # `ValueError` if it does not fit
    return jnp.asarray(whole)
