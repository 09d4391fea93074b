"""FAIL (Algorithms 3 and 4), PSDP and FOOBAR on finite MDPs with exact classes, as in the theorems.

The min-max game is played as it is written, with all past witnesses in the leader's sum:

    g^t = argmax_{g ∈ G} u(π^t, g),        π^{t+1} = argmin_{π ∈ Π} Σ_{τ ≤ t} u(π, g^τ) + φ(π),        t* = argmin_t u(π^t, g^t)

where φ is a negative entropy: of the action in every state if Π is all policies, of the choice from Π if Π is finite
(u is linear in π, so a mixture of policies is a policy; without mixtures no leader has small regret). The same code
serves exact expectations and samples: a step is a list of weighted transitions. A sample with a uniform action has the
weight A/N, which is the importance weight of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import jax
import numpy as np
import scipy.sparse
import scipy.special
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.optimize import linprog

from hyrlo.core.access import Recorded, ResetModel, TraceModel
from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import switch
from hyrlo.distances.value import Values, Witness, Witnesses, WitnessTable
from hyrlo.theory.finite import Distributions, FiniteMDP, Table, TablePolicy, draw, greedy, uniform_policy

OneStepPolicy = Float[np.ndarray, "states actions"]


@dataclass(frozen=True)
class WeightedTransitions:
    """Weighted transitions (s_h, a_h, s_{h+1}). The weights of each action sum to 1, exactly or in expectation."""

    states: Int[np.ndarray, " n"]
    actions: Int[np.ndarray, " n"]
    next_states: Int[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]
    shape: tuple[int, int]
    """Numbers of states and actions."""

    def lead(self, policy: OneStepPolicy) -> Float[np.ndarray, " states"]:
        """The distribution of s_{h+1} under a policy for a_h."""
        return np.bincount(self.next_states, self.weights * policy[self.states, self.actions], minlength=self.shape[0])

    def cost(self, witness: Witness) -> Float[np.ndarray, "states actions"]:
        """`u(π, g) = Σ π(a|s) cost(s, a)`, up to a constant in π."""
        flat = self.states * self.shape[1] + self.actions
        weights = self.weights * witness[self.next_states]
        return np.bincount(flat, weights, minlength=self.shape[0] * self.shape[1]).reshape(self.shape)

    @cached_property
    def mass(self) -> Float[np.ndarray, "states actions"]:
        """Weight of every (s, a)."""
        return self.cost(np.ones(self.shape[0]))


class PolicyClass(Protocol):
    """A class of one-step policies with its regularised cost-sensitive oracle."""

    def rate(self, online: WeightedTransitions, spread: float, rounds: int) -> float:
        """Learning rate (1 / strength of φ) with which the leader's mean regret is of order spread/√rounds."""
        ...

    def leader(
        self, cost: Float[np.ndarray, "states actions"], rate: float, online: WeightedTransitions
    ) -> OneStepPolicy:
        """`argmin_π Σ π(a|s) cost(s, a) + φ(π)`."""
        ...


@dataclass(frozen=True)
class AllPolicies:
    """Every policy. φ weighs a state by its frequency, so that the oracle is a softmax in each state."""

    def rate(self, online: WeightedTransitions, spread: float, rounds: int) -> float:
        mass = online.mass
        met = mass.sum(axis=1) > 0
        most = (mass[met].max(axis=1) / mass[met].mean(axis=1)).max()
        return float(np.sqrt(8 * np.log(online.shape[1]) / rounds) / max(spread * most, 1e-12))

    def leader(
        self, cost: Float[np.ndarray, "states actions"], rate: float, online: WeightedTransitions
    ) -> OneStepPolicy:
        share = online.mass.mean(axis=1, keepdims=True)
        return scipy.special.softmax(-rate * cost / np.where(share > 0, share, 1), axis=1)


