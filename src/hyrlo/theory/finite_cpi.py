"""Algorithm 5, CPI-trace (see `hyrlo.backward.cpi`), on a finite MDP with exact or sampled values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jax.random import fold_in
from jaxtyping import Float, PRNGKeyArray

from hyrlo.backward.cpi import collect, most_updates, step_size
from hyrlo.core.access import TraceModel
from hyrlo.theory.discounted import DiscountedMDP, Table, greedy_table, table_policy


class Estimate(NamedTuple):
    """The state distribution of a policy, `d^π` started from `d^{π^f}`, and its advantages."""

    states: Float[np.ndarray, " states"]
    advantage: Table


class CpiResult(NamedTuple):
    """The returned policy, and the tested advantage and policy of every iteration."""

    policy: Table
    stopped: bool
    """Whether the stopping test ended it."""
    updates: int
    advantages: list[float]
    policies: list[Table]


def exact_estimates(mdp: DiscountedMDP, roll_in: Table) -> Callable[[Table, int], Estimate]:
    """Solved exactly."""
    start = mdp.occupancy(roll_in)
    return lambda policy, t: Estimate(mdp.occupancy(policy, start), mdp.advantage(policy))


def sampled_estimates(
    model: TraceModel, roll_in: Table, gamma: float, samples: int, key: PRNGKeyArray
) -> Callable[[Table, int], Estimate]:
    """Advantages from geometric roll-ins; the advantage of an action that was never tried in a state is 0."""

    def estimate(policy: Table, t: int) -> Estimate:
        batch = collect(model, table_policy(roll_in), table_policy(policy), samples, gamma, fold_in(key, t))
        states, actions = np.asarray(batch.states).argmax(axis=1), np.asarray(batch.actions)
        tried, sums = np.zeros_like(policy), np.zeros_like(policy)
        np.add.at(tried, (states, actions), 1)
        np.add.at(sums, (states, actions), np.asarray(batch.targets))
        q = sums / np.maximum(tried, 1)
        known = policy * (tried > 0)
        value = np.sum(known * q, axis=1) / np.maximum(known.sum(axis=1), 1e-12)
        return Estimate(tried.sum(axis=1) / samples, np.where(tried > 0, q - value[:, None], 0.0))

    return estimate


def cpi_finite(
    estimate: Callable[[Table, int], Estimate],
    policy: Table,
    gamma: float,
    epsilon: float,
    *,
    alpha: float | None = None,
    select: Callable[[Estimate], Table] = lambda estimate: greedy_table(estimate.advantage),
    most: int | None = None,
) -> CpiResult:
    """Algorithm 5 from `policy`. The step size `alpha` is (1 − γ)𝔸/4γ by default; `most` limits the number of updates and is
    ten times the paper's bound by default."""
    most = int(10 * most_updates(gamma, epsilon)) + 10 if most is None else most
    advantages: list[float] = []
    policies: list[Table] = []
    for t in range(most + 1):
        now = estimate(policy, t)
        better = select(now)
        advantage = float(np.sum(now.states[:, None] * better * now.advantage))
        advantages.append(advantage)
        policies.append(policy)
        if advantage <= epsilon:
            return CpiResult(policy, True, t, advantages, policies)
        if t < most:
            step = step_size(advantage, gamma) if alpha is None else alpha
            policy = (1 - step) * policy + step * better
    return CpiResult(policy, False, most, advantages, policies)
