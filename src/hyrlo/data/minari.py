"""Minari data sets. For states only the observations are read, so that a data set need not have actions."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Int, Shaped

from hyrlo.core.errors import DataError
from hyrlo.core.memory import require_memory
from hyrlo.data.arrays import as_float32
from hyrlo.data.bounds import COPY, Budget
from hyrlo.data.formats import MINARI, OBSERVATIONS, first_line, optional_modules
from hyrlo.data.nodes import own_member, read_numbers
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset

Place = tuple[str | int, ...]
"""Where in a space: keys of Dicts and indices of Tuples."""
Leaf = Callable[[Place], Shaped[np.ndarray, "t *shape"]]
"""The values of one episode at a place."""
Columns = Callable[[str], Leaf]
"""One episode: its observations, actions, rewards and terminations by name."""
Read = TypeVar("Read")


class Spaces(NamedTuple):
    """The spaces of a data set."""

    observations: spaces.Space
    actions: spaces.Space


class EpisodeTuples(NamedTuple):
    """The tuples of one episode, in order."""

    states: Shaped[np.ndarray, "t obs"]
    actions: Int[np.ndarray, " t"] | Float[np.ndarray, "t act"]
    rewards: Float[np.ndarray, " t"]
    next_states: Shaped[np.ndarray, "t obs"]
    terminations: Bool[np.ndarray, " t"]


def read_minari(dataset_id: str, max_episodes: int | None, check_finite: bool) -> ObservationDataset:
    """The states of the first episodes of a local data set. Nothing is fetched from the network."""
    return states_of_episodes(_read(dataset_id, max_episodes, _states), MINARI + dataset_id, check_finite)


def read_minari_transitions(dataset_id: str, max_episodes: int | None) -> TransitionDataset:
    """The tuples of the first episodes of a local data set. Terminations end an episode, truncations do not."""
    return _transitions(_read(dataset_id, max_episodes, _tuples), MINARI + dataset_id)


def is_minari(given: Any) -> bool:
    """Whether it is a Minari data set: told by what it has, as Minari need not be installed."""
    return hasattr(given, "iterate_episodes") and hasattr(given, "observation_space")


def states_of_minari(dataset: Any) -> ObservationDataset:
    """The states of a Minari data set, or of the part of it that `filter_episodes` left."""
    return states_of_episodes(_read_object(dataset, _states), MINARI + dataset.id, check_finite=True)


def transitions_of_minari(dataset: Any) -> TransitionDataset:
    """The tuples of a Minari data set, or of a part of it."""
    return _transitions(_read_object(dataset, _tuples), MINARI + dataset.id)


def _transitions(episodes: Sequence[EpisodeTuples], source: str) -> TransitionDataset:
    timesteps = np.concatenate([np.arange(len(episode.states)) for episode in episodes])
    states, actions, rewards, following, ends = (np.concatenate(column) for column in zip(*episodes, strict=True))
    return TransitionDataset.from_unpaired(states, actions, rewards, following, timesteps, source, terminals=ends)


def _read(dataset_id: str, max_episodes: int | None, read: Callable[[str, Spaces, Columns], Read]) -> list[Read]:
    """What `read` makes of each of the first episodes, of their names, spaces and columns."""
    source = MINARI + dataset_id
    minari, storage, _ = optional_modules("minari", source, "minari", "minari.storage", "h5py")
    path = _folder(dataset_id, storage.get_dataset_path(), source)
    try:
        metadata = json.loads((path / "metadata.json").read_text())
        _check_metadata(metadata, minari.supported_dataset_versions, source)
        count = min(metadata["total_episodes"], max_episodes or metadata["total_episodes"])
        if count < 1:
            raise DataError(f"{source}: holds no episodes")
        found = _spaces(metadata)
        with closing(_episodes(source, metadata["data_format"], path, count)) as episodes:  # and with it, its file
            return [read(f"{source}, episode {i}", found, columns) for i, columns in enumerate(episodes)]
    except DataError:
        raise
    except Exception as error:  # a damaged file makes Minari, HDF5 or Arrow raise anything
        raise DataError(
            f"{source}: cannot be read as a Minari data set, it may be incomplete ({first_line(error)}); "
            "fetch or write it again"
        ) from error


def _folder(dataset_id: str, root: Path, source: str) -> Path:
    """The folder with the files of a data set. The names in an id are folders below Minari's own, and no others."""
    parts = dataset_id.split("/")
    if dataset_id and not all(re.fullmatch(r"[-.\w]*[-\w]", part) for part in parts):
        raise DataError(f"{source}: is not a Minari id; give one like NAME-v0 or NAMESPACE/NAME-v0")
    path = root / dataset_id / "data"
    if not dataset_id or not path.is_dir():
        raise DataError(
            f"{source}: not among the local data sets in {root}; "
            f"`minari download {dataset_id or 'ID'}` fetches it, MINARI_DATASETS_PATH says where they are"
        )
    inside = (root / dataset_id).resolve()
    for file in path.rglob("*"):
        if file.is_symlink() and not file.resolve().is_relative_to(inside):
            raise DataError(f"{source}: {file.name} is a link out of the data set; put the file itself there")
    return path