@dataclass(frozen=True)
class FinitePolicies:
    """A list of policies and their mixtures; φ is the negative entropy of the mixture."""

    policies: Float[np.ndarray, "policies states actions"]

    def rate(self, online: WeightedTransitions, spread: float, rounds: int) -> float:
        most = np.tensordot(self.policies, online.mass, 2).max()
        return float(np.sqrt(8 * np.log(max(len(self.policies), 2)) / rounds) / max(spread * most, 1e-12))

    def leader(
        self, cost: Float[np.ndarray, "states actions"], rate: float, online: WeightedTransitions
    ) -> OneStepPolicy:
        mixture = scipy.special.softmax(-rate * np.tensordot(self.policies, cost, 2))
        return np.tensordot(mixture, self.policies, 1)


class FiniteGame(NamedTuple):
    """The best of the policies played, its `u`, and when it was played."""

    policy: OneStepPolicy
    u: float
    round: int


def min_max_game(
    online: WeightedTransitions,
    offline: Float[np.ndarray, " states"],
    witnesses: Witnesses,
    policies: PolicyClass,
    rounds: int = 1000,
) -> FiniteGame:
    """Algorithm 4: the policy with the smallest `u` among those played."""
    if rounds < 1:
        raise HyrloError(f"rounds is {rounds}; give at least 1")
    rate = policies.rate(online, witnesses.spread, rounds)
    cost = np.zeros(online.shape)
    best = FiniteGame(policies.leader(cost, rate, online), np.inf, 0)
    for t in range(rounds):
        policy = policies.leader(cost, rate, online)
        u, witness = witnesses.best_response(online.lead(policy) - offline)
        if u < best.u:
            best = FiniteGame(policy, u, t)
        cost += online.cost(witness)
    return best


def smallest_ipm(
    online: WeightedTransitions, offline: Float[np.ndarray, " states"], witnesses: WitnessTable
) -> tuple[float, OneStepPolicy]:
    """`min_π max_g |u(π, g)|` over all policies, by linear programming, and a minimiser."""
    states, actions = online.shape
    leads = np.zeros((states, states * actions))
    np.add.at(leads, (online.next_states, online.states * actions + online.actions), online.weights)
    costs = witnesses.functions @ leads
    below = witnesses.functions @ offline
    signs = (1, -1) if witnesses.signed else (1,)
    most = np.vstack([np.hstack([s * costs, -np.ones((len(costs), 1))]) for s in signs])
    ones = scipy.sparse.hstack(
        [scipy.sparse.kron(scipy.sparse.eye(states), np.ones((1, actions))), np.zeros((states, 1))], format="csr"
    )
    solved = linprog(
        np.append(np.zeros(states * actions), 1), A_ub=most, b_ub=np.concatenate([s * below for s in signs]),
        A_eq=ones, b_eq=np.ones(states), bounds=[(0, 1)] * (states * actions) + [(None, None)],
    )  # fmt: skip
    policy = np.clip(solved.x[:-1].reshape(states, actions), 0, None)
    return float(solved.fun), policy / policy.sum(axis=1, keepdims=True)


# Sources of the transitions of step h under `π_{0:h−1} ∘_h unif`.

Collect = Callable[[int, Table], WeightedTransitions]


def exactly(mdp: FiniteMDP) -> Collect:
    """Exact expectations."""

    def collect(h: int, policy: Table) -> WeightedTransitions:
        start = mdp.occupancy(policy)[h]
        weights = start[:, None, None] * mdp.probabilities[h]
        states, actions, _ = where = np.nonzero(weights > 0)
        return WeightedTransitions(states, actions, mdp.successors[h][where], weights[where], (mdp.states, mdp.actions))

    return collect


def sampled(model: TraceModel, samples: int, key: PRNGKeyArray) -> Collect:
    """Episodes through a trace model with one-hot observations."""
    spec = model.spec

    def collect(h: int, policy: Table) -> WeightedTransitions:
        roll_in = switch(TablePolicy.of(policy), at=h, to=spec.uniform())
        batch = model.record(jax.random.fold_in(key, h), roll_in, samples, h, stop=h + 1)
        states, following = (np.asarray(x).argmax(axis=1) for x in (batch.states, batch.next_states))
        weights = np.full(samples, spec.actions / samples)
        return WeightedTransitions(
            states, np.asarray(batch.actions), following, weights, (spec.observation_size, spec.actions)
        )

    return collect


