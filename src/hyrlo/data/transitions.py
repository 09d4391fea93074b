"""Canonical offline data: tuples of state, action, reward and next state of every step, and whether the episode ended.

HyQ and RLPD learn from these; `observations()` keeps the states alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from hyrlo.core.errors import DataError
from hyrlo.core.files import atomic_file
from hyrlo.data.arrays import as_float32, check_timesteps, rows_by_step
from hyrlo.data.formats import is_npz
from hyrlo.data.npz import array_names, read_arrays
from hyrlo.data.precision import check_precision
from hyrlo.data.states import ObservationDataset, refuse_max_episodes

TRAJECTORY_ARRAYS = ("observations", "actions", "rewards")
UNPAIRED_ARRAYS = (*TRAJECTORY_ARRAYS, "next_observations", "timesteps")
TERMINALS = "terminals"
"""Array of either layout that may be missing."""
ROUNDING = 1e-4
"""Action vectors may be this far outside [−1, 1]."""


class Transitions(NamedTuple):
    """The tuples of one step."""

    states: Float[np.ndarray, "n obs"]
    actions: Int[np.ndarray, " n"] | Float[np.ndarray, "n act"]
    rewards: Float[np.ndarray, " n"]
    next_states: Float[np.ndarray, "n obs"]
    terminals: Bool[np.ndarray, "*n"] = np.zeros((), bool)
    """Whether the step ended the episode; a time limit is no end. A single value holds for all tuples."""


@dataclass(frozen=True)
class TransitionDataset:
    """Offline tuples of steps 0 … H−1. Validated on construction: every step has tuples, of one size, all finite.

    `steps[h]` has N_h tuples; the N_h may differ, and tuples of different steps need not belong together. Arrays of any
    numeric type are stored as float32, discrete actions as int32.
    """

    steps: tuple[Transitions, ...]
    source: str = "data"
    check_finite: bool = True

    def __post_init__(self) -> None:
        if not self.steps:
            raise DataError(f"{self.source}: holds no transitions; needs those of at least timestep 0")
        object.__setattr__(self, "steps", tuple(_with_all_terminals(step) for step in self.steps))
        size, action = self.steps[0].states.shape[1:], self.steps[0].actions.shape[1:2]
        for h, step in enumerate(self.steps):
            self._check_shapes(step, h, size, action)
        if len(size) != 1 or size == (0,):
            raise DataError(f"{self.source}: states have shape {size}; give at least one dimension")
        if action == (0,):
            raise DataError(
                f"{self.source}: actions are vectors of no dimension; give at least one, or learn from states"
            )
        object.__setattr__(self, "steps", tuple(self._converted(step, h) for h, step in enumerate(self.steps)))
        if self.check_finite and (where := self.first_non_finite()):
            raise DataError(f"{self.source}: {where}; remove or fix non-finite values")

    def _check_shapes(self, step: Transitions, h: int, size: tuple[int, ...], action: tuple[int, ...]) -> None:
        n = len(step.states)
        if n == 0:
            raise DataError(
                f"{self.source}: timestep {h} has no transitions; horizon is {self.horizon}, so every timestep "
                f"0 … {self.horizon - 1} needs some; add some for it or shorten the horizon"
            )
        shapes = ((n, *size), (n, *action), (n,), (n, *size), (n,))
        for name, array, shape in zip(step._fields, step, shapes, strict=True):
            if array.shape != shape:
                raise DataError(
                    f"{self.source}: timestep {h} has {name} of shape {array.shape}, not {shape}; "
                    "states, actions, rewards, next states and terminals of a step belong together one by one"
                )

    def _converted(self, step: Transitions, h: int) -> Transitions:
        states, vectors, rewards, next_states, flags = (
            as_float32(array, name, self.source) for name, array in zip(step._fields, step, strict=True)
        )
        actions = vectors if vectors.ndim == 2 else self._whole_actions(step, h)
        return Transitions(states, actions, rewards, next_states, self._terminals(flags, h))

    def _terminals(self, flags: Float[np.ndarray, " n"], h: int) -> Bool[np.ndarray, " n"]:
        known = (flags == 0) | (flags == 1)
        if not known.all():
            first = int(np.argmin(known))
            raise DataError(
                f"{self.source}: timestep {h}, tuple {first}: terminal is {flags[first]}; terminals are true or false"
            )
        return flags == 1

    def _whole_actions(self, step: Transitions, h: int) -> Int[np.ndarray, " n"]:
        exact = step.actions.astype(np.float64)
        usable = (exact >= 0) & (exact == np.floor(exact)) & (exact <= np.iinfo(np.int32).max)
        if not usable.all():
            first = int(np.argmin(usable))
            raise DataError(
                f"{self.source}: timestep {h}, tuple {first}: action is {step.actions[first]}; "
                "actions are whole numbers from 0"
            )
        return step.actions.astype(np.int32, copy=False)

    def first_non_finite(self) -> str | None:
        """The position of the first non-finite value, in words."""
        for h, step in enumerate(self.steps):
            named = (("state", step.states), ("next state", step.next_states), ("reward", step.rewards))
            for name, array in (*named, ("action", step.actions)):
                if not np.isfinite(array).all():
                    place = tuple(np.argwhere(~np.isfinite(array))[0])
                    dimension = f" dimension {place[1]}" if len(place) == 2 else ""
                    return f"timestep {h}, tuple {place[0]}: {name}{dimension} is {array[place]}"
        return None

    @classmethod
    def from_trajectories(
        cls,
        observations: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        source: str = "data",
        check_finite: bool = True,
        terminals: np.ndarray | None = None,
    ) -> TransitionDataset:
        """From arrays `(N, H+1, *obs)`, `(N, H)` (or `(N, H, act)`, if actions are vectors), `(N, H)` and `(N, H)`.

        What follows a terminal is not part of the episode, whatever the arrays hold there.
        """
        states = ObservationDataset.from_trajectories(observations, source, check_finite=False).steps
        expected = (len(states[0]), len(states) - 1)
        flags = np.zeros(expected, bool) if terminals is None else as_float32(terminals, TERMINALS, source)
        for name, array in (("actions", actions), ("rewards", rewards), (TERMINALS, flags)):
            if array.shape[:2] != expected or array.ndim > 2 + (name == "actions"):
                raise DataError(
                    f"{source}: {name} has shape {array.shape}, but observations {observations.shape} need {expected}"
                )
        check_precision(rewards.reshape(-1, 1), source, ["rewards"])
        running = np.cumsum(flags != 0, axis=1) - (flags != 0) == 0
        steps = (
            Transitions(states[h][rows], actions[rows, h], rewards[rows, h], states[h + 1][rows], flags[rows, h])
            for h, rows in enumerate(running.T)
            if rows.any()
        )
        return cls(tuple(steps), source, check_finite)

    @classmethod
    def from_unpaired(
        cls,
        observations: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        next_observations: np.ndarray,
        timesteps: np.ndarray,
        source: str = "data",
        check_finite: bool = True,
        terminals: np.ndarray | None = None,
    ) -> TransitionDataset:
        """From tuples `(M, *obs)`, `(M,)`, `(M,)`, `(M, *obs)` in any order and the integer timestep of each.

        `terminals` `(M,)` says which of them ended an episode; by default none did.
        """
        check_timesteps(timesteps, source)
        shape = observations.shape
        fits = len(shape) >= 2 and next_observations.shape == shape
        flags = np.zeros(len(timesteps), bool) if terminals is None else terminals
        counts = (
            actions.shape[:1] if actions.ndim == 2 else actions.shape,
            rewards.shape,
            timesteps.shape,
            flags.shape,
        )
        if not fits or any(count != shape[:1] for count in counts):
            raise DataError(
                f"{source}: observations {shape}, actions {actions.shape}, rewards {rewards.shape}, next_observations "
                f"{next_observations.shape}, timesteps {timesteps.shape} and terminals {flags.shape} do not fit; "
                "give (M, *obs) and (M,)"
            )
        flat = (len(observations), math.prod(shape[1:]))
        check_precision(observations.reshape(flat), source)
        check_precision(next_observations.reshape(flat), source)
        check_precision(rewards[:, None], source, ["rewards"])
        arrays = (observations.reshape(flat), actions, rewards, next_observations.reshape(flat), flags)
        rows = rows_by_step(timesteps, source, "transitions", beyond=1)
        return cls(tuple(Transitions(*(a[step] for a in arrays)) for step in rows), source, check_finite)

    @classmethod
    def load(cls, path: str | Path, check_finite: bool = True, max_episodes: int | None = None) -> TransitionDataset:
        """From an npz file in either layout; `max_episodes` keeps the first trajectories only."""
        arrays = read_arrays(path, (*UNPAIRED_ARRAYS, TERMINALS))
        unpaired = "timesteps" in arrays or "next_observations" in arrays
        names = UNPAIRED_ARRAYS if unpaired else TRAJECTORY_ARRAYS
        for name in names:
            if name not in arrays:
                kind = "unpaired transitions" if unpaired else "transitions"
                raise DataError(f"{path}: has no array named {name}; {kind} need {', '.join(names)}")
        if unpaired:
            refuse_max_episodes(max_episodes, path)
        elif max_episodes is not None:
            arrays = {name: array[:max_episodes] if array.ndim else array for name, array in arrays.items()}
        build: Callable[..., TransitionDataset] = cls.from_unpaired if unpaired else cls.from_trajectories
        return build(**arrays, source=str(path), check_finite=check_finite)

    def save(self, path: str | Path) -> None:
        """Write an npz file: as trajectories if each step starts where the step before it ended, else unpaired."""
        if self._aligned():
            arrays = {
                "observations": np.stack(self.observations().steps, axis=1),
                **{
                    name: np.stack([getattr(step, name) for step in self.steps], axis=1)
                    for name in ("actions", "rewards", TERMINALS)
                },
            }
        else:
            columns = (np.concatenate(column) for column in zip(*self.steps, strict=True))
            names = (*TRAJECTORY_ARRAYS, "next_observations", TERMINALS)
            timesteps = np.repeat(np.arange(self.horizon), [len(step.states) for step in self.steps])
            arrays = {**dict(zip(names, columns, strict=True)), "timesteps": timesteps}
        if not arrays[TERMINALS].any():
            del arrays[TERMINALS]
        with atomic_file(Path(path)) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def _aligned(self) -> bool:
        """Whether the steps form trajectories of one length. Compared bit by bit, so that saving does not turn −0 into 0."""
        return all(
            not one.terminals.any() and np.array_equal(one.next_states.view(np.int32), following.states.view(np.int32))
            for one, following in pairwise(self.steps)
        )

    @property
    def horizon(self) -> int:
        return len(self.steps)

    @property
    def observation_size(self) -> int:
        return self.steps[0].states.shape[1]

    @property
    def action_size(self) -> int:
        """Dimensions of a continuous action; 0 if actions are discrete."""
        return self.steps[0].actions.shape[1] if self.steps[0].actions.ndim == 2 else 0

    def at(self, h: int) -> Transitions:
        """The tuples of step `h`."""
        return self.steps[h]

    def observations(self) -> ObservationDataset:
        """The states alone, without actions and rewards; `D_H` are the next states of the last step.

        Those of step h include the final states of the episodes that ended with step h − 1.
        """
        first, *others = self.steps
        states = [first.states]
        for before, step in zip(self.steps, others, strict=False):
            states.append(np.concatenate([step.states, before.next_states[before.terminals]]))
        return ObservationDataset((*states, self.steps[-1].next_states), self.source, self.check_finite)

    def with_ended(self, horizon: int) -> TransitionDataset:
        """The first `horizon` steps, whose states have one more dimension, the last: 0, the episode has not ended.

        If all tuples of the last step are terminals, every later step has one tuple that stays in the absorbing state
        (zeros, flag 1) with reward 0.
        """
        steps = [
            step._replace(**{name: np.pad(getattr(step, name), ((0, 0), (0, 1))) for name in ("states", "next_states")})
            for step in self.steps[:horizon]
        ]
        last = steps[-1]
        if last.terminals.all():
            absorbing = np.eye(1, last.states.shape[1], self.observation_size, np.float32)
            resting = Transitions(absorbing, np.zeros_like(last.actions[:1]), np.zeros(1), absorbing, np.ones(1, bool))
            steps += [resting] * (horizon - len(steps))
        return TransitionDataset(tuple(steps), self.source, self.check_finite)

    def for_horizon(self, horizon: int, observation_size: int, actions: int, action_size: int = 0) -> TransitionDataset:
        """The first `horizon` steps, checked against the environment's sizes."""
        if horizon > self.horizon:
            raise DataError(
                f"{self.source}: has transitions of timesteps 0 … {self.horizon - 1} but the horizon is {horizon}; "
                f"give --horizon {self.horizon} or less, or longer data"
            )
        if observation_size != self.observation_size:
            raise DataError(
                f"{self.source}: states have {self.observation_size} dimensions but the environment's have "
                f"{observation_size}; use data of this environment and horizon"
            )
        if self.action_size != action_size:
            kinds = [f"vectors of {size}" if size else "whole numbers" for size in (self.action_size, action_size)]
            raise DataError(
                f"{self.source}: actions are {kinds[0]} but the environment's are {kinds[1]}; use data of this environment"
            )
        for h, step in enumerate(self.steps[:horizon]):
            self._check_actions(step, h, actions)
        return TransitionDataset(self.steps[:horizon], self.source, self.check_finite)

    def _check_actions(self, step: Transitions, h: int, actions: int) -> None:
        """Discrete actions are below `actions`, vectors from −1 to 1."""
        wrong = np.abs(step.actions) > 1 + ROUNDING if self.action_size else step.actions >= actions
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0])
            known = (
                "action vectors are from -1 to 1; scale them"
                if self.action_size
                else (f"the environment has actions 0 … {actions - 1}; use data of this environment")
            )
            raise DataError(
                f"{self.source}: timestep {h}, tuple {place[0]}: action is {step.actions[place]} but {known}"
            )

    def subsample(self, most: int, seed: int) -> TransitionDataset:
        """At most `most` tuples of each step, drawn without replacement."""
        rng = np.random.default_rng(seed)

        def pick(step: Transitions) -> Transitions:
            n = len(step.states)
            rows = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
            return Transitions(*(array[rows] for array in step))

        return TransitionDataset(tuple(pick(step) for step in self.steps), self.source, self.check_finite)

    def fingerprint(self) -> str:
        """A hash of the tuples; resuming a run compares it."""
        digest = hashlib.blake2b(digest_size=16)
        for step in self.steps:
            for array in step:
                digest.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def has_actions_and_rewards(path: str | Path) -> bool:
    """Whether this is an npz file of transitions."""
    return is_npz(path) and {"actions", "rewards"} <= array_names(path)


def states_need_tuples(path: str | Path) -> bool:
    """Whether this is an npz file of transitions whose states are not its observations alone.

    The last states of unpaired transitions are among the next states, and no states follow a terminal.
    """
    if not has_actions_and_rewards(path):
        return False
    names = array_names(path)
    return TERMINALS in names or set(UNPAIRED_ARRAYS) <= names


def _with_all_terminals(step: Transitions) -> Transitions:
    """A single terminal given for all tuples as one for each."""
    if np.ndim(step.terminals):
        return step
    return step._replace(terminals=np.broadcast_to(step.terminals, len(step.states)))
