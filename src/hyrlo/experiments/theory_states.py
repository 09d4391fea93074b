"""How many samples FOOBAR needs when the number of states grows: value witnesses (Eq. 1) against all bounded functions (TV).

The MDP is a lock with copies of its states, half of them good. From a good state, one action, which depends on the copy,
leads to a random good state; the others lead to a bad state for ever. The last correct action pays 1. Policy and value class
hold one function for each of a few candidate combinations, of which one is right. By the theorem, the number of samples
depends on the size of these classes and not on the number of states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hyrlo.distances.value import BoundedWitnesses, Values, Witnesses, WitnessTable, ipm, value_witnesses
from hyrlo.theory.finite import Distributions, FiniteMDP, uniform_policy
from hyrlo.theory.finite_fail import FinitePolicies, PolicyClass, finite_fail, finite_psdp, simulated, simulated_returns

HORIZON, ACTIONS, CANDIDATES, EPSILON = 5, 4, 16, 0.2
TARGETS = {"ipm": 0.1, "suboptimality": 0.1}
"""Largest exact Eq. 1 IPM of a step of the forward policy; V* − V of the backward policy, where V* = 1."""
KINDS = ("value", "tv")


@dataclass(frozen=True)
class CopiesLock:
    """The MDP with its data, and value, policy and witness classes for every step."""

    mdp: FiniteMDP
    offline: Distributions
    values: list[Values]
    policies: list[PolicyClass]
    witnesses: list[WitnessTable]


def copies_lock(states: int, seed: int) -> CopiesLock:
    """The lock with `states` states a step, half of them good; data of the right combination with 0.2 random actions."""
    rng = np.random.default_rng([seed, states])
    good = np.arange(states) < states // 2
    combinations = rng.integers(ACTIONS, size=(CANDIDATES, HORIZON, states))
    right = rng.integers(CANDIDATES)
    plays = np.eye(ACTIONS)[combinations]  # candidate, step, state, action
    onwards = (plays[right] * good[:, None]).astype(bool)
    copies = np.arange(states // 2)
    successors = np.where(onwards[..., None], copies, states // 2 + copies)
    rewards = np.zeros(onwards.shape)
    rewards[-1] = onwards[-1]
    mdp = FiniteMDP(good / good.sum(), successors, np.full(successors.shape, 2 / states), rewards)
    tempered = (1 - EPSILON) * plays + EPSILON / ACTIONS
    values = [plays[:, h] * good[:, None] for h in range(HORIZON)]
    witnesses = [WitnessTable(value_witnesses(f)) for f in values]
    nothing = WitnessTable(np.zeros((1, states)))
    policies: list[PolicyClass] = [FinitePolicies(tempered[:, h]) for h in range(HORIZON)]
    return CopiesLock(mdp, mdp.occupancy(tempered[right]), values, policies, [*witnesses, nothing])


def learn(lock: CopiesLock, kind: str, samples: int, seed: int, rounds: int) -> dict[str, float]:
    """FOOBAR with `samples` offline states, forward and backward episodes per step; exact errors of its policies."""
    mdp = lock.mdp
    rng = np.random.default_rng([seed, samples])
    drawn = np.stack([rng.multinomial(samples, d / d.sum()) / samples for d in lock.offline])
    witnesses: list[Witnesses] = list(lock.witnesses)
    if kind == "tv":
        witnesses = [BoundedWitnesses() for _ in witnesses]
    witnesses[-1] = lock.witnesses[-1]  # no action is taken in the last states
    forward, _ = finite_fail(simulated(mdp, samples, rng), drawn, witnesses, lock.policies, uniform_policy(mdp), rounds)
    occupancy = mdp.occupancy(forward)
    backward, _ = finite_psdp(simulated_returns(mdp, occupancy, samples, rng), lock.values, uniform_policy(mdp))
    distances = [ipm(w, p, q) for w, p, q in zip(lock.witnesses, occupancy, lock.offline, strict=True)]
    return {"ipm": max(distances), "suboptimality": mdp.optimal_value() - mdp.value(backward)}


def samples_needed(states: int, kind: str, seed: int, most: int, rounds: int) -> list[dict[str, Any]]:
    """Errors for 8, 16, … samples, until both targets are met twice in a row."""
    lock, rows, met = copies_lock(states, seed), [], 0
    samples = 8
    while samples <= most and met < 2:
        reached = learn(lock, kind, samples, seed, rounds)
        met = met + 1 if all(reached[name] <= target for name, target in TARGETS.items()) else 0
        rows.append({"states": states, "witnesses": kind, "seed": seed, "samples": samples, **reached})
        samples *= 2
    return rows


def needed(rows: list[dict[str, Any]], target: str) -> dict[str, dict[int, list[float]]]:
    """By kind and number of states: the samples of each seed from which on the target is met (infinite if never)."""
    found: dict[str, dict[int, list[float]]] = {}
    runs: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for row in rows:
        runs.setdefault((row["witnesses"], row["states"], row["seed"]), []).append(row)
    for (kind, states, _), run in runs.items():
        missed = [row["samples"] for row in run if row[target] > TARGETS[target]]
        enough = [row["samples"] for row in run if row["samples"] > max(missed, default=0)]
        found.setdefault(kind, {}).setdefault(states, []).append(min(enough, default=np.inf))
    return found