def simulated(mdp: FiniteMDP, samples: int, rng: np.random.Generator) -> Collect:
    """As `sampled`, drawn from the tables: the same distribution without compiling anything."""

    def collect(h: int, policy: Table) -> WeightedTransitions:
        states = rng.choice(mdp.states, size=samples, p=mdp.occupancy(policy)[h])
        actions = rng.integers(mdp.actions, size=samples)
        weights = np.full(samples, mdp.actions / samples)
        return WeightedTransitions(
            states, actions, mdp.draw(rng, h, states, actions), weights, (mdp.states, mdp.actions)
        )

    return collect


def finite_fail(
    collect: Collect,
    offline: Distributions,
    witnesses: Sequence[Witnesses],
    policies: Sequence[PolicyClass],
    blank: Table,
    rounds: int = 1000,
) -> tuple[Table, list[FiniteGame]]:
    """Algorithm 3: the forward policy. `witnesses[h]` judge the states of step h; `blank` is the initial policy."""
    forward, games = blank.copy(), []
    for h in range(len(forward)):
        online = collect(h, forward)
        games.append(min_max_game(online, offline[h + 1], witnesses[h + 1], policies[h], rounds))
        forward[h] = games[-1].policy
    return forward, games


def witness_classes(
    mdp: FiniteMDP,
    values: Sequence[Values],
    build: Callable[[Values], Float[np.ndarray, "g states"]],
    behaviour: Table | None = None,
    signed: bool = True,
) -> list[WitnessTable]:
    """Witnesses of steps 0 … H, built from the value classes. No action follows step H, so its only witness is 0.

    Given the policy that made the data, they are completed: `T_h g = E[g(s_{h+1}) | s_h, a_h ∼ behaviour]` joins G_h for every
    g ∈ G_{h+1}, as the completeness assumption asks. (Eq. 1 makes T_h g from the function f(s, a) = T_h g(s) 1[a = 0].)
    """
    classes = [np.zeros((1, mdp.states))]
    for h in reversed(range(mdp.horizon)):
        own = build(values[h])
        if behaviour is not None and h + 1 < mdp.horizon:
            own = np.concatenate([own, (mdp.expect(h, classes[-1]) * behaviour[h]).sum(axis=-1)])
        classes.append(own[np.unique(own.round(10), axis=0, return_index=True)[1]])
    return [WitnessTable(functions, signed) for functions in reversed(classes)]


# The backward pass.


class Returns(NamedTuple):
    """Weighted samples (s_h, a_h, Σ_{τ ≥ h} r_τ)."""

    states: Int[np.ndarray, " n"]
    actions: Int[np.ndarray, " n"]
    returns: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]


CollectReturns = Callable[[int, Table], Returns]


def exact_returns(mdp: FiniteMDP, roll_in: Distributions) -> CollectReturns:
    """Expected returns of `unif ∘_{h+1} π^b` from the states of the roll-in."""

    def collect(h: int, backward: Table) -> Returns:
        states, actions = (x.ravel() for x in np.indices((mdp.states, mdp.actions)))
        q = mdp.q(backward)[h]
        return Returns(states, actions, q.ravel(), np.repeat(roll_in[h] / mdp.actions, mdp.actions))

    return collect


def sampled_returns(model: TraceModel, roll_in: Table, samples: int, key: PRNGKeyArray) -> CollectReturns:
    """Episodes of `π^f ∘_h unif ∘_{h+1} π^b` through a trace model: Algorithm 2."""

    def collect(h: int, backward: Table) -> Returns:
        onwards = switch(model.spec.uniform(), at=h + 1, to=TablePolicy.of(backward))
        policy = switch(TablePolicy.of(roll_in), at=h, to=onwards)
        return rows_of(model.record(jax.random.fold_in(key, h), policy, samples, h))

    return collect


def simulated_returns(mdp: FiniteMDP, roll_in: Distributions, samples: int, rng: np.random.Generator) -> CollectReturns:
    """As `sampled_returns`, drawn from the tables."""

    def collect(h: int, backward: Table) -> Returns:
        first = states = rng.choice(mdp.states, size=samples, p=roll_in[h])
        taken = actions = rng.integers(mdp.actions, size=samples)
        returns = np.zeros(samples)
        for step in range(h, mdp.horizon):
            if step > h:
                actions = draw(rng, backward[step, states])
            returns += mdp.rewards[step, states, actions]
            states = mdp.draw(rng, step, states, actions)
        return Returns(first, taken, returns, np.full(samples, 1 / samples))

    return collect


