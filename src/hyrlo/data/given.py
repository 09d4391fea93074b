"""Data that are in memory already: arrays, lists of episodes, data frames, Minari data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hyrlo.core.errors import DataError
from hyrlo.data.formats import TIMESTEPS
from hyrlo.data.minari import is_minari, states_of_episodes, states_of_minari
from hyrlo.data.states import ObservationDataset

SOURCE = "data"
"""How errors call data that have no file."""


def states_of(given: Any) -> ObservationDataset:
    """States of trajectories `(N, H+1, *obs)`, of episodes `(T_i+1, *obs)`, of a data frame, or of a Minari data set."""
    if is_minari(given):
        return states_of_minari(given)
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):
        return _states_of_frame(given)
    if isinstance(given, list | tuple):
        return _states_of_list(given)
    if not hasattr(given, "__array__"):
        raise DataError(
            f"data: got a {type(given).__name__}; give a path, an ObservationDataset, an array (N, H+1, *obs), a list of "
            "episodes (T+1, *obs), a data frame or a Minari data set"
        )
    return ObservationDataset.from_trajectories(np.asarray(given), SOURCE)


def _states_of_list(given: Sequence[Any]) -> ObservationDataset:
    """Step h holds the states of the episodes that are longer than h: the others ended before."""
    episodes: list[np.ndarray] = []
    for i, episode in enumerate(given):
        try:
            states = np.asarray(episode, float)
        except (ValueError, TypeError) as error:
            raise DataError(f"data: episode {i} is no array of numbers ({error}); give arrays (T+1, *obs)") from error
        if states.ndim < 2 or not states.size or (episodes and states.shape[1:] != episodes[0].shape[1:]):
            like = f", with the obs of episode 0, {episodes[0].shape}" if episodes else ""
            raise DataError(f"data: episode {i} has shape {states.shape}; give arrays (T+1, *obs){like}")
        episodes.append(states)
    if not episodes:
        raise DataError("data: is an empty list; give a list of episodes (T+1, *obs)")
    return states_of_episodes(episodes, SOURCE, check_finite=True)


def _states_of_frame(frame: Any) -> ObservationDataset:
    """One row for each state: the column `timesteps`, and one for each dimension, as in tables."""
    names = [str(name) for name in frame.columns]
    if TIMESTEPS not in names or len(names) < 2 or len(set(names)) < len(names):
        raise DataError(
            f"data: the data frame has the columns {', '.join(names)}; give {TIMESTEPS} and one for each "
            "dimension of the state, each with a name of its own"
        )
    columns = {name: np.asarray(frame[label]) for name, label in zip(names, frame.columns, strict=True)}
    for name, values in columns.items():
        if values.dtype.kind not in "fiub":
            raise DataError(f"data: column {name} holds {values.dtype}, not numbers; leave it out or convert it")
    timesteps = columns.pop(TIMESTEPS)
    if not np.all(timesteps == np.floor(timesteps)):  # not a number is not equal to itself
        row = int(np.argmin(timesteps == np.floor(timesteps)))
        raise DataError(f"data: row {row}, column {TIMESTEPS} is {timesteps[row]}; timesteps are whole numbers from 0")
    return ObservationDataset.from_unpaired(np.column_stack(list(columns.values())), timesteps.astype(np.int64), SOURCE)
