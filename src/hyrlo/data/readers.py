"""State logs of other formats: tables (CSV, parquet) and Minari data sets, beside hyrlo's own npz.

Only states are read. Of a Minari data set nothing but the observations is touched, so it need not have actions at all.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import shutil
import warnings
import zlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Shaped

from hyrlo.core.errors import DataError
from hyrlo.data.states import ObservationDataset, _numeric, refuse_max_episodes

MINARI = "minari:"
TABLES = (".csv", ".csv.gz", ".parquet")
OBSERVATIONS, TIMESTEPS = "observations", "timesteps"


def is_archive(source: str | Path) -> bool:
    """Whether the source is taken for an npz file: whatever is nothing else."""
    return not str(source).startswith(MINARI) and not str(source).lower().endswith(TABLES)


def read_states(
    source: str | Path,
    *,
    max_episodes: int | None = None,
    observations: str = OBSERVATIONS,
    timesteps: str = TIMESTEPS,
    check_finite: bool = True,
) -> ObservationDataset:
    """The states of `minari:<dataset-id>`, of a table `*.csv`, `*.csv.gz` or `*.parquet`, or of an npz file.

    `timesteps` names the array (npz) or the column (tables) of the timesteps, `observations` the array of the states. A
    table has one column for each dimension of the state: all but `timesteps`, in their order, or those that
    `observations` lists (`x,y,angle`). `max_episodes` takes the first episodes only, where the source has episodes.
    """
    if max_episodes is not None and max_episodes < 1:
        raise DataError(f"--max-episodes is {max_episodes}; give at least 1")
    name = str(source)
    if name.startswith(MINARI):
        if (observations, timesteps) != (OBSERVATIONS, TIMESTEPS):
            raise DataError(f"{name}: Minari says itself what its states are; leave out --observations and --timesteps")
        return _read_minari(name.removeprefix(MINARI), max_episodes, check_finite)
    if is_archive(name):
        return ObservationDataset.load(name, observations, timesteps, check_finite, max_episodes)
    refuse_max_episodes(max_episodes, name)
    if not Path(name).is_file():
        raise DataError(f"{name}: {'is a directory, not a table' if Path(name).is_dir() else 'no such file'}")
    read = _read_parquet if name.lower().endswith(".parquet") else _read_csv
    return read(name, observations, timesteps, check_finite)


# Tables: a column of timesteps, and one for each dimension of the state


def _columns(source: str, found: Sequence[str], observations: str, timesteps: str) -> list[str]:
    """The columns to read, that of the timesteps first."""
    for name, times in Counter(found).items():
        if times > 1:
            raise DataError(f"{source}: has {times} columns named {name}; give each a name of its own")
    wanted = [name for name in found if name != timesteps]
    if observations != OBSERVATIONS:
        wanted = [name.strip() for name in observations.split(",")]
    for name in (timesteps, *wanted):
        if name not in found:
            option = "--timesteps NAME" if name == timesteps else "--observations NAME,NAME,…"
            raise DataError(
                f"{source}: has no column named {name} (found {', '.join(found) or 'nothing'}); "
                f"rename it, or use `hyrlo data import {option}`"
            )
    if not wanted:
        raise DataError(f"{source}: has no column but {timesteps}; give one for each dimension of the state")
    return [timesteps, *wanted]


def _not_a_number(source: str, place: str, column: str, value: object) -> DataError:
    return DataError(
        f"{source}: {place}, column {column} is {value!r}, which is not a number; repair it, or choose the columns of "
        "the state with `hyrlo data import --observations NAME,NAME,…`"
    )


def _from_table(
    source: str,
    columns: Sequence[str],
    values: Float[np.ndarray, "rows columns"],
    place: Callable[[int], str],
    check_finite: bool,
) -> ObservationDataset:
    """From the columns to read, timesteps first; `place` says where a row is in the file."""
    if len(values) == 0:
        raise DataError(f"{source}: holds no states")
    timesteps, states = values[:, 0], _numeric(values[:, 1:], OBSERVATIONS, source)
    whole = (timesteps >= 0) & (timesteps == np.floor(timesteps)) & (timesteps < 2**53)
    if not whole.all():
        row = int(np.argmin(whole))
        raise DataError(
            f"{source}: {place(row)}, column {columns[0]} is {timesteps[row]:g}; timesteps are whole numbers from 0"
        )
    if check_finite and not np.isfinite(states).all():
        row, column = np.argwhere(~np.isfinite(states))[0]
        raise DataError(
            f"{source}: {place(row)}, column {columns[column + 1]} is {states[row, column]}; "
            "remove or repair non-finite values"
        )
    return ObservationDataset.from_unpaired(states, timesteps.astype(np.int64), source, check_finite)


def _read_csv(source: str, observations: str, timesteps: str, check_finite: bool) -> ObservationDataset:
    opened: Any = gzip.open if source.lower().endswith(".gz") else open
    try:
        with opened(source, "rt", encoding="utf-8-sig", newline="") as file:
            columns, values, lines = _parse_csv(source, file, observations, timesteps)
    except (UnicodeDecodeError, csv.Error, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source}: cannot be read as CSV, it may be truncated ({_first_line(error)})") from error
    return _from_table(source, columns, values, lambda row: f"line {lines[row]}", check_finite)


def _parse_csv(
    source: str, file: TextIO, observations: str, timesteps: str
) -> tuple[list[str], Float[np.ndarray, "rows columns"], Sequence[int]]:
    """The names of the columns to read, their values, and the line of each row."""
    rows = csv.reader(file)
    header = [name.strip() for name in next(filter(None, rows), [])]
    if not header:
        raise DataError(f"{source}: is empty; the first line names the columns, one of them {timesteps}")
    columns = _columns(source, header, observations, timesteps)
    pick = itemgetter(*(header.index(name) for name in columns))
    values, lines = array("d"), array("q")
    for row in filter(None, rows):
        if len(row) != len(header):
            raise DataError(
                f"{source}: line {rows.line_num} has {len(row)} values but the header names {len(header)} columns; "
                "give every row one value a column"
            )
        try:
            values.extend(map(float, pick(row)))
        except ValueError:
            column, value = next(cell for cell in zip(columns, pick(row), strict=True) if not _is_number(cell[1]))
            raise _not_a_number(source, f"line {rows.line_num}", column, value) from None
        lines.append(rows.line_num)
    return columns, np.asarray(values).reshape(-1, len(columns)), lines


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(source: str, observations: str, timesteps: str, check_finite: bool) -> ObservationDataset:
    arrow, parquet = _extra("parquet", source, "pyarrow", "pyarrow.parquet")
    try:
        with parquet.ParquetFile(source) as file:
            columns = _columns(source, file.schema_arrow.names, observations, timesteps)
            table = file.read(columns=columns)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: cannot be read as parquet, it may be truncated ({_first_line(error)})") from error
    kinds = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_decimal, arrow.types.is_boolean)
    for name in columns:
        if not any(is_kind(table[name].type) for is_kind in kinds):
            raise _not_a_number(source, "row 0", name, table[name][0].as_py() if len(table) else None)
    values = np.column_stack([table[name].cast(arrow.float64(), safe=False).to_numpy() for name in columns])
    return _from_table(source, columns, values, lambda row: f"row {row}", check_finite)


# Minari


def _read_minari(dataset_id: str, max_episodes: int | None, check_finite: bool) -> ObservationDataset:
    """The first episodes of a local data set. Nothing is fetched from the network."""
    source = MINARI + dataset_id
    minari, storage, _ = _extra("minari", source, "minari", "minari.storage", "h5py")
    if not dataset_id or not (storage.get_dataset_path(dataset_id) / "data").is_dir():
        raise DataError(
            f"{source}: not among the local data sets in {storage.get_dataset_path()}; "
            f"`minari download {dataset_id or 'ID'}` fetches it, MINARI_DATASETS_PATH says where they are"
        )
    try:
        with _without_warnings():
            dataset = minari.load_dataset(dataset_id)
        count = min(dataset.total_episodes, max_episodes or dataset.total_episodes)
        episodes = list(_minari_episodes(source, dataset.storage, count))
    except DataError:
        raise
    except Exception as error:  # whatever a damaged file makes of Minari, HDF5 or Arrow
        raise DataError(
            f"{source}: cannot be read as a Minari data set, it may be incomplete ({_first_line(error)}); "
            "fetch or write it again"
        ) from error
    return _from_episodes(episodes, source, check_finite)


def _from_episodes(
    episodes: Sequence[Float[np.ndarray, "t obs"]], source: str, check_finite: bool
) -> ObservationDataset:
    """Step h holds the states of those episodes that got that far."""
    timesteps = np.concatenate([np.arange(len(episode)) for episode in episodes])
    return ObservationDataset.from_unpaired(np.concatenate(episodes), timesteps, source, check_finite)


def _minari_episodes(source: str, storage: Any, count: int) -> Iterator[Float[np.ndarray, "t obs"]]:
    """The states of the first `count` episodes, from the files themselves: Minari's own reader loads actions too."""
    if count == 0:
        raise DataError(f"{source}: holds no episodes")
    metadata = json.loads((storage.data_path / "metadata.json").read_text())
    space = storage.observation_space
    if "observation_space" in metadata:
        space = _in_written_order(space, json.loads(metadata["observation_space"]))
    leaves = _hdf5_leaves if metadata["data_format"] == "hdf5" else partial(_arrow_leaves, metadata["data_format"])
    for i, leaf in enumerate(leaves(storage.data_path, count)):
        where = f"{source}, episode {i}"
        yield _numeric(_flattened(where, space, leaf), OBSERVATIONS, where)


