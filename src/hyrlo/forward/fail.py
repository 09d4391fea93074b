"""Algorithm 3, FAIL: learn, step by step, a forward policy whose states look like the offline states.

For h = 0 … H−1: roll in π_0 … π_{h−1}, explore at h, and let π_h make the next states look like the offline states D_{h+1}:

    π_h = argmin_π max_{g ∈ G}  Ê_π[ g(s_{h+1}) ] − Ê_{D_{h+1}}[ g ]

How Ê_π is estimated from the online samples is the estimator's business: importance.py (the paper's), latent.py, regression.py,
model.py, and density.py (importance weights for action vectors). Each estimator is one config and one file.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec, Steps, TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Policy, Stack, switch
from hyrlo.core.ranges import Count, Options
from hyrlo.data.states import ObservationDataset, Padded
from hyrlo.distances import StateUnits
from hyrlo.forward.lost import warn_if_lost


class Estimator(ABC):
    """Finds the forward policy of one step (or of a block of steps) from online samples.

    `State` is a pytree: the forward policy so far and what the estimator remembers between steps.
    """

    block: int = 1
    """Number of consecutive steps that share a policy."""
    rounds: int = 1
    """Rounds of collection and update at each step, for estimators with a fixed number of them."""
    samples: int
    """Episodes of a round, for estimators with a fixed number of them."""

    @abstractmethod
    def start(self) -> Any:
        """The state before the first step."""

    @abstractmethod
    def forward(self, state: Any) -> Stack:
        """The forward policy in `state`."""

    def begin(self, state: Any, h: int) -> Any:
        """Prepare for step `h`."""
        return state

    def wants(self, state: Any, h: int, r: int) -> int:
        """Episodes of round `r` of step `h`; none once the step is known well enough."""
        return self.samples if r < self.rounds else 0

    @abstractmethod
    def exploring(self, state: Any, h: int, r: int) -> Policy:
        """The policy that collects round `r` of step `h`."""

    def recorded(self, h: int, episodes: int) -> Steps:
        """The steps to record of a number of episodes."""
        return h

    def stop(self, h: int) -> int:
        """Where the episodes of step `h` are cut."""
        return h + 1

    @abstractmethod
    def update(self, key: PRNGKeyArray, state: Any, online: Recorded, h: int) -> tuple[Any, dict[str, float]]:
        """The state with a better policy of step `h`, and the metrics of the round."""

    def reach(self, state: Any) -> int | None:
        """The step from which on the forward policy has lost the offline states; None if it has not, as far as it knows."""
        return None

    def notes(self) -> Iterator[str]:
        """What went wrong in the estimator itself, one line each."""
        yield from ()

    def kept(self, h: int) -> tuple[Array, ...] | None:
        """What it remembers of step `h` besides the policy; saved step by step."""
        return None

    def restore(self, kept: Iterator[tuple[Array, ...]]) -> None:  # noqa: B027 (most keep nothing)
        """Take back what `kept` gave in the steps of earlier sessions."""


@dataclass(frozen=True)
class ForwardConfig(Options):
    """Forward pass: what the config of every estimator has."""

    samples: Count = 1000
    """Online episodes per step."""
    offline_samples: Count | None = 2000
    """Offline states used per step (all, if there are fewer)."""

    def resolved(self, model: TraceModel, data: ObservationDataset, key: PRNGKeyArray, run: Run) -> ForwardConfig:
        return self

    def closely(self) -> Self:
        return self

    def estimator(self, spec: Spec, data: ObservationDataset, key: PRNGKeyArray) -> Estimator:
        raise NotImplementedError


class ForwardSettings(Protocol):
    """How the forward pass is made: the config of an estimator, or one that chooses the estimator by measuring."""

    @property
    def offline_samples(self) -> int | None: ...

    def resolved(self, model: TraceModel, data: ObservationDataset, key: PRNGKeyArray, run: Run) -> ForwardConfig:
        """The config of the estimator."""
        ...

    def closely(self) -> Self:
        """With more episodes where they make a closer match: for a forward pass that is a result, not a roll-in."""
        ...


class Matched(NamedTuple):
    """The forward policy, the estimator with what it has seen, and the step from which on the policy is lost."""

    policy: Stack
    estimator: Estimator
    reach: int | None


def fail(model: TraceModel, source: ObservationDataset, config: ForwardSettings, key: PRNGKeyArray, run: Run) -> Stack:
    """Algorithm 3: the forward policy π^f."""
    return forward_pass(model, source, config, key, run).policy


def forward_pass(
    model: TraceModel, source: ObservationDataset, config: ForwardSettings, key: PRNGKeyArray, run: Run
) -> Matched:
    """Algorithm 3, and a warning where the states are lost."""
    chosen = config.resolved(model, source, Keys(key).choose, run)
    source = source.subsample(chosen.offline_samples, 0)
    estimator = chosen.estimator(model.spec, source, key)
    matched = match_forwards(model, estimator, key, run)
    for note in estimator.notes():
        run.warn(note, phase="forward")
    warn_if_lost(model, matched.policy, source, key, run)
    return matched


def match_forwards(model: TraceModel, estimator: Estimator, key: PRNGKeyArray, run: Run) -> Matched:
    """The loop of Algorithm 3, for every estimator."""
    spec = model.spec
    phase = run.phase("forward", range(0, spec.horizon, estimator.block), estimator.start(), model)
    estimator.restore(phase.kept())
    for h in phase:
        state, before = estimator.begin(phase.state, h), model.ledger.episodes
        metrics: dict[str, float] = {}
        for r in itertools.count():
            samples = estimator.wants(state, h, r)
            if not samples:
                break
            keys = Keys(key).at(h, r)
            roll_in = estimator.exploring(state, h, r)  # π_0 … π_{h−1}, then exploration
            online = model.record(
                keys.rollout, roll_in, samples, estimator.recorded(h, samples), stop=estimator.stop(h)
            )
            state, metrics = estimator.update(keys.update, state, online, h)
        learned = min(h + estimator.block, spec.horizon)
        if (rows := estimator.kept(h)) is not None:
            phase.keep(rows)
        metrics["step_episodes"] = model.ledger.episodes - before
        phase.done(h, state, evaluate=switch(estimator.forward(state), at=learned, to=spec.uniform()), **metrics)
    return Matched(estimator.forward(phase.state), estimator, estimator.reach(phase.state))


@eqx.filter_jit
def step_units(of_all: StateUnits, offline: Padded) -> StateUnits:
    """Around the mean of the step, no finer than all offline states: else observation noise would be as large as the rest."""
    return of_all.of_step(*offline, least=1.0)


class OneStepEstimator(Estimator):
    """An estimator that finds each π_h from uniform actions at step h, in one round. Its state is the forward policy."""

    def __init__(self, spec: Spec, data: ObservationDataset, samples: int):
        if spec.action_size:
            raise HyrloError("this estimator is for discrete actions; use --forward model (VectorModelConfig)")
        self.spec, self.data, self.samples = spec, data, samples
        self.units = StateUnits.of_steps(data.steps, spec.ends)

    def units_at(self, h: int) -> StateUnits:
        """What states of step `h` are measured in: the offline ones decide, whatever the policies did."""
        return step_units(self.units, self.data.padded(h))

    @abstractmethod
    def initial_policy(self) -> Policy:
        """A policy of one step, before learning."""

    @abstractmethod
    def solve(self, key: PRNGKeyArray, online: Recorded, offline: Padded, h: int) -> tuple[Policy, float, str]:
        """π_h, its distance to the offline states of step h + 1, and the name of that distance."""

    def start(self) -> Stack:
        return Stack.repeat(self.initial_policy(), self.spec.horizon)

    def forward(self, state: Stack) -> Stack:
        return state

    def exploring(self, state: Stack, h: int, r: int) -> Policy:
        return switch(state, at=h, to=self.spec.uniform())

    def update(self, key: PRNGKeyArray, state: Stack, online: Recorded, h: int) -> tuple[Stack, dict[str, float]]:
        policy, distance, name = self.solve(key, online, self.data.padded(h + 1), h)
        return state.with_step(h, policy), {name: distance}
