"""State data: the states of every step, without actions and rewards."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hyrlo.core.errors import DataError
from hyrlo.core.files import atomic_file
from hyrlo.core.memory import require_memory
from hyrlo.data.arrays import as_float32, check_numeric, check_timesteps, count_duplicates, rows_by_step
from hyrlo.data.formats import OBSERVATIONS, TIMESTEPS
from hyrlo.data.npz import read_arrays
from hyrlo.data.precision import check_precision

NAMES, GOING = "names", "going"
"""Arrays of an npz file that may be missing."""
Padded = tuple[Float[Array, "m obs"], Float[Array, " m"]]
"""The states of a step, padded to the size of the largest step, and weights that leave the padding out."""


@dataclass(frozen=True)
class ObservationDataset:
    """Offline states `D_0 … D_H`. Validated on construction: every step has states, of one size, all finite.

    `steps[h]` is an array of shape `(N_h, observation_size)`; the N_h may differ.
    """

    steps: tuple[Float[np.ndarray, "n obs"], ...]
    source: str = "data"
    check_finite: bool = True
    names: tuple[str, ...] | None = None
    """Of the dimensions, if the source has them."""
    going: tuple[float, ...] | None = None
    """The share of episodes that have not ended at steps 0 … H and after the last, H + 1, if the source knows them."""
    notes: tuple[str, ...] = ()
    """How the source was understood, in words."""

    def __post_init__(self) -> None:
        if len(self.steps) < 2:
            raise DataError(
                f"{self.source}: needs states of at least timesteps 0 and 1, has {len(self.steps)} timestep(s)"
            )
        size = self.steps[0].shape[1:]
        for h, states in enumerate(self.steps):
            if states.shape[0] == 0:
                raise DataError(
                    f"{self.source}: timestep {h} has no states; horizon is {self.horizon}, so every timestep "
                    f"0 … {self.horizon} needs some; add states for it or shorten the horizon"
                )
            if states.shape[1:] != size:
                raise DataError(f"{self.source}: timestep {h} has states of shape {states.shape[1:]}, not {size}")
        if len(size) != 1 or size == (0,):
            raise DataError(f"{self.source}: states have shape {size}; give at least one dimension")
        self._check_about()
        if self.check_finite and (where := self.first_non_finite()):
            raise DataError(f"{self.source}: {where}; remove or fix non-finite values")

    def _check_about(self) -> None:
        """Names and shares come from files, too."""
        if self.names is not None and len(self.names) != self.observation_size:
            raise DataError(
                f"{self.source}: has {len(self.names)} names for {self.observation_size} dimensions; give one for each"
            )
        if self.going is None:
            return
        shares = np.array(self.going)
        falls = len(shares) == len(self.steps) + 1 and shares[0] == 1 and (np.diff(shares) <= 0).all()
        if not falls or shares[-1] < 0 or shares[-2] < 1e-12:
            raise DataError(
                f"{self.source}: going holds the shares of episodes that have not ended at steps 0 … {self.horizon + 1}, "
                "which begin with 1 and never rise; leave it out if they are not known"
            )

    def first_non_finite(self) -> str | None:
        """The position of the first non-finite value, in words."""
        for h, states in enumerate(self.steps):
            if not np.isfinite(states).all():
                row, column = np.argwhere(~np.isfinite(states))[0]
                return f"timestep {h}, state {row}, dimension {column} is {states[row, column]}"
        return None

    @classmethod
    def from_trajectories(
        cls, observations: np.ndarray, source: str = "data", check_finite: bool = True
    ) -> ObservationDataset:
        """From an array `(N, H+1, *obs)`."""
        check_numeric(observations, "observations", source)
        if observations.ndim < 3:
            raise DataError(
                f"{source}: observations has shape {observations.shape}; trajectories are (N, H+1, *obs), "
                "unpaired states are (M, *obs) with an integer array timesteps (M,)"
            )
        n, length = observations.shape[:2]
        if observations.size == 0:  # a header can declare any number of empty steps, and two are enough to refuse them
            length = min(length, 2)
        flat = observations[:, :length].reshape(n, length, math.prod(observations.shape[2:]))
        check_precision(flat.reshape(n * length, flat.shape[2]), source)
        flat = as_float32(flat, "observations", source)
        return cls(tuple(flat[:, h] for h in range(length)), source, check_finite)

    @classmethod
    def from_unpaired(
        cls, observations: np.ndarray, timesteps: np.ndarray, source: str = "data", check_finite: bool = True
    ) -> ObservationDataset:
        """From states `(M, *obs)` in any order and the integer timestep of each."""
        check_numeric(observations, "observations", source)
        check_timesteps(timesteps, source)
        if observations.ndim < 2 or timesteps.shape != observations.shape[:1]:
            raise DataError(
                f"{source}: observations {observations.shape} and timesteps {timesteps.shape} do not fit; "
                "give (M, *obs) and (M,)"
            )
        flat = observations.reshape(len(observations), math.prod(observations.shape[1:]))
        check_precision(flat, source)
        flat = as_float32(flat, "observations", source)
        return cls(tuple(flat[rows] for rows in rows_by_step(timesteps, source)), source, check_finite)

    @classmethod
    def load(
        cls,
        path: str | Path,
        observations: str = OBSERVATIONS,
        timesteps: str = TIMESTEPS,
        check_finite: bool = True,
        max_episodes: int | None = None,
    ) -> ObservationDataset:
        """From an npz file in either layout; `observations` and `timesteps` are the names of its arrays.

        `max_episodes` keeps the first trajectories only.
        """
        arrays = read_arrays(path, (observations, timesteps, NAMES, GOING))
        if timesteps in arrays:
            refuse_max_episodes(max_episodes, path)
            data = cls.from_unpaired(arrays[observations], arrays[timesteps], str(path), check_finite)
            return replace(data, **_read_about(arrays, str(path)))
        episodes = arrays[observations]
        if max_episodes is not None and episodes.ndim:
            episodes = episodes[:max_episodes]
            arrays.pop(GOING, None)  # it speaks of all of them
        return replace(cls.from_trajectories(episodes, str(path), check_finite), **_read_about(arrays, str(path)))

    def save(self, path: str | Path) -> None:
        """Write an npz file: as trajectories if every step has the same number of states, else unpaired.

        Names and ends of episodes, if they are known, are kept in the arrays `names` and `going`.
        """
        sizes = [len(states) for states in self.steps]
        if len(set(sizes)) == 1:
            arrays = {"observations": np.stack(self.steps, axis=1)}
        else:
            timesteps = np.repeat(np.arange(len(sizes)), sizes)
            arrays = {"observations": np.concatenate(self.steps), "timesteps": timesteps}
        arrays |= {name: np.array(value) for name in (NAMES, GOING) if (value := getattr(self, name)) is not None}
        with atomic_file(Path(path)) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    @property
    def horizon(self) -> int:
        return len(self.steps) - 1

    @property
    def observation_size(self) -> int:
        return self.steps[0].shape[1]

    def at(self, h: int) -> Float[np.ndarray, "n obs"]:
        """`D_h`."""
        return self.steps[h]

    def padded(self, h: int) -> Padded:
        """`D_h` padded to the size of the largest step, and weights that are 0 for the padding: one shape for all h."""
        states = self.steps[h]
        fill = max(len(s) for s in self.steps) - len(states)
        weights = np.concatenate([np.full(len(states), 1 / len(states)), np.zeros(fill)])
        return jnp.asarray(np.pad(states, ((0, fill), (0, 0)), mode="wrap")), jnp.asarray(weights, jnp.float32)

    def for_horizon(self, horizon: int, observation_size: int) -> ObservationDataset:
        """The first `horizon + 1` steps, checked against the environment's sizes."""
        self._check_horizon(horizon)
        if observation_size != self.observation_size:
            raise DataError(
                f"{self.source}: states have {self.observation_size} dimensions but the environment's have "
                f"{observation_size}; use data of this environment and horizon"
            )
        return replace(self, steps=self.steps[: horizon + 1], going=self.going and self.going[: horizon + 2])

    def _check_horizon(self, horizon: int) -> None:
        if horizon > self.horizon:
            raise DataError(
                f"{self.source}: has timesteps 0 … {self.horizon} but the horizon is {horizon}; "
                f"give --horizon {self.horizon} or less, or longer data"
            )

    def with_ended(self, horizon: int) -> ObservationDataset:
        """The first `horizon + 1` steps with one more dimension, the last: 1 if the episode has ended, else 0.

        Where episodes end early, later steps have fewer states. Matching only those that are left would favour a policy
        that ends its episodes early, so ended episodes stay in one absorbing state: zeros and flag 1.

        * The states of the data have flag 0.
        * If it is known which episodes ended (`going`), absorbing states are added to step h until their share is that of the
          episodes that have ended, however many states are missing. If all have, so it is after the data, up to `horizon`.
          Otherwise:
        * If the number of states `N_h` never rises with h and falls somewhere, episodes ended: `N_0 − N_h`
          absorbing states are added to step h. Steps after the data, up to `horizon`, are `N_0` absorbing states.
        * If `N_h` is the same at every step, no episode ended; a horizon beyond the data is an error.
        * If `N_h` rises somewhere, these are unpaired states, which do not show when episodes ended. They are used as
          they are; a horizon beyond the data is an error.
        """
        shares = self.going or self._going_by_count()
        if shares[-1] > 0:
            self._check_horizon(horizon)
        absorbing = np.eye(1, self.observation_size + 1, self.observation_size, np.float32)
        steps = []
        for h in range(horizon + 1):
            going = self.steps[h] if h <= self.horizon else self.steps[0][:0]
            share = shares[h] if h <= self.horizon else 0.0
            count = round(len(going) * (1 - share) / share) if share else len(self.steps[0])
            require_memory(count * absorbing.nbytes, f"{self.source}: ended episodes at step {h}", error=DataError)
            steps.append(np.concatenate([np.pad(going, ((0, 0), (0, 1))), absorbing.repeat(count, axis=0)]))
        names = None if self.names is None else (*self.names, "ended")
        return replace(self, steps=tuple(steps), names=names, going=None)

    def _going_by_count(self) -> tuple[float, ...]:
        """The shares that the numbers of states show: if they never rise and fall somewhere, all episodes ended."""
        counts = [len(states) for states in self.steps]
        if counts == sorted(counts, reverse=True) and counts[-1] < counts[0]:
            return (*(count / counts[0] for count in counts), 0.0)
        return (1.0,) * (len(counts) + 1)

    def endings(self) -> str:
        """How the ends of episodes are understood, in words."""
        first, last = len(self.steps[0]), len(self.steps[-1])
        shares = self.going or self._going_by_count()
        ended = f"{1 - shares[-2]:.0%} of the episodes end before step {self.horizon}"
        if self.going is not None:
            beyond = "all by then" if shares[-1] == 0 else "the others go on"
            return f"ends are known: {ended}, {beyond}" if shares[-1] < 1 else "ends are known: no episode ended"
        if shares[-1] == 0:
            return (
                f"ends are guessed: states fall from {first:,} to {last:,} and never rise, read as {ended}; if the log was "
                "cut off or rows are missing instead, give --episode NAME"
            )
        if first == last and len({len(states) for states in self.steps}) == 1:
            return f"no episode ended: every step has {first:,} state{'s' * (first > 1)}"
        return "ends are not known: the number of states rises and falls, so no episode counts as ended; see --episode NAME"

    def subsample(self, most: int | None, seed: int) -> ObservationDataset:
        """At most `most` states of each step, drawn without replacement; all, if it is None."""
        if most is None:
            return self
        rng = np.random.default_rng(seed)
        pick = [s if len(s) <= most else s[np.sort(rng.choice(len(s), most, replace=False))] for s in self.steps]
        return replace(self, steps=tuple(pick))

    def fingerprint(self) -> str:
        """A hash of the states; resuming a run compares it."""
        digest = hashlib.blake2b(digest_size=16)
        for states in self.steps:
            digest.update(str(states.shape).encode() + np.ascontiguousarray(states).tobytes())
        return digest.hexdigest()


