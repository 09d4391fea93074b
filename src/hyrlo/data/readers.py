"""Logs of any format: states from npz, tables, HDF5, Minari data sets and arrays; tuples from npz and Minari."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hyrlo.core.errors import DataError
from hyrlo.data.columns import ColumnOptions
from hyrlo.data.formats import HDF5, MINARI, OBSERVATIONS, TIMESTEPS, has_suffix, is_npz
from hyrlo.data.given import states_of
from hyrlo.data.hdf5 import read_hdf5
from hyrlo.data.minari import is_minari, read_minari, read_minari_transitions, transitions_of_minari
from hyrlo.data.states import ObservationDataset
from hyrlo.data.tables import read_table
from hyrlo.data.transitions import TransitionDataset, states_need_tuples


def read_states(
    source: str | Path,
    *,
    max_episodes: int | None = None,
    observations: str = OBSERVATIONS,
    timesteps: str = TIMESTEPS,
    episode: str | None = None,
    time: str | None = None,
    rate: float | None = None,
    ignore: str | Iterable[str] = (),
    check_finite: bool = True,
) -> ObservationDataset:
    """The states of a table, an HDF5 file, an npz file, `minari:<dataset-id>`, or the folder of a LeRobot data set.

    Args:
        source: Tables are `.csv`, `.tsv`, `.jsonl` (these also with `.gz`) and `.parquet`. Every other name is read as npz.
            Files may hold transitions; their actions and rewards are left out.
        max_episodes: Read the first episodes only, if the source has episodes.
        observations: The array of the states (npz, HDF5), or the columns of the state (`x,y,angle`); by default all columns
            that have no other role.
        timesteps: The array or column of the timesteps.
        episode: The column that says to which episode a row belongs. Without timesteps, rows of an episode are in order.
        time: The column of the time in seconds; the timestep is `round((t − t0) · rate)` with the episode's first time t0.
        rate: Steps per second.
        ignore: Columns that are not a part of the state.
        check_finite: Reject non-finite values.
    """
    _check_max_episodes(max_episodes)
    name = str(source)
    options = ColumnOptions.of(observations, timesteps, episode, time, rate, ignore)
    if name.startswith(MINARI):
        if options.given():
            raise DataError(
                f"{name}: Minari says itself what its states are; leave out --observations and --timesteps, --episode, "
                "--time, --rate and --ignore"
            )
        return read_minari(name.removeprefix(MINARI), max_episodes, check_finite)
    if has_suffix(name, HDF5):
        return read_hdf5(name, options, max_episodes, check_finite)
    if not is_npz(name):
        return read_table(name, options, max_episodes, check_finite)
    if columns := [option for option in options.given() if option not in ("--observations", "--timesteps")]:
        raise DataError(f"{name}: {', '.join(columns)}: only for tables and HDF5; npz has trajectories or timesteps")
    if not options.given() and states_need_tuples(name):
        return TransitionDataset.load(name, check_finite, max_episodes).observations()
    return ObservationDataset.load(name, observations, timesteps, check_finite, max_episodes)


def read_transitions(source: str | Path, max_episodes: int | None = None) -> TransitionDataset:
    """The tuples of `minari:<dataset-id>` or of an npz file; `max_episodes` reads the first episodes only."""
    _check_max_episodes(max_episodes)
    name = str(source)
    if name.startswith(MINARI):
        return read_minari_transitions(name.removeprefix(MINARI), max_episodes)
    if not is_npz(name):
        raise DataError(f"{name}: only its states are read; give actions and rewards as npz, or learn from states")
    return TransitionDataset.load(name, max_episodes=max_episodes)


def _check_max_episodes(max_episodes: int | None) -> None:
    if max_episodes is not None and max_episodes < 1:
        raise DataError(f"--max-episodes is {max_episodes}; give at least 1")


def as_states(source: Any) -> ObservationDataset:
    """States in any form: a data set, a source that `read_states` reads, or data in memory (`hyrlo.data.given`)."""
    if isinstance(source, ObservationDataset):
        return source
    return read_states(source) if isinstance(source, str | Path) else states_of(source)


def as_transitions(source: Any) -> TransitionDataset | ObservationDataset:
    """Tuples in any form: a data set, a source that `read_transitions` reads, or a Minari data set; else states."""
    if isinstance(source, TransitionDataset):
        return source
    if isinstance(source, str | Path):
        return read_transitions(source)
    return transitions_of_minari(source) if is_minari(source) else as_states(source)
