"""State data: the states of every step, without actions and rewards."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hyrlo.core.errors import DataError
from hyrlo.core.files import atomic_file
from hyrlo.data.arrays import as_float32, check_numeric, check_timesteps, rows_by_step
from hyrlo.data.formats import OBSERVATIONS, TIMESTEPS
from hyrlo.data.npz import read_arrays
from hyrlo.data.precision import check_precision

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
        if self.check_finite and (where := self.first_non_finite()):
            raise DataError(f"{self.source}: {where}; remove or fix non-finite values")

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
        arrays = read_arrays(path, (observations, timesteps))
        if timesteps in arrays:
            refuse_max_episodes(max_episodes, path)
            return cls.from_unpaired(arrays[observations], arrays[timesteps], str(path), check_finite)
        episodes = arrays[observations]
        if max_episodes is not None and episodes.ndim:
            episodes = episodes[:max_episodes]
        return cls.from_trajectories(episodes, str(path), check_finite)

    def save(self, path: str | Path) -> None:
        """Write an npz file: as trajectories if every step has the same number of states, else unpaired."""
        sizes = [len(states) for states in self.steps]
        if len(set(sizes)) == 1:
            arrays = {"observations": np.stack(self.steps, axis=1)}
        else:
            timesteps = np.repeat(np.arange(len(sizes)), sizes)
            arrays = {"observations": np.concatenate(self.steps), "timesteps": timesteps}
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
        return ObservationDataset(self.steps[: horizon + 1], self.source, self.check_finite)

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
        * If the number of states `N_h` never rises with h and falls somewhere, episodes ended: `N_0 − N_h`
          absorbing states are added to step h. Steps after the data, up to `horizon`, are `N_0` absorbing states.
        * If `N_h` is the same at every step, no episode ended; a horizon beyond the data is an error.
        * If `N_h` rises somewhere, these are unpaired states, which do not show when episodes ended. They are used as
          they are; a horizon beyond the data is an error.
        """
        if not self._episodes_ended():
            self._check_horizon(horizon)
            flagged = tuple(np.pad(states, ((0, 0), (0, 1))) for states in self.steps[: horizon + 1])
            return ObservationDataset(flagged, self.source, self.check_finite)
        absorbing = np.eye(1, self.observation_size + 1, self.observation_size, np.float32)
        steps = []
        for h in range(horizon + 1):
            going = self.steps[h] if h <= self.horizon else self.steps[0][:0]
            ended = absorbing.repeat(len(self.steps[0]) - len(going), axis=0)
            steps.append(np.concatenate([np.pad(going, ((0, 0), (0, 1))), ended]))
        return ObservationDataset(tuple(steps), self.source, self.check_finite)

    def _episodes_ended(self) -> bool:
        """Whether the number of states never rises and falls somewhere."""
        counts = [len(states) for states in self.steps]
        return counts == sorted(counts, reverse=True) and counts[-1] < counts[0]

    def subsample(self, most: int | None, seed: int) -> ObservationDataset:
        """At most `most` states of each step, drawn without replacement; all, if it is None."""
        if most is None:
            return self
        rng = np.random.default_rng(seed)
        pick = [s if len(s) <= most else s[np.sort(rng.choice(len(s), most, replace=False))] for s in self.steps]
        return ObservationDataset(tuple(pick), self.source, self.check_finite)

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


def describe_steps(data: ObservationDataset) -> list[dict[str, Any]]:
    """One row per step: number of states, range, duplicates, non-finite values, constant dimensions."""
    rows = []
    for h, states in enumerate(data.steps):
        finite = states[np.isfinite(states)]
        low, mean, high = (float(f(finite)) if finite.size else float("nan") for f in (np.min, np.mean, np.max))
        rows.append(
            {
                "timestep": h,
                "states": len(states),
                "min": low,
                "mean": mean,
                "max": high,
                "duplicates": len(states) - len(np.unique(states, axis=0)),
                "non_finite": int(states.size - finite.size),
                "constant_dimensions": int((states == states[0]).all(axis=0).sum()) if len(states) > 1 else 0,
            }
        )
    return rows