def refuse_max_episodes(max_episodes: int | None, source: str | Path) -> None:
    """Reject a number of episodes for data that do not say which state belongs to which episode."""
    if max_episodes is not None:
        raise DataError(f"{source}: holds unpaired states, without episodes; leave out --max-episodes")


def _read_about(arrays: dict[str, np.ndarray], source: str) -> dict[str, Any]:
    """What an npz file says of its states, besides them."""
    about: dict[str, Any] = {}
    for name, kinds in ((NAMES, "U"), (GOING, "f")):
        if name in arrays:
            if arrays[name].dtype.kind not in kinds or arrays[name].ndim != 1:
                raise DataError(
                    f"{source}: {name} is not a list of {'texts' if name == NAMES else 'shares'}; leave it out"
                )
            about[name] = tuple(arrays[name].tolist())
    return about


def describe_steps(data: ObservationDataset) -> list[dict[str, Any]]:
    """One row per step: number of states, range, duplicates, non-finite values, constant dimensions."""
    rows = []
    for h, states in enumerate(data.steps):
        known = np.isfinite(states)
        finite = states if known.all() else states[known]
        low, mean, high = (float(f(finite)) if finite.size else float("nan") for f in (np.min, np.mean, np.max))
        rows.append(
            {
                "timestep": h,
                "states": len(states),
                "min": low,
                "mean": mean,
                "max": high,
                "duplicates": count_duplicates(states),
                "non_finite": int(states.size - finite.size),
                "constant_dimensions": int((states == states[0]).all(axis=0).sum()) if len(states) > 1 else 0,
            }
        )
    return rows