def _check_metadata(metadata: Any, versions: Collection[str], source: str) -> None:
    """Minari takes spaces that a data set does not state from an environment, which may run code that the file names."""
    if metadata["minari_version"] not in versions:
        raise ValueError(f"it was written by Minari {metadata['minari_version']}")
    if not all(isinstance(metadata.get(name), str) for name in ("observation_space", "action_space")):
        raise DataError(f"{source}: does not state its spaces; write it with observation_space and action_space")


def _read_object(dataset: Any, read: Callable[[str, Spaces, Columns], Read]) -> list[Read]:
    """What `read` makes of each episode of a data set that is loaded."""
    written = json.loads((dataset.storage.data_path / "metadata.json").read_text()).get("observation_space")
    observations = dataset.observation_space
    if written is not None:
        observations = _in_written_order(observations, json.loads(written))
    found, source = Spaces(observations, dataset.action_space), MINARI + dataset.id
    episodes = enumerate(dataset.iterate_episodes())
    return [read(f"{source}, episode {i}", found, partial(_member, episode)) for i, episode in episodes]


def _member(episode: Any, name: str) -> Leaf:
    return lambda place: np.asarray(reduce(getitem, place, getattr(episode, name)))


def states_of_episodes(
    episodes: Sequence[Shaped[np.ndarray, "t obs"]], source: str, check_finite: bool
) -> ObservationDataset:
    """Step h holds the states of the episodes that are longer than h."""
    timesteps = np.concatenate([np.arange(len(episode)) for episode in episodes])
    return ObservationDataset.from_unpaired(np.concatenate(episodes), timesteps, source, check_finite)


def _spaces(metadata: dict[str, Any]) -> Spaces:
    (parsing,) = optional_modules("minari", MINARI, "minari.serialization")
    with _without_warnings():
        written = [json.loads(metadata[name]) for name in ("observation_space", "action_space")]
        observations, actions = (parsing.deserialize_space(space) for space in written)
    return Spaces(_in_written_order(observations, written[0]), actions)


def _states(source: str, found: Spaces, columns: Columns) -> Shaped[np.ndarray, "t obs"]:
    return _flattened(source, found.observations, columns(OBSERVATIONS))


def _tuples(source: str, found: Spaces, columns: Columns) -> EpisodeTuples:
    states = _states(source, found, columns)
    actions, rewards, terminations = (  # Arrow files have a blank last row in these
        columns(name)(())[: len(states) - 1] for name in ("actions", "rewards", "terminations")
    )
    actions = _unit_actions(source, found.actions, actions)
    return EpisodeTuples(states[:-1], actions, rewards.ravel(), states[1:], terminations.ravel())


