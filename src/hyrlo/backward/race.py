"""The best of several policies: all play, then again and again the better half plays twice as many more episodes."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.policies import Policy


def rounds(policies: int, episodes: int) -> list[tuple[int, int]]:
    """Number of policies and episodes of each, round by round."""
    found = []
    while policies > 1:
        found.append((policies, episodes))
        policies, episodes = -(-policies // 2), 2 * episodes
    return found


def race_episodes(policies: int, episodes: int) -> int:
    """Episodes of a race in all."""
    return sum(n * each for n, each in rounds(policies, episodes))


def race(model: TraceModel, policies: Mapping[str, Policy], episodes: int, key: PRNGKeyArray, run: Run) -> Policy:
    """The winner by mean return over all its episodes; of equal ones the first. `episodes` are those of the first round."""
    earned: dict[str, list[float]] = {name: [] for name in policies}
    left = list(policies)
    for r, (n, each) in enumerate(rounds(len(policies), episodes)):
        left = best_first(left, earned)[:n]
        for name in left:
            own = jax.random.fold_in(jax.random.fold_in(key, r), list(policies).index(name))
            earned[name] += np.asarray(model.rollout(own, policies[name], each).returns, float).tolist()
    winner = best_first(left, earned)[0]
    of_each = (f"{name} {np.mean(values):.3g} ({len(values)})" for name, values in earned.items())
    run.choose("policy", winner, f"return (episodes): {', '.join(of_each)}")
    return policies[winner]


def best_first(names: list[str], earned: Mapping[str, list[float]]) -> list[str]:
    """Ordered by mean return; equal ones stay in order, and so do those that have not played."""
    return sorted(names, key=lambda name: -np.mean(earned[name]) if earned[name] else 0.0)
