"""Finite-horizon MDPs with finitely many states: environments with one-hot observations, solved exactly by dynamic programming.

Transitions are stored sparsely, as K possible successors of every (step, state, action), so that a tree with thousands of
states stays cheap. A policy is a table of action probabilities of shape (H, S, A). Exact computations are NumPy in
double precision; `JaxTraceModel` and `JaxResetModel` use the same tables as an environment in JAX.
"""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import Actions, Policy, Step
from hyrlo.data.states import ObservationDataset

Table = Float[np.ndarray, "horizon states actions"]
"""A policy (action probabilities) or a Q-function, for every step."""
Distributions = Float[np.ndarray, "steps states"]
"""A distribution over states for every step."""
MOST_POLICIES = 300_000


class FiniteMDP(eqx.Module):
    """Tables of an MDP. An episode is a success if one of its steps pays 1 or more."""

    initial_distribution: Float[np.ndarray, " states"]
    successors: Int[np.ndarray, "horizon states actions k"]
    probabilities: Float[np.ndarray, "horizon states actions k"]
    rewards: Float[np.ndarray, "horizon states actions"]

    def __check_init__(self) -> None:
        shape, states = self.rewards.shape, len(self.initial_distribution)
        if len(shape) != 3 or shape[1] != states or min(shape) < 1:
            raise HyrloError(f"finite MDP: rewards have shape {shape}; give (horizon, {states} states, actions)")
        if self.successors.shape[:3] != shape or self.successors.shape != self.probabilities.shape:
            raise HyrloError(
                f"finite MDP: successors {self.successors.shape} and probabilities {self.probabilities.shape} do not fit; "
                f"give both as {(*shape, 'k')}"
            )
        if self.successors.min() < 0 or self.successors.max() >= states:
            raise HyrloError(f"finite MDP: successors must be states 0 … {states - 1}")
        for name in ("initial_distribution", "probabilities", "rewards"):
            bad = np.argwhere(~np.isfinite(getattr(self, name)))
            if len(bad):
                raise HyrloError(f"finite MDP: {name} at {tuple(bad[0].tolist())} is not finite; give finite numbers")
        for name in ("initial_distribution", "probabilities"):
            table = np.asarray(getattr(self, name))
            if table.min() < 0 or not np.allclose(table.sum(axis=-1), 1, atol=1e-5):
                raise HyrloError(f"finite MDP: {name} must not be negative and must sum to 1 over the last axis")

    @classmethod
    def dense(cls, initial: np.ndarray, transitions: np.ndarray, rewards: np.ndarray) -> FiniteMDP:
        """From transition probabilities (H, S, A, S)."""
        transitions = np.asarray(transitions, float)
        successors = np.broadcast_to(np.arange(transitions.shape[-1]), transitions.shape)
        return cls(np.asarray(initial, float), np.array(successors), transitions, np.asarray(rewards, float))

    @classmethod
    def random(
        cls,
        seed: int,
        horizon: int,
        states: int,
        actions: int,
        successors: int | None = None,
        scale: float | None = None,
    ) -> FiniteMDP:
        """Random transitions, to `successors` next states (default: all), and rewards from 0 to `scale` (default: 1/H)."""
        rng = np.random.default_rng(seed)
        k = states if successors is None else successors
        if not 1 <= k <= states:
            raise HyrloError(f"finite MDP: successors is {successors}; give 1 to {states}")
        shape = (horizon, states, actions)
        probabilities = rng.dirichlet(np.full(k, 0.3), size=shape)
        rewards = rng.uniform(size=shape) * (1 / horizon if scale is None else scale)
        initial = rng.dirichlet(np.ones(states))
        following = np.array(np.broadcast_to(np.arange(k), (*shape, k)))
        if successors is not None:
            following = np.argsort(rng.uniform(size=(*shape, states)), axis=-1)[..., :k]
        return cls(initial, following, probabilities, rewards)

    @property
    def horizon(self) -> int:
        return self.rewards.shape[0]

    @property
    def states(self) -> int:
        return self.rewards.shape[1]

    @property
    def actions(self) -> int:
        return self.rewards.shape[2]

    # As an environment in JAX.

    @property
    def spec(self) -> Spec:
        return Spec(self.horizon, self.states, self.actions)

    def initial(self, key: PRNGKeyArray, n: int) -> Int[Array, " n"]:
        return jax.random.categorical(key, jnp.log(jnp.asarray(self.initial_distribution)), shape=(n,))

    def observe(self, key: PRNGKeyArray, latent: Int[Array, " n"], h: Step) -> Float[Array, "n obs"]:
        return jax.nn.one_hot(latent, self.states)

    def step(
        self, key: PRNGKeyArray, latent: Int[Array, " n"], actions: Actions, h: Step
    ) -> tuple[Int[Array, " n"], Float[Array, " n"], Bool[Array, " n"]]:
        here = h, latent, actions
        which = jax.random.categorical(key, jnp.log(jnp.asarray(self.probabilities)[here]))
        following = jnp.take_along_axis(jnp.asarray(self.successors)[here], which[:, None], axis=1)[:, 0]
        rewards = jnp.asarray(self.rewards)[here]
        return following, rewards, rewards >= 1

    def decode(self, observations: Float[Array, "n obs"]) -> Int[Array, " n"]:
        return jnp.argmax(observations, axis=1)

    # Exact.

    @property
    def transitions(self) -> Float[np.ndarray, "horizon states actions states"]:
        """Dense transition probabilities."""
        dense = np.zeros((*self.rewards.shape, self.states))
        np.add.at(dense, (*np.indices(self.successors.shape)[:3], self.successors), self.probabilities)
        return dense

    def expect(self, h: int, values: Float[np.ndarray, "*f states"]) -> Float[np.ndarray, "*f states actions"]:
        """`E[values(s_{h+1}) | s_h, a_h]`."""
        return (self.probabilities[h] * values[..., self.successors[h]]).sum(axis=-1)

    def push(self, h: int, joint: Float[np.ndarray, "states actions"]) -> Float[np.ndarray, " states"]:
        """The distribution of `s_{h+1}` where `joint` is that of (s_h, a_h)."""
        weights = joint[..., None] * self.probabilities[h]
        return np.bincount(self.successors[h].ravel(), weights.ravel(), minlength=self.states)

    def draw(self, rng: np.random.Generator, h: int, states: np.ndarray, actions: np.ndarray) -> Int[np.ndarray, " n"]:
        """A next state for each (s_h, a_h)."""
        which = draw(rng, self.probabilities[h, states, actions])
        return self.successors[h, states, actions, which]

    def occupancy(self, policy: Table) -> Distributions:
        """`d^π_h` of steps 0 … H."""
        distribution = [np.asarray(self.initial_distribution, float)]
        for h in range(self.horizon):
            distribution.append(self.push(h, distribution[-1][:, None] * policy[h]))
        return np.stack(distribution)

    def value(self, policy: Table) -> float:
        return float(np.sum(self.occupancy(policy)[:-1, :, None] * policy * self.rewards))

    def q(self, policy: Table) -> Table:
        """`Q^π`."""
        return self._backwards(lambda h, q: (policy[h] * q).sum(axis=1))

    def optimal_q(self) -> Table:
        """`Q*`."""
        return self._backwards(lambda h, q: q.max(axis=1))

    def _backwards(self, value_of: object) -> Table:
        q, value = np.zeros(self.rewards.shape), np.zeros(self.states)
        for h in reversed(range(self.horizon)):
            q[h] = self.rewards[h] + self.expect(h, value)
            value = value_of(h, q[h])  # type: ignore[operator]
        return q

    def optimal_policy(self) -> Table:
        return greedy(self.optimal_q())

    def optimal_value(self) -> float:
        return float(self.initial_distribution @ self.optimal_q()[0].max(axis=1))


