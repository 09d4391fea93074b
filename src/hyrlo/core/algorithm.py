"""What an algorithm reports to. An algorithm is a frozen config and a function `(model, data, config, key, run) → Policy`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from jaxtyping import Array

from hyrlo.core.access import TraceModel
from hyrlo.core.policies import Policy

State = TypeVar("State")


class Phase(Protocol[State]):
    """A pass over the steps of an episode. Iterating yields the steps that are left; `state` is what they start from."""

    state: State

    def __iter__(self) -> Iterator[int]: ...

    def keep(self, rows: tuple[Array, ...]) -> None:
        """Save rows that belong to the step under way, such as new tuples of a buffer that is too large for `state`."""
        ...

    def kept(self) -> Iterator[tuple[Array, ...]]:
        """What `keep` saved in the steps of earlier sessions, in order; nothing in a run that was not resumed."""
        ...

    def done(self, h: int, state: State, evaluate: Policy, **metrics: float) -> None:
        """Step `h` is learned: save `state`, evaluate a policy for the curve, and log the metrics."""
        ...


class Run(Protocol):
    """Where an algorithm reports, and what it resumes from: a run directory, or memory only."""

    def phase(self, name: str, order: Iterable[int], state: State, model: TraceModel) -> Phase[State]: ...

    def choose(self, about: str, choice: str, reason: str) -> None:
        """Say and keep what was chosen by measuring, and why."""
        ...

    def warn(self, what: str, **details: Any) -> None:
        """Say and keep what went wrong, in one line: where, how far off, and what to try."""
        ...

    def keep_policy(self, name: str, policy: Policy) -> None:
        """Save a policy that is useful by itself, such as a roll-in."""
        ...