def _unit_actions(
    source: str, space: spaces.Space, actions: np.ndarray
) -> Int[np.ndarray, " t"] | Float[np.ndarray, "t act"]:
    """The data's actions as algorithms see them: 0 … n−1, or vectors of which −1 is the lowest and 1 the highest."""
    if isinstance(space, spaces.Discrete):
        return actions.ravel() - space.start
    if isinstance(space, spaces.MultiDiscrete):  # the number of the combination
        choices = actions.reshape(len(actions), -1) - np.ravel(space.start)
        return np.ravel_multi_index(tuple(choices.T), tuple(np.ravel(space.nvec)))
    if not isinstance(space, spaces.Box) or not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise DataError(
            f"{source}: cannot use actions in {space}; give Discrete or MultiDiscrete actions, a bounded Box, or npz"
        )
    low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
    vectors = actions.reshape(len(actions), -1)
    return np.clip(2 * (vectors - low) / np.where(high > low, high - low, 1) - 1, -1, 1)


def _episodes(source: str, data_format: str, path: Path, count: int) -> Generator[Columns]:
    """The first `count` episodes, from the files themselves: Minari's own reader loads actions too."""
    if data_format not in ("hdf5", "arrow", "parquet"):
        raise DataError(f"{source}: is stored as {data_format!r}; write it as hdf5, arrow or parquet")
    stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    read = _hdf5_episodes if data_format == "hdf5" else partial(_arrow_episodes, data_format)
    return read(path, count, Budget(source, stored))


def _hdf5_episodes(path: Path, count: int, budget: Budget) -> Generator[Columns]:
    with importlib.import_module("h5py").File(path / "main_data.hdf5", "r") as file:
        for i in range(count):
            yield partial(_hdf5_column, own_member(file, f"episode_{i}", budget.source), budget)


def _hdf5_column(episode: Any, budget: Budget, name: str) -> Leaf:
    return partial(_hdf5_leaf, own_member(episode, name, budget.source), budget)


def _hdf5_leaf(node: Any, budget: Budget, place: Place) -> np.ndarray:
    for key in place:
        node = own_member(node, key if isinstance(key, str) else f"_index_{key}", budget.source)
    return read_numbers(node, budget)


def _arrow_episodes(data_format: str, path: Path, count: int, budget: Budget) -> Generator[Columns]:
    (dataset,) = optional_modules("parquet", str(path), "pyarrow.dataset")
    for i in range(count):
        files = dataset.dataset(path / str(i), format=data_format, ignore_prefixes=["_", ".", "metadata.json"])
        yield partial(_arrow_column, files, budget)


def _arrow_column(files: Any, budget: Budget, name: str) -> Leaf:
    numbers = files.count_rows() * _width(files.schema.field(name).type)
    budget.spend(numbers * np.dtype(np.float64).itemsize, numbers)
    return partial(_arrow_leaf, files.to_table(columns=[name])[name].combine_chunks())


def _width(kind: Any) -> int:
    """How many numbers a row has."""
    if hasattr(kind, "list_size"):
        return kind.list_size * _width(kind.value_type)
    return sum(_width(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 1


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
    numbers = len(values) * sum(sizes.tolist())
    require_memory(
        numbers * COPY, f"{source}: one-hot observations in {type(space).__name__}", "write vectors", DataError
    )
    choices = zip(values.T, np.ravel(space.start), sizes, strict=True)
    hot = np.concatenate([chosen[:, None] == start + np.arange(size) for chosen, start, size in choices], axis=1)
    known = hot.sum(axis=1) == len(sizes)
    if not known.all():
        h = int(np.argmin(known))
        raise DataError(f"{source}, timestep {h}: observation {values[h].tolist()} is not in {space}; fix it")
    return hot


def write_minari(episodes: np.ndarray | Sequence[np.ndarray], dataset_id: str) -> None:
    """Write states as a new local Minari data set: episodes `(T_i+1, *obs)`, or trajectories `(N, H+1, *obs)`.

    Minari cannot load episodes without actions, so these are vectors of length 0; rewards are 0. `read_states` of
    `minari:<dataset-id>` gives the same states back.
    """
    source = MINARI + dataset_id
    minari, collector, parsing, storage, _ = optional_modules(
        "minari", source, "minari", "minari.data_collector", "minari.dataset.minari_dataset", "minari.storage", "h5py"
    )
    states = [as_float32(np.asarray(episode), f"episode {i}", source) for i, episode in enumerate(episodes)]
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
    states_of_episodes(episodes, source, check_finite=True)


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