Place = tuple[str | int, ...]
"""Where in an observation space: keys of Dicts and indices of Tuples."""
Leaf = Callable[[Place], Shaped[np.ndarray, "t *shape"]]
"""The observations of one episode at a place."""


def _hdf5_leaves(path: Path, count: int) -> Iterator[Leaf]:
    with importlib.import_module("h5py").File(path / "main_data.hdf5", "r") as file:
        for i in range(count):
            yield partial(_hdf5_leaf, file[f"episode_{i}"]["observations"])


def _hdf5_leaf(node: Any, place: Place) -> np.ndarray:
    for key in place:
        node = node[key if isinstance(key, str) else f"_index_{key}"]
    return node[()]


def _arrow_leaves(data_format: str, path: Path, count: int) -> Iterator[Leaf]:
    (dataset,) = _extra("parquet", str(path), "pyarrow.dataset")
    for i in range(count):
        files = dataset.dataset(path / str(i), format=data_format, ignore_prefixes=["_", ".", "metadata.json"])
        yield partial(_arrow_leaf, files.to_table(columns=["observations"])["observations"].combine_chunks())


def _arrow_leaf(node: Any, place: Place) -> np.ndarray:
    for key in place:
        node = node.field(str(key))
    values = node.flatten() if hasattr(node.type, "list_size") else node
    return values.to_numpy(zero_copy_only=False).reshape(len(node), -1)


