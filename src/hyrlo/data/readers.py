"""Logs of any format: states from npz, tables (CSV, parquet), Minari data sets and arrays; tuples from npz and Minari."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.data.formats import MINARI, OBSERVATIONS, TIMESTEPS, is_npz
from hyrlo.data.minari import read_minari, read_minari_transitions
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


def as_states(source: str | Path | ObservationDataset | np.ndarray) -> ObservationDataset:
    """States in any form: a data set, trajectories `(N, H+1, *obs)`, or a source that `read_states` reads."""
    if isinstance(source, ObservationDataset):
        return source
    if isinstance(source, str | Path):
        return read_states(source)
    given: Any = source
    if not hasattr(given, "__array__"):
        raise DataError(
            f"data: got a {type(given).__name__}; give a path, an ObservationDataset or an array (N, H+1, *obs)"
        )
    return ObservationDataset.from_trajectories(np.asarray(given), "data")
