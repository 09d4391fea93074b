"""The paper's inequalities on random finite MDPs, against exact dynamic programming.

Every check is an inequality `left ≤ right`; its slack, `right − left`, is kept, which is negative where it fails.
The guarantees are checked against all covered policies at once, stochastic ones included, by a linear program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyrlo.diagnostics.coverage import best_covered, coverage, performance_difference_coverage
from hyrlo.distances.value import Values, WitnessTable, greedy_witnesses, ipm, value_witnesses
from hyrlo.theory.finite import Distributions, FiniteMDP, Table, deterministic_q, greedy, uniform_policy
from hyrlo.theory.finite_fail import (
    AllPolicies,
    WeightedTransitions,
    exact_returns,
    exactly,
    finite_psdp,
    min_max_game,
    simulated_returns,
    smallest_ipm,
    witness_classes,
)

TOLERANCE = 1e-6
KINDS: dict[str, tuple[Callable[[Values], np.ndarray], bool]] = {
    "Eq. 1": (value_witnesses, True),
    "Eq. 1, one-sided": (value_witnesses, False),
    "greedy": (greedy_witnesses, True),
}
"""Witness classes: Eq. 1 with the absolute value of the IPM; without it, as Algorithm 4 is written; and the class that the
proof of the final guarantee uses."""
SLACKS = {
    "slack_forward": "Theorem 5.1: IPM_h ≤ Σ_{τ<h} ε_τ, with ε_τ as measured",
    "slack_forward_closed": "Theorem 5.1: IPM_h ≤ h·A/√T",
    "slack_final": "Theorem 5.2: V^π − V^b ≤ C_cov(π) (fit error + Σ_h Σ_{τ<h} ε_τ), all covered π",
    "slack_pd": "Theorem E.1: V* − V^b ≤ C_cov^pd(π*) (fit error + Σ_h IPM_h), where the policies can be listed",
    "slack_for": "Theorem D.1, inadmissible data: V^π − V^b ≤ C_cov^for(π) · fit error, all π",
}
MOST_FOR_PD = 70_000


@dataclass(frozen=True)
class Case:
    """An MDP, data, and value classes in which the value functions of all policies that PSDP may return are realizable."""

    mdp: FiniteMDP
    offline: Distributions
    values: list[Values]
    behaviour: Table | None = None
    """The policy that made the data, if one did."""


def random_case(seed: int, admissible: bool) -> Case:
    """A small MDP with few successors and one initial state, so that policies differ in what they reach."""
    rng = np.random.default_rng([seed, int(admissible)])
    horizon, states, actions = int(rng.integers(2, 4)), int(rng.integers(4, 9)), int(rng.integers(2, 4))
    raw = FiniteMDP.random(int(rng.integers(2**31)), horizon, states, actions, int(rng.integers(1, 4)), scale=1.0)
    rewards = (raw.rewards < 0.4).astype(float) if rng.integers(2) else raw.rewards
    even = np.full(raw.probabilities.shape, 1 / raw.probabilities.shape[-1])
    probabilities = even if rng.integers(2) else raw.probabilities
    mdp = FiniteMDP(np.eye(states)[0], raw.successors, probabilities, rewards)
    behaviour = rng.dirichlet(np.full(actions, 0.5), size=rewards.shape[:2])
    if rng.integers(3) == 0:
        behaviour = greedy(behaviour)
    values = realizable_values(mdp, rng)
    if admissible:
        return Case(mdp, mdp.occupancy(behaviour), values, behaviour)
    anywhere = rng.dirichlet(np.full(states, 0.3), size=horizon + 1)
    anywhere[0] = mdp.initial_distribution
    return Case(mdp, anywhere, values)


def realizable_values(mdp: FiniteMDP, rng: np.random.Generator, decoys: int = 3) -> list[Values]:
    """`Q^{π^b}_h` of every π^b that is greedy for functions of the classes, and decoys with actions swapped in some states."""
    classes: list[Values] = []
    tails = np.zeros((1, mdp.states))
    for h in reversed(range(mdp.horizon)):
        q = mdp.rewards[h] + mdp.expect(h, tails)
        wrong = q[rng.integers(len(q), size=decoys)].copy()
        for f in wrong:
            swapped = rng.permutation(mdp.states)[: rng.integers(1, mdp.states + 1)]
            f[swapped] = np.roll(f[swapped], rng.integers(1, mdp.actions), axis=1)
        classes.append(np.concatenate([q, wrong]))
        played = np.unique(classes[-1].argmax(axis=-1), axis=0)
        tails = q[:, np.arange(mdp.states), played].reshape(-1, mdp.states)
        tails = tails[np.unique(tails.round(10), axis=0, return_index=True)[1]]
    return classes[::-1]


@dataclass(frozen=True)
class Forward:
    """A forward policy, the IPM of its states at every step, and the excess ε of each step over the smallest payoff."""

    policy: Table
    occupancy: Distributions
    ipm: list[float]
    epsilon: list[float]


def forward(case: Case, witnesses: list[WitnessTable], solver: str, rounds: int) -> Forward:
    """FAIL with exact expectations. `solver`: `game` (Algorithm 4), or `exact`, a vertex of the best policies."""
    policy, epsilon = uniform_policy(case.mdp), []
    for h in range(case.mdp.horizon):
        online: WeightedTransitions = exactly(case.mdp)(h, policy)
        smallest, best = smallest_ipm(online, case.offline[h + 1], witnesses[h + 1])
        if solver == "game":
            best = min_max_game(online, case.offline[h + 1], witnesses[h + 1], AllPolicies(), rounds).policy
        policy[h] = best
        reached = witnesses[h + 1].best_response(online.lead(best) - case.offline[h + 1])[0]
        epsilon.append(max(reached - smallest, 0.0))
    occupancy = case.mdp.occupancy(policy)
    absolute = [WitnessTable(w.functions) for w in witnesses]
    distances = [ipm(w, p, q) for w, p, q in zip(absolute, occupancy, case.offline, strict=True)]
    return Forward(policy, occupancy, distances, epsilon)


def fit_error(mdp: FiniteMDP, roll_in: Distributions, backward: Table, learned: Table) -> float:
    """`Σ_h E_{s ∼ roll-in}[ max_a |Q^{π^b} − f| + |f − Q^{π^b}|(s, π^b(s)) ]`: what ε^back bounds."""
    error = np.abs(mdp.q(backward) - learned)
    return float((roll_in[:-1] * (error.max(axis=-1) + (backward * error).sum(axis=-1))).sum())


def study(seed: int, admissible: bool, rounds: int, samples: int) -> list[dict[str, Any]]:
    """One case with every witness class, solver of the forward pass and backward pass."""
    case = random_case(seed, admissible)
    mdp, rows = case.mdp, []
    size = {"horizon": mdp.horizon, "states": mdp.states, "actions": mdp.actions}
    ratio = coverage(mdp, mdp.optimal_policy(), case.offline[:-1])
    values = {"best_covered": best_covered(mdp, case.offline), "optimal": mdp.optimal_value()}
    for kind, (build, signed) in KINDS.items():
        if not (signed or admissible):
            continue
        witnesses = witness_classes(mdp, case.values, build, case.behaviour, signed)
        for solver in ("game", "exact"):
            found = forward(case, witnesses, solver, rounds)
            for backward_pass in ("exact", "sampled"):
                value, error = backward(case, found, samples if backward_pass == "sampled" else None, seed)
                rows.append(
                    {
                        "seed": seed, "admissible": admissible, **size, "witnesses": kind, "forward": solver,
                        "backward": backward_pass, "coverage": ratio, "ipm": max(found.ipm), "epsilon": max(found.epsilon),
                        "fit_error": error, "value": value, **values, **dict.fromkeys(SLACKS, ""),
                        **slacks(case, found, error, value, rounds if solver == "game" else None),
                    }
                )  # fmt: skip
    return rows


def backward(case: Case, found: Forward, samples: int | None, seed: int) -> tuple[float, float]:
    """Value and fit error of PSDP from the forward policy: with exact returns, or with this many samples per step."""
    mdp = case.mdp
    if samples is None:
        collect, ties = exact_returns(mdp, found.occupancy), case.offline
    else:
        collect, ties = simulated_returns(mdp, found.occupancy, samples, np.random.default_rng(seed)), None
    policy, learned = finite_psdp(collect, case.values, uniform_policy(mdp), ties)
    return mdp.value(policy), fit_error(mdp, found.occupancy, policy, learned)


def slacks(case: Case, found: Forward, error: float, value: float, rounds: int | None) -> dict[str, Any]:
    """Slacks of the inequalities that apply. `rounds` are those of the game, where one was played."""
    mdp, distances = case.mdp, np.array(found.ipm)
    if case.behaviour is None:
        return {"slack_for": slack(mdp, found.occupancy, error, value)}
    allowed = np.cumsum([0.0, *found.epsilon])  # Theorem 5.1: IPM_h ≤ Σ_{τ<h} ε_τ ≤ h ε
    checked: dict[str, Any] = {
        "slack_forward": float((allowed - distances).min()),
        "slack_final": slack(mdp, case.offline, error + allowed[:-1].sum(), value),
        "slack_pd": pd_slack(case, error + distances[:-1].sum(), value),
    }
    if rounds is not None:
        closed = np.arange(mdp.horizon + 1) * mdp.actions / np.sqrt(rounds)
        checked["slack_forward_closed"] = float((closed - distances).min())
    return checked


def slack(mdp: FiniteMDP, distributions: Distributions, price: float, value: float) -> float:
    """Slack of `V^π − V ≤ C(π) · price` for the worst π that the distributions cover."""
    return value - best_covered(mdp, distributions, price + 1e-9)


def pd_slack(case: Case, price: float, value: float) -> float | str:
    """Slack of `V* − V ≤ C_cov^pd(π*) · price`; empty where the deterministic policies are too many to list."""
    mdp = case.mdp
    if mdp.actions ** (mdp.states * mdp.horizon) > MOST_FOR_PD:
        return ""
    ratio = performance_difference_coverage(mdp, mdp.optimal_policy(), case.offline)
    return value + ratio * price - mdp.optimal_value() if np.isfinite(ratio) else ""


# Small counterexamples.


def fixed_action_example() -> tuple[Case, Table]:
    """Eq. 1 sees no difference, all is realizable, the fit is perfect, and yet the guarantee fails.

    From s_0, a_1 pays 1 and leads to B or B′, a_2 pays nothing and leads to A or A′. The last step pays 1 for a_1 in A, B
    and for a_2 in A′, B′. The data are those of a_1. A decoy f′ is right in A, A′ and wrong in B, B′. A roll-in by a_2 (the
    policy that is returned) has the same mean as the data for every witness of Eq. 1, since each compares with one action
    for all states; f′ fits what it sees perfectly, and the policy that is greedy for f′ earns 1, that which made
    the data (and is covered with C_cov = 1) 2 with the right last action.
    """
    transitions = np.zeros((2, 5, 2, 5))
    transitions[:, :, :, 0] = 1
    transitions[0, 0] = [[0, 0, 0, 0.5, 0.5], [0, 0.5, 0.5, 0, 0]]
    rewards = np.zeros((2, 5, 2))
    rewards[0, 0, 0] = 1
    rewards[1, [1, 3], 0] = rewards[1, [2, 4], 1] = 1
    decoy = rewards[1].copy()
    decoy[3:] = decoy[3:, ::-1]
    mdp = FiniteMDP.dense(np.eye(5)[0], transitions, rewards)
    behaviour = np.tile(np.array([1.0, 0.0]), (2, 5, 1))
    roll_in = np.tile(np.array([0.0, 1.0]), (2, 5, 1))
    return Case(
        mdp, mdp.occupancy(behaviour), [deterministic_q(mdp)[0], np.stack([rewards[1], decoy])], behaviour
    ), roll_in


def one_sided_example() -> Case:
    """Algorithm 4 as written, without an absolute value, prefers to leave the states of the data.

    From s_0, a_1 leads to B or B′, a_2 to C. The last step pays 1 for a_1 in B and for a_2 in B′, nothing in C. The data are
    those of a_1. All witnesses are 0 in C and 1/2 on average under the data, so that u is 0 for a_1 and −1/2 for a_2.
    """
    transitions = np.zeros((2, 4, 2, 4))
    transitions[:, :, :, 0] = 1
    transitions[0, 0] = [[0, 0.5, 0.5, 0], [0, 0, 0, 1.0]]
    rewards = np.zeros((2, 4, 2))
    rewards[1, 1, 0] = rewards[1, 2, 1] = 1
    decoy = rewards[1, :, ::-1]
    mdp = FiniteMDP.dense(np.eye(4)[0], transitions, rewards)
    behaviour = np.tile(np.array([1.0, 0.0]), (2, 4, 1))
    return Case(mdp, mdp.occupancy(behaviour), [deterministic_q(mdp)[0], np.stack([rewards[1], decoy])], behaviour)


def range_example(horizon: int = 10) -> tuple[float, float]:
    """Theorem 5.1's bound `h·A/√T` is that of witnesses with values up to 1, but those of Eq. 1 go up to H.

    From s_0, a_1 leads to a good state and a_2 to a bad one for ever; a_1 stays in the good state and pays 1. The data are
    those of a_1. After one round (T = 1) Algorithm 4 returns its uniform first policy. The IPM at step 1, and the bound.
    """
    transitions = np.zeros((horizon, 3, 2, 3))
    transitions[:, :, 1, 2] = transitions[:, 2, :, 2] = 1
    transitions[:, :2, 0, 1] = 1
    transitions[:, 2, 0, 1] = 0
    rewards = np.zeros((horizon, 3, 2))
    rewards[1:, 1, 0] = 1
    mdp = FiniteMDP.dense(np.eye(3)[0], transitions, rewards)
    behaviour = np.tile(np.array([1.0, 0.0]), (horizon, 3, 1))
    witnesses = WitnessTable(value_witnesses(mdp.q(behaviour)[1:2]))
    online = exactly(mdp)(0, uniform_policy(mdp))
    offline = mdp.occupancy(behaviour)
    game = min_max_game(online, offline[1], witnesses, AllPolicies(), rounds=1)
    return game.u, mdp.actions / np.sqrt(1)