def draw(rng: np.random.Generator, probabilities: Float[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """Draw from 0 … k−1 for every row, with the probabilities of that row."""
    below = probabilities.cumsum(axis=1)
    return (rng.uniform(size=(len(below), 1)) * below[:, -1:] >= below).sum(axis=1)


def uniform_policy(mdp: FiniteMDP) -> Table:
    return np.full(mdp.rewards.shape, 1 / mdp.actions)


def greedy(q: Float[np.ndarray, "*f states actions"]) -> Float[np.ndarray, "*f states actions"]:
    """The policy that plays the best action (the first, if several are equal)."""
    return np.eye(q.shape[-1])[q.argmax(axis=-1)]


def one_step_policies(states: int, actions: int) -> Float[np.ndarray, "policies states actions"]:
    """All A^S deterministic policies of one step."""
    if actions**states > MOST_POLICIES:
        raise HyrloError(
            f"{actions}^{states} deterministic policies are too many to list; give fewer states or actions"
        )
    return np.eye(actions)[np.array(list(itertools.product(range(actions), repeat=states)))]


def deterministic_q(mdp: FiniteMDP) -> list[Float[np.ndarray, "f states actions"]]:
    """For every step the Q-functions of all deterministic policies: the smallest class that is realizable."""
    policies, classes = one_step_policies(mdp.states, mdp.actions), []
    values = np.zeros((1, mdp.states))
    for h in reversed(range(mdp.horizon)):
        if len(values) * len(policies) > MOST_POLICIES:
            raise HyrloError(f"step {h} has too many Q-functions of deterministic policies; give a smaller MDP")
        q = mdp.rewards[h] + mdp.expect(h, values)
        classes.append(q)
        values = np.einsum("psa,fsa->pfs", policies, q).reshape(-1, mdp.states)
        values = values[np.unique(values.round(10), axis=0, return_index=True)[1]]
    return classes[::-1]


def sample_states(
    distributions: Distributions, n: int, seed: int = 0, source: str = "finite MDP"
) -> ObservationDataset:
    """`n` states of every step, drawn from its distribution, as one-hot observations."""
    rng = np.random.default_rng(seed)
    one_hot = np.eye(distributions.shape[1], dtype=np.float32)
    draws = [rng.choice(len(d), size=n, p=d / d.sum()) for d in distributions]
    return ObservationDataset(tuple(one_hot[states] for states in draws), f"{source}, seed {seed}")


def state_frequencies(data: ObservationDataset) -> Distributions:
    """How often each state is among the one-hot observations of each step."""
    return np.stack([np.asarray(states, float).mean(axis=0) for states in data.steps])


class TablePolicy(Policy):
    """A table of action probabilities as a policy on one-hot observations."""

    probabilities: Float[Array, "horizon states actions"]

    @classmethod
    def of(cls, policy: Table) -> TablePolicy:
        return cls(jnp.asarray(policy, jnp.float32))

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jax.random.categorical(key, jnp.log(self.probabilities[h, jnp.argmax(observations, axis=1)]))

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.argmax(self.probabilities[h, jnp.argmax(observations, axis=1)], axis=1)
