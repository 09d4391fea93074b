"""The two hardness propositions, statement by statement, computed exactly or through a ledger."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from hyrlo.core.jax_model import JaxResetModel
from hyrlo.diagnostics.coverage import coverage, forward_coverage
from hyrlo.distances.value import BoundedWitnesses, WitnessTable, total_variation, value_witnesses
from hyrlo.theory.finite import uniform_policy
from hyrlo.theory.finite_fail import AllPolicies, every_action, exact_returns, finite_foobar, finite_psdp, min_max_game
from hyrlo.theory.finite_fail import exactly as exact_transitions
from hyrlo.theory.hardness import (
    HardTree,
    hard_tree,
    hard_tv,
    search,
    search_is_blind,
    smallest_tv_without_other,
    tv_minimisers,
)


def statement(construction: str, text: str, paper: Any, computed: float, holds: bool | None = None) -> dict[str, Any]:
    """A row of the table; `holds` is None where the paper makes no claim."""
    return {"construction": construction, "statement": text, "paper": paper, "computed": computed, "holds": holds}


def reset_episodes(tree: HardTree) -> tuple[int, float]:
    """PSDP with a reset model, from the two offline states of every step: episodes of the ledger, value of the policy."""
    model = JaxResetModel(tree.mdp)
    pairs = [np.array(pair) for pair in zip(tree.best, tree.other, strict=True)]
    collect = every_action(model, pairs, jax.random.key(0))
    policy, _ = finite_psdp(collect, [None] * tree.mdp.horizon, uniform_policy(tree.mdp))
    return model.ledger.episodes, tree.mdp.value(policy)


def check_tree(horizon: int, searches: int = 200, actions: int = 2) -> list[dict[str, Any]]:
    """All statements on the tree of this horizon."""
    tree = hard_tree(horizon, actions)
    mdp, name = tree.mdp, f"tree, H = {horizon}"
    ratio = coverage(mdp, mdp.optimal_policy(), tree.offline)
    tv = smallest_tv_without_other(tree)
    expected = search_is_blind(horizon, actions)
    found = np.mean([search(hard_tree(horizon, actions, s), np.random.default_rng(s)) for s in range(searches)])
    error = expected / np.sqrt(3 * searches)  # standard deviation of the mean of uniform numbers of trials
    episodes, value = reset_episodes(tree)
    bounded = [BoundedWitnesses() for _ in range(horizon + 1)]
    result = finite_foobar(mdp, tree.offline, [None] * horizon, bounded, rounds=200)
    unmatched = total_variation(result.occupancy[-1], tree.offline[-1])
    short = mdp.optimal_value() - mdp.value(result.backward)
    return [
        statement(name, "coverage of π*", 2, ratio, ratio == 2),
        statement(name, "least TV to D_H of data without the other leaf", "≥ 1/2", tv, tv >= 0.5),
        statement(
            name,
            "expected episodes to find that leaf, by counting",
            "Ω(A^H)",
            expected,
            expected >= actions**horizon / 8,
        ),
        statement(name, f"the same, mean of {searches} searches", "", float(found), abs(found - expected) < 4 * error),
        statement(
            name, "episodes of PSDP with resets (2A a step)", "O(A)", episodes, episodes == 2 * actions * horizon
        ),
        statement(name, "V* − V of that PSDP", 0, mdp.optimal_value() - value, value == mdp.optimal_value()),
        statement(name, "TV to D_H of FAIL with TV witnesses and exact expectations", "", unmatched),
        statement(name, "V* − V of FOOBAR with that roll-in", "", short),
    ]


def check_tv(rounds: int = 20_000) -> list[dict[str, Any]]:
    """All statements on the TV construction."""
    return [*_tv_minimisers(), *_tv_games(rounds)]


def _tv_minimisers() -> list[dict[str, Any]]:
    """What the policies closest to the data in total variation are worth as roll-ins."""
    hard = hard_tv()
    mdp, offline, best, blank = hard.mdp, hard.offline, hard.mdp.optimal_policy(), uniform_policy(hard.mdp)
    ratio = coverage(mdp, best, offline)
    reset = mdp.value(finite_psdp(exact_returns(mdp, offline), [None, None], blank)[0])
    (first, first_tv), (second, second_tv) = tv_minimisers()
    covered, values = [], []
    for share in (first, second):
        roll_in = blank.copy()
        roll_in[0] = 1 - share, share
        covered.append(forward_coverage(mdp, best, roll_in))
        values.append(mdp.value(finite_psdp(exact_returns(mdp, mdp.occupancy(roll_in)), [None, None], blank)[0]))
    return [
        statement("TV", "coverage of π*", 18, ratio, bool(np.isclose(ratio, 18))),
        statement("TV", "deterministic minimiser: probability of a_2", 0, first, first == 0),
        statement("TV", "deterministic minimiser: TV", 0.1, first_tv, bool(np.isclose(first_tv, 0.1))),
        statement("TV", "deterministic minimiser: C_cov^for(π*)", "∞", covered[0], np.isinf(covered[0])),
        statement("TV", "V of FOOBAR with that roll-in (V* = 0.1)", 0, values[0], values[0] == 0),
        statement("TV", "V of PSDP with resets", 0.1, reset, bool(np.isclose(reset, 0.1))),
        statement("TV", "minimiser over all policies: probability of a_2", 0, second, second < 1e-6),
        statement("TV", "minimiser over all policies: TV", 0.1, second_tv, second_tv > 0.1 - 1e-6),
        statement("TV", "minimiser over all policies: C_cov^for(π*)", "∞", covered[1], np.isinf(covered[1])),
        statement("TV", "V of FOOBAR with that roll-in", 0, values[1], values[1] == 0),
    ]


def _tv_games(rounds: int) -> list[dict[str, Any]]:
    """What Algorithm 4 finds, with all bounded witnesses and with those of Eq. 1."""
    hard = hard_tv()
    mdp, offline = hard.mdp, hard.offline
    online = exact_transitions(mdp)(0, uniform_policy(mdp))
    played = min_max_game(online, offline[1], BoundedWitnesses(), AllPolicies(), rounds)
    second = played.policy[0, 1]
    smallest = WitnessTable(value_witnesses(mdp.rewards[1:]))
    game = min_max_game(online, offline[1], smallest, AllPolicies(), rounds)
    result = finite_foobar(mdp, offline, [None, mdp.rewards[1:]], [smallest] * 2 + [WitnessTable(np.zeros((1, 4)))])
    matched = result.occupancy[1, 3]
    name = "probability of s_3 after FAIL with Eq. 1 witnesses, F_1 = {R_1}"
    return [
        statement("TV", "Algorithm 4 with TV witnesses: probability of a_2", 0, second, second < 1e-3),
        statement("TV", "Algorithm 4 with TV witnesses: TV", 0.1, played.u, played.u > 0.1 - 1e-3),
        statement("TV", "smallest Eq. 1 IPM at step 1, F_1 = {R_1}", "> 0", game.u, game.u > 1e-2),
        statement("TV", name, 0, matched, matched < 1e-3),
    ]
