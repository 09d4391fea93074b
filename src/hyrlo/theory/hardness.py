"""The paper's two constructions with inadmissible data that are hard with trace access and easy with resets.

`hard_tree` (Proposition 5.1): a tree in which half of the states of every step lie on the optimal path, the other half
on a node elsewhere that is not below that of the step before. Finding that node among the leaves is a blind search.
`hard_tv` (Proposition 5.2): one step after which the policy that is closest to the data in total variation never
goes where the reward is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxResetModel, JaxTraceModel
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.distances.value import total_variation
from hyrlo.envs.world import World
from hyrlo.theory.finite import Distributions, FiniteMDP

MOST_NODES = 100_000


@dataclass(frozen=True)
class Hard:
    """A construction: the MDP and the offline distribution of every step, 0 … H."""

    mdp: FiniteMDP
    offline: Distributions


@dataclass(frozen=True)
class HardTree(Hard):
    """With the offline nodes, one of each kind per step."""

    best: Int[np.ndarray, " steps"]
    """The optimal path."""
    other: Int[np.ndarray, " steps"]
    """The offline states off the optimal path; at step 0 the root."""


def hard_tree(horizon: int = 4, actions: int = 2, seed: int = 0) -> HardTree:
    """A tree of A^H leaves, of which one pays. Labels are shuffled within a level, so that they carry no information.

    The other half of the data starts at a child of the root beside the optimal one. At step 2 (0-based) it is a child of
    that node; from step 3 on it is a node below it whose parent is not in the data.
    """
    if horizon < 3:
        raise HyrloError(
            f"hard-tree: horizon is {horizon}; data of fewer than 3 steps can be produced, so give at least 3"
        )
    if actions < 2:
        raise HyrloError(f"hard-tree: actions is {actions}; give at least 2")
    nodes = (actions ** (horizon + 1) - 1) // (actions - 1)
    if nodes > MOST_NODES:
        raise HyrloError(f"hard-tree: horizon {horizon} has {nodes:,} states; give a smaller horizon")
    rng = np.random.default_rng(seed)
    levels = [rng.permutation(actions**h) + (actions**h - 1) // (actions - 1) for h in range(horizon + 1)]
    successors = np.tile(np.arange(nodes)[:, None, None], (horizon, 1, actions, 1))
    for h in range(horizon):
        successors[h, levels[h], :, 0] = levels[h + 1].reshape(-1, actions)

    best, other = (
        np.array([levels[h][position] for h, position in enumerate(path)])
        for path in _offline_paths(rng, horizon, actions)
    )
    rewards = np.zeros((horizon, nodes, actions))
    rewards[-1, best[-2]] = successors[-1, best[-2], :, 0] == best[-1]
    offline = np.zeros((horizon + 1, nodes))
    np.add.at(offline, (np.arange(horizon + 1), best), 0.5)
    np.add.at(offline, (np.arange(horizon + 1), other), 0.5)
    mdp = FiniteMDP(np.eye(nodes)[0], successors, np.ones(successors.shape), rewards)
    return HardTree(mdp, offline, best, other)


def _offline_paths(rng: np.random.Generator, horizon: int, actions: int) -> tuple[list[int], list[int]]:
    """Positions within their level of the optimal nodes and of the other offline nodes, for steps 0 … H.

    The parent of position p has position p // A.
    """
    leaf = rng.integers(actions**horizon)
    optimal = [leaf // actions ** (horizon - h) for h in range(horizon + 1)]
    half = (optimal[1] + rng.integers(1, actions)) % actions
    other = [0, half]
    for h in range(2, horizon + 1):
        below = half * actions ** (h - 1) + np.arange(actions ** (h - 1))
        if h > 2:
            below = below[below // actions != other[-1]]
        other.append(rng.choice(below))
    return optimal, other


def search(tree: HardTree, rng: np.random.Generator) -> int:
    """Episodes until one ends in the offline leaf that is not optimal, by the best algorithm with trace access.

    Episodes differ only in their actions, labels carry no information, and no leaf is worth a second visit. So any
    algorithm visits the leaves in an order that is independent of where that leaf is. This one knows in which half it is.
    """
    mdp = tree.mdp
    start = int(tree.other[1])
    for episode, number in enumerate(rng.permutation(mdp.actions ** (mdp.horizon - 1)), start=1):
        node = start
        for h in range(1, mdp.horizon):
            node = mdp.successors[h, node, number % mdp.actions, 0]
            number //= mdp.actions
        if node == tree.other[-1]:
            return episode
    raise AssertionError("the leaf is in the tree")


def search_is_blind(horizon: int, actions: int) -> float:
    """Expected episodes of any algorithm: each of the A^(H−1) leaves of the half is equally likely."""
    leaves = actions ** (horizon - 1)
    return sum(range(1, leaves + 1)) / leaves


def smallest_tv_without_other(tree: HardTree) -> float:
    """The least total variation to `D_H` of any distribution without the other leaf: the mass of that leaf."""
    return float(tree.offline[-1, tree.other[-1]])


TV_NEXT = np.array([[0.95, 0.05, 0.0], [0.0, 0.9, 0.1]])
"""Where a_1 and a_2 lead from s_0: to s_1, s_2, s_3."""
TV_OFFLINE = np.array([0.85, 0.05, 0.1])


def hard_tv() -> Hard:
    """From s_0, a_1 leads to s_1, s_2 and a_2 to s_2, s_3. At s_3 the action a_2 pays 1, and nothing else does.

    (Were s_3 to pay whatever is done there, trying a_2 once at s_0 would show it, whether or not the roll-in ever does.)
    """
    transitions = np.zeros((2, 4, 2, 4))
    transitions[0, 0, :, 1:] = TV_NEXT
    transitions[0, 1:] = np.eye(4)[1:, None]
    transitions[1] = np.eye(4)[:, None]
    rewards = np.zeros((2, 4, 2))
    rewards[1, 3, 1] = 1
    after = np.append(0, TV_OFFLINE)
    return Hard(FiniteMDP.dense(np.eye(4)[0], transitions, rewards), np.stack([np.eye(4)[0], after, after]))


def tv_of(second: float) -> float:
    """Total variation between the offline states and those after playing a_2 with this probability."""
    return total_variation(np.array([1 - second, second]) @ TV_NEXT, TV_OFFLINE)


def tv_minimisers() -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, " 2"]]:
    """(probability of a_2, total variation) of the best deterministic policy, and of the best of all."""
    deterministic = min((0.0, 1.0), key=tv_of)
    best = float(minimize_scalar(tv_of, bounds=(0, 1), method="bounded", options={"xatol": 1e-12}).x)
    return np.array([deterministic, tv_of(deterministic)]), np.array([best, tv_of(best)])


class HardWorld(World):
    """A construction, with data from its offline distribution."""

    env: FiniteMDP

    def __init__(self, name: str, hard: Hard):
        self.name, self.hard, self.env = name, hard, hard.mdp

    @classmethod
    def create(cls, name: str, horizon: int | None, config: None) -> Self:
        """`hard-tree` of any horizon from 3 on, or `hard-tv`, which has two steps."""
        if name == "hard-tree":
            return cls(name, hard_tree() if horizon is None else hard_tree(horizon))
        if horizon not in (None, 2):
            raise HyrloError(f"hard-tv: horizon is {horizon}; the construction has 2 steps, so give 2")
        return cls(name, hard_tv())

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def trace_model(self) -> JaxTraceModel:
        return JaxTraceModel(self.env)

    def reset_model(self) -> JaxResetModel:
        return JaxResetModel(self.env)

    def behaviour_data(self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None) -> ObservationDataset:
        """`episodes` states of each step in exactly the offline distribution's proportions (up to rounding), shuffled."""
        if epsilon is not None:
            raise HyrloError(f"{self.name}: epsilon is {epsilon}, but no policy made its data; leave epsilon out")
        rng = np.random.default_rng(seed)
        one_hot = np.eye(self.spec.observation_size, dtype=np.float32)
        steps = []
        for distribution in self.hard.offline:
            ends = np.rint(distribution.cumsum() * episodes).astype(int)
            steps.append(one_hot[rng.permutation(np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)))])
        return ObservationDataset(tuple(steps), f"{self.name} inadmissible data, seed {seed}")

    def behaviour_transitions(
        self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None
    ) -> TransitionDataset:
        raise HyrloError(
            f"{self.name}: its data are states that no policy made, so there are no actions and rewards; use behaviour_data"
        )
