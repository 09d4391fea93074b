"""Logs of any format: states from npz, tables (CSV, parquet), Minari data sets and arrays; tuples from npz and Minari."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hyrlo.core.errors import DataError
from hyrlo.data.formats import MINARI, OBSERVATIONS, TIMESTEPS, is_npz
from hyrlo.data.given import states_of
from hyrlo.data.minari import is_minari, read_minari, read_minari_transitions, transitions_of_minari
from hyrlo.data.states import ObservationDataset, refuse_max_episodes
from hyrlo.data.tables import read_table
from hyrlo.data.transitions import TransitionDataset, states_need_tuples


def read_states(
    source: str | Path,
    *,
    max_episodes: int | None = None,
    observations: str = OBSERVATIONS,
    timesteps: str = TIMESTEPS,
    check_finite: bool = True,
) -> ObservationDataset:
    """The states of `minari:<dataset-id>`, of a table `*.csv`, `*.csv.gz` or `*.parquet`, or of an npz file.

    An npz file may hold transitions; their actions and rewards are left out. `timesteps` names the array (npz) or the
    column (tables) of the timesteps, `observations` the array of the states. A table has one column for each dimension of
    the state: all but `timesteps`, in their order, or those that `observations` lists (`x,y,angle`). `max_episodes`
    reads the first episodes only, if the source has episodes.
    """
    _check_max_episodes(max_episodes)
    name, renamed = str(source), (observations, timesteps) != (OBSERVATIONS, TIMESTEPS)
    if name.startswith(MINARI):
        if renamed:
            raise DataError(f"{name}: Minari says itself what its states are; leave out --observations and --timesteps")
        return read_minari(name.removeprefix(MINARI), max_episodes, check_finite)
    if not is_npz(name):
        refuse_max_episodes(max_episodes, name)
        return read_table(name, observations, timesteps, check_finite)
    if not renamed and states_need_tuples(name):
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