def every_action(model: ResetModel, states: Sequence[Int[np.ndarray, " n"]], key: PRNGKeyArray) -> CollectReturns:
    """Reset to each of the given states of step h once for every action: Algorithm 1 with n·A episodes a step."""
    spec = model.spec

    def collect(h: int, backward: Table) -> Returns:
        rows, batches = np.eye(spec.observation_size, dtype=np.float32)[states[h]], []
        for a in range(spec.actions):
            policy = backward.copy()
            policy[h] = np.eye(spec.actions)[a]
            batches.append(model.rollout_from(jax.random.fold_in(key, a), rows, TablePolicy.of(policy), at=h))
        return Returns(*(np.concatenate(parts) for parts in zip(*map(rows_of, batches), strict=True)))

    return collect


def rows_of(batch: Recorded) -> Returns:
    states, actions, to_go = np.asarray(batch.states), np.asarray(batch.actions), np.asarray(batch.return_to_go)
    return Returns(states.argmax(axis=1), actions, to_go, np.full(len(to_go), 1 / len(to_go)))


def finite_psdp(
    collect: CollectReturns, values: Sequence[Values | None], blank: Table, worst: Distributions | None = None
) -> tuple[Table, Table]:
    """PSDP: the backward policy, and the functions f it is greedy for. None stands for the class of all functions.

    Functions that differ only in states that the roll-in does not reach fit equally well. The first is taken or, given
    distributions `worst`, the one whose greedy policy is worst under them: the guarantees allow for any choice.
    """
    backward, learned = blank.copy(), np.zeros_like(blank)
    for h in reversed(range(len(blank))):
        rows = collect(h, backward)
        functions = values[h]
        learned[h] = _mean_return(rows, blank.shape[1:]) if functions is None else _fit(rows, functions, h, worst)
        backward[h] = greedy(learned[h])
    return backward, learned


def _mean_return(rows: Returns, shape: tuple[int, ...]) -> Float[np.ndarray, "states actions"]:
    flat = rows.states * shape[1] + rows.actions
    total, weight = (
        np.bincount(flat, w, minlength=shape[0] * shape[1]) for w in (rows.weights * rows.returns, rows.weights)
    )
    return (total / np.where(weight > 0, weight, 1)).reshape(shape)


def _fit(rows: Returns, values: Values, h: int, worst: Distributions | None) -> Float[np.ndarray, "states actions"]:
    """`argmin_{f ∈ F} Σ_n (f(s_h, a_h) − Σ r)²`."""
    losses = (values[:, rows.states, rows.actions] - rows.returns) ** 2 @ rows.weights
    best = np.flatnonzero(losses <= losses.min() + 1e-12)
    if worst is None or len(best) == 1:
        return values[best[0]]
    truth = np.zeros(values.shape[1:])
    truth[rows.states, rows.actions] = rows.returns
    under = np.einsum("fsa,sa,s->f", greedy(values[best]), truth, worst[h])
    return values[best[np.argmin(under)]]


class Foobar(NamedTuple):
    """Result of FOOBAR, with the exact occupancy of its forward policy."""

    forward: Table
    occupancy: Distributions
    games: list[FiniteGame]
    backward: Table
    learned: Table


def finite_foobar(
    mdp: FiniteMDP,
    offline: Distributions,
    values: Sequence[Values | None],
    witnesses: Sequence[Witnesses],
    policies: Sequence[PolicyClass] | None = None,
    rounds: int = 1000,
    worst: Distributions | None = None,
) -> Foobar:
    """FOOBAR with exact expectations in both passes."""
    blank = uniform_policy(mdp)
    classes = [AllPolicies()] * mdp.horizon if policies is None else policies
    forward, games = finite_fail(exactly(mdp), offline, witnesses, classes, blank, rounds)
    occupancy = mdp.occupancy(forward)
    backward, learned = finite_psdp(exact_returns(mdp, occupancy), values, blank, worst)
    return Foobar(forward, occupancy, games, backward, learned)
