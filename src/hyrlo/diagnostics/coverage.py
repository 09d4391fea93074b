"""Exact coverage of a policy by data, on finite MDPs.

    C_cov(π)     = max_h ‖ d^π_h / μ_h ‖_∞                by the offline distribution
    C_cov^for(π) = max_h ‖ d^π_h / d^{π^f}_h ‖_∞          by the forward policy
    C_cov^pd(π)  = max_{π′ deterministic}  Σ_h E_{d^π_h}[max_a A^{π′}_h] / Σ_h E_{μ_h}[max_a A^{π′}_h]

The paper writes min_h in C_cov; its proofs need max_h. The maxima are over the steps for which a distribution is given: H + 1
rows, or H without the last states, in which no action is taken, as in the theorems.
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.sparse
from jaxtyping import Float
from scipy.optimize import linprog

from hyrlo.core.errors import HyrloError
from hyrlo.theory.finite import MOST_POLICIES, Distributions, FiniteMDP, Table


def density_ratio(p: Distributions, q: Distributions) -> float:
    """`max p / q` where p is not 0; infinite where q is 0 there."""
    inside = p > 0
    with np.errstate(divide="ignore"):
        return float((p[inside] / q[inside]).max())


def coverage(mdp: FiniteMDP, policy: Table, offline: Distributions) -> float:
    """`C_cov(π)` with respect to the offline distributions `offline`."""
    if len(offline) not in (mdp.horizon, mdp.horizon + 1) or offline.shape[1] != mdp.states:
        raise HyrloError(
            f"coverage: distributions have shape {offline.shape}; give {mdp.horizon} or {mdp.horizon + 1} steps of "
            f"{mdp.states} states"
        )
    return density_ratio(mdp.occupancy(policy)[: len(offline)], offline)


def forward_coverage(mdp: FiniteMDP, policy: Table, forward: Table) -> float:
    """`C_cov^for(π)` with respect to the forward policy, over steps 0 … H − 1."""
    return coverage(mdp, policy, mdp.occupancy(forward)[:-1])


def performance_difference_coverage(mdp: FiniteMDP, policy: Table, offline: Distributions) -> float:
    """`C_cov^pd(π)`, by listing all A^(SH) deterministic policies. Policies without positive advantage are skipped."""
    covered = mdp.occupancy(policy)[:-1]
    above, below = (advantage_mass(mdp, d[: mdp.horizon]) for d in (covered, offline))
    counts = above > 1e-12
    with np.errstate(divide="ignore"):
        return float((above[counts] / np.where(below[counts] > 1e-12, below[counts], 0)).max(initial=0.0))


def advantage_mass(mdp: FiniteMDP, distributions: Distributions) -> Float[np.ndarray, " policies"]:
    """`Σ_h E_{s ∼ distribution_h}[max_a A^{π′}_h(s, a)]` of every deterministic policy π′.

    What π′ does from step h + 1 on gives Q^{π′}_h; all ways to act at h are then added on a new axis.
    """
    ways = mdp.actions**mdp.states
    if ways**mdp.horizon > MOST_POLICIES:
        raise HyrloError(f"{mdp.actions}^{mdp.states * mdp.horizon} deterministic policies are too many to list")
    actions = np.array(list(itertools.product(range(mdp.actions), repeat=mdp.states)))
    values, mass = np.zeros((1, mdp.states)), np.zeros(1)
    for h in reversed(range(mdp.horizon)):
        q = mdp.rewards[h] + mdp.expect(h, values)
        played = q[:, np.arange(mdp.states), actions]
        advantage = q.max(axis=-1)[:, None] - played
        mass = (mass[:, None] + advantage @ distributions[h]).ravel()
        values = played.reshape(-1, mdp.states)
    return mass


def best_covered(mdp: FiniteMDP, offline: Distributions, price: float = 0.0) -> float:
    """`max_π V^π − price · C_cov(π)` over all policies, stochastic ones included, with C_cov finite: a linear program.

    A guarantee `V^π − V ≤ C_cov(π) · price` holds for every covered policy π if and only if this is at most V.
    """
    horizon, states, actions = mdp.rewards.shape
    size = horizon * states * actions
    index = np.arange(size).reshape(mdp.rewards.shape)
    rows, columns, entries = [], [], []
    right = np.zeros(horizon * states)
    right[:states] = mdp.initial_distribution
    for h in range(horizon):  # conservation of flow: mass in a state equals mass that enters it
        rows.append(np.repeat(h * states + np.arange(states), actions))
        columns.append(index[h].ravel())
        entries.append(np.ones(states * actions))
        if h + 1 < horizon:
            rows.append((h + 1) * states + mdp.successors[h].ravel())
            columns.append(np.repeat(index[h].ravel(), mdp.successors.shape[-1]))
            entries.append(-mdp.probabilities[h].ravel())
    flow = scipy.sparse.coo_matrix(
        (np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=(len(right), size + 1)
    )
    steps = offline[:horizon].ravel()
    within = scipy.sparse.hstack(
        [scipy.sparse.kron(scipy.sparse.eye(len(steps)), np.ones((1, actions))), -steps[:, None]], format="csr"
    )
    gain = np.append(mdp.rewards.ravel(), -price)
    solved = linprog(-gain, A_ub=within, b_ub=np.zeros(len(steps)), A_eq=flow.tocsr(), b_eq=right, bounds=(0, None))
    if not solved.success:
        return -np.inf  # no policy is covered
    return float(-solved.fun)
