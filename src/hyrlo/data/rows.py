"""From rows of states to the states of every step: when a row was, in which episode, and which episodes ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from hyrlo.core.errors import DataError
from hyrlo.data.states import ObservationDataset, refuse_max_episodes


@dataclass(frozen=True)
class StateRows:
    """States in rows, and what the source says of them."""

    states: Float[np.ndarray, "rows obs"]
    names: tuple[str, ...]
    place: Callable[[int], str]
    """Where in the source a row is, in words."""
    timesteps: Shaped[np.ndarray, " rows"] | None = None
    seconds: Shaped[np.ndarray, " rows"] | None = None
    episodes: Int[np.ndarray, " rows"] | None = None
    """A number of its own for each episode, from 0, in the order of the source."""
    ended: Bool[np.ndarray, " rows"] | None = None
    """Rows with which their episode ended; None: unless all are of one length, each ended with its last row."""
    when: str = "timesteps"
    """The column that says when a row was."""
    notes: tuple[str, ...] = ()
    """How the source was understood, in words."""

    def first_episodes(self, most: int | None, source: str) -> StateRows:
        """The rows of the first episodes."""
        if most is None:
            return self
        if self.episodes is None:
            refuse_max_episodes(most, source)
        keep = np.flatnonzero(np.asarray(self.episodes) < most)
        fields = ("states", "timesteps", "seconds", "episodes", "ended")
        kept: dict[str, Any] = {name: None if (a := getattr(self, name)) is None else a[keep] for name in fields}
        return replace(self, place=lambda row: self.place(int(keep[row])), **kept)


def dataset_of(rows: StateRows, source: str, rate: float | None, check_finite: bool) -> ObservationDataset:
    """The states of every step. With episodes, their ends are known, however many rows are missing."""
    if rows.seconds is not None:
        timesteps = _from_seconds(rows, rows.seconds, rate, source)
    elif rows.timesteps is not None:
        timesteps = _whole(rows, rows.timesteps, source)
    else:
        assert rows.episodes is not None
        timesteps = _order_within(rows.episodes)
    if check_finite and not np.isfinite(rows.states).all():
        row, column = np.argwhere(~np.isfinite(rows.states))[0]
        raise DataError(
            f"{source}: {rows.place(row)}, column {rows.names[column]} is {rows.states[row, column]}; "
            "remove or fix non-finite values"
        )
    data = ObservationDataset.from_unpaired(rows.states, timesteps, source, check_finite)
    going, notes = None, rows.notes
    if rows.episodes is not None:
        lengths, ended = _episodes(rows.episodes, timesteps, rows.ended)
        going, notes = share_going(lengths, ended), (*notes, _said(lengths, ended))
    return replace(data, names=rows.names, going=going, notes=notes)


def _whole(rows: StateRows, timesteps: Shaped[np.ndarray, " rows"], source: str) -> Int[np.ndarray, " rows"]:
    whole = (timesteps >= 0) & (timesteps == np.floor(timesteps)) & (timesteps < 2**53)
    if not whole.all():
        row = int(np.argmin(whole))
        raise DataError(
            f"{source}: {rows.place(row)}, column {rows.when} is {timesteps[row]:g}; timesteps are whole numbers from 0"
        )
    return timesteps.astype(np.int64)


def _from_seconds(
    rows: StateRows, seconds: Shaped[np.ndarray, " rows"], rate: float | None, source: str
) -> Int[np.ndarray, " rows"]:
    """round((t − t0)·rate), where t0 is the first time of the episode."""
    seconds = seconds.astype(np.float64)
    if not np.isfinite(seconds).all():
        row = int(np.argmin(np.isfinite(seconds)))
        raise DataError(f"{source}: {rows.place(row)}, column {rows.when} is {seconds[row]}; fix the time")
    episodes = np.zeros(len(seconds), np.int64) if rows.episodes is None else rows.episodes
    apart = _seconds_apart(seconds, episodes)
    known = f"rows are {apart:.3g} s apart in the median: --rate {1 / apart:.2g}" if apart else "rows share their times"
    if rate is None:
        raise DataError(f"{source}: --time needs --rate HZ, the number of steps per second; {known}")
    start = np.full(int(episodes.max()) + 1, np.inf)
    np.minimum.at(start, episodes, seconds)
    timesteps = np.rint((seconds - start[episodes]) * rate)
    last = int(timesteps.max()) if timesteps.max() < 2**53 else len(timesteps) + 1
    present = np.unique(timesteps)
    if len(present) < last + 1:
        missing = int(np.setdiff1d(np.arange(min(last, len(present)) + 1), present)[0])
        alone = "" if rows.episodes is not None else "; give --episode NAME if there are several episodes"
        raise DataError(f"{source}: at {rate:g} steps per second, timestep {missing} has no states; {known}{alone}")
    return timesteps.astype(np.int64)


def _seconds_apart(seconds: Float[np.ndarray, " rows"], episodes: Int[np.ndarray, " rows"]) -> float:
    """Median time between neighbouring rows of an episode."""
    order = np.lexsort((seconds, episodes))
    apart = np.diff(seconds[order])[np.diff(episodes[order]) == 0]
    return float(np.median(apart)) if apart.size else 0.0


def _order_within(episodes: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """0, 1, 2, … for the rows of each episode, in their order."""
    order = np.argsort(episodes, kind="stable")
    sorted_episodes = episodes[order]
    begins = np.searchsorted(sorted_episodes, sorted_episodes)
    timesteps = np.empty(len(episodes), np.int64)
    timesteps[order] = np.arange(len(episodes)) - begins
    return timesteps


def _episodes(
    episodes: Int[np.ndarray, " rows"], timesteps: Int[np.ndarray, " rows"], ended: Bool[np.ndarray, " rows"] | None
) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """The number of steps of each episode, by its last row, and whether it ended there."""
    lengths = np.zeros(int(episodes.max()) + 1, np.int64)
    np.maximum.at(lengths, episodes, timesteps + 1)
    if ended is None:  # episodes of one length may have met a time limit, as those in an array (N, H+1, *obs)
        flags = np.full(len(lengths), lengths.min() < lengths.max())
    else:
        flags = np.zeros(len(lengths), bool)
        flags[episodes[ended]] = True
    return lengths, flags


def share_going(lengths: Int[np.ndarray, " n"], ended: Bool[np.ndarray, " n"]) -> tuple[float, ...]:
    """The share of episodes that have not ended at steps 0 … H and after the last, H + 1.

    Episodes that were cut short count for as long as they were seen (the estimate of Kaplan and Meier).
    """
    last = int(lengths.max())
    ends = np.bincount(lengths[ended], minlength=last + 1)
    seen = np.bincount(lengths, minlength=last + 1)[::-1].cumsum()[::-1]  # episodes of at least h states
    return tuple(np.cumprod(1 - ends / seen).tolist())


def _said(lengths: Int[np.ndarray, " n"], ended: Bool[np.ndarray, " n"]) -> str:
    shortest, longest, count = int(lengths.min()), int(lengths.max()), len(lengths)
    steps = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
    how = {count: "all ended with their last state", 0: "none is known to have ended"}.get(
        int(ended.sum()), f"{int(ended.sum()):,} ended, {int((~ended).sum()):,} were cut short"
    )
    return f"{count:,} episodes of {steps} states: {how}"


def numbered(values: Sequence[str] | Shaped[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """0, 1, 2, … for the different values, in the order of their first appearance."""
    _, first, inverse = np.unique(np.asarray(values), return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.ravel()]
