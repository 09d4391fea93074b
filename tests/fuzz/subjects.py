"""What is fuzzed: a valid file, how to spoil it, and how it is read. Reading returns something to compare."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import hyrlo
from hyrlo.data.minari import write_minari
from hyrlo.data.readers import read_states, read_transitions
from hyrlo.runs.loading import evaluate_run
from tests.fuzz.mutators import BYTES, TEXT, any_of, in_gzip, in_json, in_json_lines, in_safetensors, in_zip
from tests.logs import table, write_csv, write_npz, write_parquet

STATES = np.random.default_rng(0).normal(size=(6, 4, 3)).astype(np.float32)
STEPS = [STATES[:, h] for h in range(4)]


@dataclass(frozen=True)
class Subject:
    """A file that is spoilt, below the folder of its kind."""

    name: str
    file: Path
    mutators: tuple[Callable[[bytes, Any], bytes], ...]
    read: Callable[[], Any]
    faithful: bool = False
    """Whether another content may never be read without a word."""


def data_subjects(folder: Path) -> list[Subject]:
    """Logs of every format. They have no checksums: other numbers are read as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = table(STEPS)
    write_csv(folder / "a.csv", columns)
    write_csv(folder / "a.csv.gz", columns)
    write_parquet(folder / "a.parquet", columns)
    write_npz(folder / "a.npz", columns)
    np.savez(folder / "b.npz", observations=STATES)
    actions, rewards = np.zeros((6, 3), int), np.ones((6, 3), np.float32)
    np.savez_compressed(folder / "tuples.npz", observations=STATES, actions=actions, rewards=rewards)
    write_minari(STATES, "fuzz/walk-v0")
    minari = _minari_folder()
    write_other_formats(folder)
    kinds = {
        "a.csv": (any_of(TEXT),),
        "episodes.tsv": (any_of(TEXT),),
        "a.jsonl": (any_of(TEXT), in_json_lines, in_json_lines),
        "lists.parquet": (any_of(BYTES),),
        "flat.hdf5": (any_of(BYTES),),
        "robomimic.hdf5": (any_of(BYTES),),
        "a.csv.gz": (any_of(BYTES), in_gzip, in_gzip),
        "a.parquet": (any_of(BYTES),),
        "a.npz": (any_of(BYTES), in_zip, in_zip),
        "b.npz": (any_of(BYTES), in_zip, in_zip),
    }
    states = [
        Subject(name, folder / name, mutators, lambda path=folder / name: read_states(path).fingerprint())
        for name, mutators in kinds.items()
    ]
    tuples = Subject(
        "tuples.npz",
        folder / "tuples.npz",
        (any_of(BYTES), in_zip, in_zip),
        lambda: read_transitions(folder / "tuples.npz").fingerprint(),
    )
    walk = lambda: read_states("minari:fuzz/walk-v0").fingerprint()  # noqa: E731
    return [
        *states,
        tuples,
        Subject("minari metadata.json", minari / "metadata.json", (any_of(TEXT), in_json, in_json), walk),
        Subject("minari main_data.hdf5", minari / "main_data.hdf5", (any_of(BYTES),), walk),
    ]


def write_other_formats(folder: Path) -> None:
    """Tables with episodes, lists and objects, and HDF5 in two layouts."""
    rows = [(i, *state) for i, episode in enumerate(STATES.tolist()) for state in episode]
    (folder / "episodes.tsv").write_text("\n".join("\t".join(map(str, row)) for row in [("timesteps", *"xyz"), *rows]))
    lines = [{"timesteps": h, "x": {"y": state}} for episode in STATES.tolist() for h, state in enumerate(episode)]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    frames = np.tile(np.arange(4), 6)
    lists = {
        "episode_index": np.repeat(np.arange(6), 4),
        "frame_index": frames,
        "observation.state": [row[1:] for row in rows],
    }
    write_parquet(folder / "lists.parquet", lists)
    with h5py.File(folder / "flat.hdf5", "w") as file:
        file["observations"], file["terminals"] = STATES.reshape(24, 3), frames == 3
    with h5py.File(folder / "robomimic.hdf5", "w") as file:
        for i, episode in enumerate(STATES):
            file[f"data/demo_{i}/obs/x"], file[f"data/demo_{i}/dones"] = episode, np.arange(4) == 3


def _minari_folder() -> Path:
    from minari.storage import get_dataset_path

    return get_dataset_path("fuzz/walk-v0") / "data"


def run_subjects(folder: Path) -> list[Subject]:
    """The files of a finished run, read by evaluating it, and those of a stopped one, read by resuming it."""
    world = hyrlo.make("lock", 2)
    options = {
        "samples": 20, "offline_samples": 20, "witness.features": 8, "game.iterations": 2, "game.learning_rate": 1e-3,
    }  # fmt: skip
    config = hyrlo.config("fail", forward="regression", **options)

    def train(out, resume):
        shown = {"curve_episodes": 2, "eval_episodes": 2}
        return hyrlo.train("fail", world, config=config, out=out, resume=resume, **shown).result["return_mean"]

    done, stopped = folder / "done", folder / "stopped"
    train(done, resume=False)
    shutil.copytree(done, stopped)
    for name in ("result.json", "policy.json", "policy.safetensors"):
        (stopped / name).unlink()
    evaluated, resumed = (lambda: tuple(evaluate_run(done, 20))), (lambda: _resumed(stopped, train))
    kinds = {"json": (any_of(TEXT), in_json, in_json), "jsonl": (any_of(TEXT), in_json_lines, in_json_lines)}
    kinds["safetensors"] = (any_of(BYTES), in_safetensors)
    read = {done: ("eval", evaluated), stopped: ("resume", resumed)}
    files = [(done, name) for name in ("config.json", "policy.json", "policy.safetensors")]
    files += [(stopped, name) for name in ("config.json", "metrics.jsonl", "checkpoint/forward.safetensors")]
    return [
        Subject(f"{read[run][0]} {name}", run / name, kinds[name.split(".")[-1]], read[run][1], faithful=True)
        for run, name in files
    ]


def _resumed(path: Path, train: Callable[..., Any]) -> Any:
    """The policy that a stopped run ends with; the run itself stays as it is."""
    copy = path.with_name("resumed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    train(copy, resume=True)
    return (copy / "policy.safetensors").read_bytes()