def _in_written_order(space: spaces.Space, written: dict[str, Any]) -> spaces.Space:
    """The space with its keys as they were written. Minari sorts them, but the environment flattens in its own order."""
    if isinstance(space, spaces.Dict):
        parts = [(key, _in_written_order(space[key], part)) for key, part in written["subspaces"].items()]
        return spaces.Dict(OrderedDict(parts))
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, written["subspaces"], strict=True)
        return spaces.Tuple([_in_written_order(part, as_written) for part, as_written in pairs])
    return space


def _flattened(source: str, space: spaces.Space, leaf: Leaf, place: Place = ()) -> Shaped[np.ndarray, "t obs"]:
    """All states of an episode as `gymnasium.spaces.utils.flatten` makes a vector of each."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: Iterable[Any] = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return np.concatenate([_flattened(source, part, leaf, (*place, key)) for key, part in parts], axis=1)
    if not isinstance(space, spaces.Box | spaces.MultiBinary | spaces.Discrete | spaces.MultiDiscrete):
        raise DataError(f"{source}: cannot make numbers of a {type(space).__name__} observation; write vectors")
    values, size = leaf(place), int(np.prod(space.shape or ()))
    if values.dtype.kind not in "fiub" or values.size != len(values) * size:
        raise DataError(
            f"{source}: observations are stored as {values.dtype} {values.shape[1:]}, not as {space.shape}; "
            "images (JPEG) are not read, write vectors"
        )
    values = values.reshape(len(values), size)
    return values if isinstance(space, spaces.Box | spaces.MultiBinary) else _one_hot(source, space, values)


def _one_hot(
    source: str, space: spaces.Discrete | spaces.MultiDiscrete, values: Shaped[np.ndarray, "t k"]
) -> Bool[np.ndarray, "t obs"]:
    sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
    choices = zip(values.T, np.ravel(space.start), sizes, strict=True)
    hot = np.concatenate([chosen[:, None] == start + np.arange(size) for chosen, start, size in choices], axis=1)
    known = hot.sum(axis=1) == len(sizes)
    if not known.all():
        h = int(np.argmin(known))
        raise DataError(f"{source}, timestep {h}: observation {values[h].tolist()} is not in {space}; repair it")
    return hot


def write_minari(episodes: np.ndarray | Sequence[np.ndarray], dataset_id: str) -> None:
    """Write states as a new local Minari data set: episodes `(T_i+1, *obs)`, or trajectories `(N, H+1, *obs)`.

    Minari cannot load episodes without actions, so these are vectors of length 0; rewards are 0. `read_states` of
    `minari:<dataset-id>` gives the same states back.
    """
    source = MINARI + dataset_id
    minari, collector, parsing, storage, _ = _extra(
        "minari", source, "minari", "minari.data_collector", "minari.dataset.minari_dataset", "minari.storage", "h5py"
    )
    states = [_numeric(np.asarray(episode), f"episode {i}", source) for i, episode in enumerate(episodes)]
    _check_episodes(states, source)
    try:
        parsing.parse_dataset_id(dataset_id)
    except (ValueError, TypeError):
        raise DataError(f"{source}: is not a Minari id; give one like NAME-v0 or NAMESPACE/NAME-v0") from None
    path = storage.get_dataset_path(dataset_id)
    if path.exists():
        raise DataError(f"{source}: already exists in {path}; give another id, or `minari delete {dataset_id}`")
    try:
        with _without_warnings():  # author, e-mail, code and the like are not given
            minari.create_dataset_from_buffers(
                dataset_id,
                [_buffer(collector.EpisodeBuffer, episode) for episode in states],
                observation_space=spaces.Box(-np.inf, np.inf, states[0].shape[1:], np.float32),
                action_space=spaces.Box(-1, 1, (0,), np.float32),
                description="States only: there are no actions, and all rewards are 0.",
                data_format="hdf5",
            )
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _buffer(build: Callable[..., Any], episode: np.ndarray) -> Any:
    steps = len(episode) - 1
    return build(
        observations=episode,
        actions=np.zeros((steps, 0), np.float32),
        rewards=np.zeros(steps),
        terminations=np.zeros(steps, bool),
        truncations=np.arange(steps) == steps - 1,
    )


def _check_episodes(episodes: Sequence[np.ndarray], source: str) -> None:
    if not episodes:
        raise DataError(f"{source}: there are no episodes to write")
    for i, episode in enumerate(episodes):
        if episode.ndim < 2 or len(episode) < 2 or episode.shape[1:] != episodes[0].shape[1:]:
            raise DataError(
                f"{source}: episode {i} has shape {episode.shape}; give (T+1, *obs) with at least 2 states "
                f"and the same obs as episode 0 {episodes[0].shape}"
            )
    _from_episodes(episodes, source, check_finite=True)


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _extra(name: str, source: str, *modules: str) -> list[Any]:
    """Modules of an optional dependency."""
    try:
        return [importlib.import_module(module) for module in modules]
    except ImportError as error:
        raise DataError(
            f"{source}: needs {error.name or name}, which is not installed; pip install 'hyrlo[{name}]'"
        ) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
