"""What every algorithm is: a frozen config and a function `(model, data, config, key, run) → Policy`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from jaxtyping import PRNGKeyArray

from hyrlo.core.access import TraceModel
from hyrlo.core.policies import Policy

State = TypeVar("State")


class Phase(Protocol[State]):
    """A pass over the steps of an episode. Iterating yields the steps still to do, with `state` as they need it."""

    state: State

    def __iter__(self) -> Iterator[int]: ...

    def done(self, h: int, state: State, evaluate: Policy, **metrics: float) -> None:
        """Step `h` is learned: keep `state`, evaluate a policy for the curve, and write down the metrics."""
        ...


class Run(Protocol):
    """Where an algorithm reports and from where it resumes. It may be a directory, or nothing at all."""

    def phase(self, name: str, order: Iterable[int], state: State, model: TraceModel) -> Phase[State]: ...

    def keep_policy(self, name: str, policy: Policy) -> None:
        """Keep a policy that is of use by itself, such as a roll-in."""
        ...


class Train(Protocol):
    """`source` is what the algorithm learns from besides the world: offline states or tuples, a roll-in policy, nothing."""

    def __call__(self, model: TraceModel, source: Any, config: Any, key: PRNGKeyArray, run: Run) -> Policy: ...


@dataclass(frozen=True)
class Algorithm:
    """An entry of the registry."""

    name: str
    summary: str
    train: Train
    presets: Mapping[str, Any]
    access: Literal["trace", "reset", "interactive"] = "trace"
    learns_from: Literal["states", "transitions", "roll-in", "nothing"] = "states"
    vectors: bool = False
    """Whether actions may be vectors."""
