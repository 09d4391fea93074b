"""Discounted finite MDPs, the stationary setting of the paper: exact values and occupancies, and sampling access to them.

Values are averages, `V^π = (1 − γ) E Σ_h γ^h r_h`, from 0 to 1 for rewards from 0 to 1: on this scale CPI's iteration
count 8γ/ε² holds. Occupancies are distributions, `d^π = (1 − γ) Σ_h γ^h d^π_h` with h = 0, 1, ….
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.access import InteractiveModel, Ledger, Recorded, Rollout, Spec, require_interactive
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxResetModel, JaxTraceModel
from hyrlo.core.keys import Keys
from hyrlo.core.memory import require_memory
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Policy, Softmax, Step
from hyrlo.core.ranges import Count, CountOrZero, Options, Seed, Share, ShareBelowOne, TwoOrMore
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs.world import World

NAME = "discounted"
TAIL = 0.01  # episodes are cut off where this share of the discounted sum is left
Table = Float[np.ndarray, "states actions"]
"""Action probabilities of a stationary policy, or values of state and action."""


@dataclass(frozen=True)
class DiscountedMDP:
    """Initial distribution, transitions, rewards from 0 to 1, and γ. All quantities are solved for exactly."""

    initial: Float[np.ndarray, " states"]
    transitions: Float[np.ndarray, "states actions states"]
    rewards: Table
    gamma: float

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < 1:
            raise HyrloError(f"discounted MDP: gamma is {self.gamma}; give a number from 0 to below 1")
        states, actions = self.rewards.shape
        for name, array, shape in (
            ("initial", self.initial, (states,)),
            ("transitions", self.transitions, (states, actions, states)),
        ):
            if array.shape != shape:
                raise HyrloError(f"discounted MDP: {name} has shape {array.shape}; rewards say {shape}")
            wrong = np.argwhere(~(np.isclose(array.sum(axis=-1), 1) & (array >= 0).all(axis=-1)))
            if len(wrong):
                raise HyrloError(f"discounted MDP: {name} at {wrong[0].tolist()} is not a distribution; fix it")
        wrong = np.argwhere(~((self.rewards >= 0) & (self.rewards <= 1)))
        if len(wrong):
            s, a = wrong[0]
            raise HyrloError(
                f"discounted MDP: reward of state {s}, action {a} is {self.rewards[s, a]}; rescale the rewards to 0 … 1"
            )

    @classmethod
    def random(cls, seed: int, states: int, actions: int, gamma: float, branching: int = 0) -> DiscountedMDP:
        """Dense Dirichlet transitions; `branching`: number of random states that an action leads to (0: all)."""
        size = 24 * states * states * actions  # the transitions, and what is made of them
        require_memory(size, f"discounted MDP: {states:,} states and {actions:,} actions", "give fewer")
        rng = np.random.default_rng(seed)
        transitions = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
        if branching:
            transitions = np.zeros_like(transitions)
            for s, a in np.ndindex(states, actions):
                reached = rng.choice(states, min(branching, states), replace=False)
                transitions[s, a, reached] = rng.dirichlet(np.ones(len(reached)))
        return cls(rng.dirichlet(np.ones(states)), transitions, rng.uniform(size=(states, actions)), gamma)

    @property
    def states(self) -> int:
        return len(self.rewards)

    @property
    def actions(self) -> int:
        return self.rewards.shape[1]

    def chain(self, policy: Table) -> Float[np.ndarray, "states states"]:
        """The policy's transitions from state to state, `P^π`."""
        return np.einsum("sa,sat->st", policy, self.transitions)

    def occupancy(self, policy: Table, start: Float[np.ndarray, " states"] | None = None) -> np.ndarray:
        """`d^π_start`, by default from the initial distribution: `(I − γ P^πᵀ) d = (1 − γ) start`."""
        start = self.initial if start is None else start
        return np.linalg.solve(np.eye(self.states) - self.gamma * self.chain(policy).T, (1 - self.gamma) * start)

    def values(self, policy: Table) -> Float[np.ndarray, " states"]:
        """`V^π(s)`: `(I − γ P^π) V = (1 − γ) r^π`."""
        rewards = (1 - self.gamma) * np.sum(policy * self.rewards, axis=1)
        return np.linalg.solve(np.eye(self.states) - self.gamma * self.chain(policy), rewards)

    def value(self, policy: Table, start: Float[np.ndarray, " states"] | None = None) -> float:
        return float((self.initial if start is None else start) @ self.values(policy))

    def q(self, policy: Table) -> Table:
        return (1 - self.gamma) * self.rewards + self.gamma * self.transitions @ self.values(policy)

    def advantage(self, policy: Table) -> Table:
        """`A^π(s, a) = Q^π(s, a) − V^π(s)`."""
        return self.q(policy) - self.values(policy)[:, None]

    def optimal_policy(self) -> Table:
        """Optimal policy, by policy iteration."""
        policy = greedy_table(self.rewards)
        for _ in range(10 * self.states * self.actions + 100):
            advantage = self.advantage(policy)
            if advantage.max() <= 1e-12:
                break
            improves = advantage.max(axis=1, keepdims=True) > 1e-12
            policy = np.where(improves, greedy_table(advantage), policy)
        return policy


def greedy_table(values: Table) -> Table:
    """All probability on the first best action."""
    return np.eye(values.shape[1])[values.argmax(axis=1)]


def random_policy(rng: np.random.Generator, states: int, actions: int) -> Table:
    return rng.dirichlet(np.ones(actions), size=states)


def table_policy(probabilities: Table) -> Softmax:
    """A policy on one-hot states."""
    logits = np.log(np.maximum(probabilities, 1e-30))
    return Softmax(MLP((jnp.asarray(logits, jnp.float32),), (jnp.zeros(probabilities.shape[1]),)))


class DiscountedEnv(eqx.Module):
    """The MDP with one-hot observations, as a JAX environment; `horizon` is where an episode is cut off."""

    initial_logits: Float[Array, " states"]
    logits: Float[Array, "states actions states"]
    rewards: Float[Array, "states actions"]
    gamma: Float[Array, ""]
    horizon: int = eqx.field(static=True)
    discounts: bool = eqx.field(static=True, default=False)
    """Whether step h pays (1 − γ) γ^h r instead of r, so that a return is a value."""

    @classmethod
    def create(cls, mdp: DiscountedMDP, horizon: int, discounts: bool = False) -> DiscountedEnv:
        with np.errstate(divide="ignore"):
            arrays = (np.log(mdp.initial), np.log(mdp.transitions), mdp.rewards, np.asarray(mdp.gamma))
        initial, transitions, rewards, gamma = (jnp.asarray(x, jnp.float32) for x in arrays)
        return cls(initial, transitions, rewards, gamma, horizon, discounts)

    @property
    def spec(self) -> Spec:
        states, actions = self.rewards.shape
        return Spec(self.horizon, states, actions)

    def initial(self, key: PRNGKeyArray, n: int) -> Int[Array, " n"]:
        return jax.random.categorical(key, self.initial_logits, shape=(n,))

    def observe(self, key: PRNGKeyArray, latent: Int[Array, " n"], h: Step) -> Float[Array, "n states"]:
        return jax.nn.one_hot(latent, len(self.rewards))

    def step(
        self, key: PRNGKeyArray, latent: Int[Array, " n"], actions: Int[Array, " n"], h: Step
    ) -> tuple[Int[Array, " n"], Float[Array, " n"], Bool[Array, " n"]]:
        pays = (1 - self.gamma) * self.gamma**h if self.discounts else 1.0
        following = jax.random.categorical(key, self.logits[latent, actions])
        return following, pays * self.rewards[latent, actions], jnp.zeros(latent.shape, bool)

    def decode(self, observations: Float[Array, "n states"]) -> Int[Array, " n"]:
        return jnp.argmax(observations, axis=1)


@dataclass
class DiscountedTraceModel(JaxTraceModel):
    """Trace access. Evaluation returns are (discounted) values; training sees the plain rewards."""

    env: DiscountedEnv

    @property
    def gamma(self) -> float:
        return float(self.env.gamma)

    def evaluation(self) -> DiscountedTraceModel:
        return DiscountedTraceModel(replace(self.env, discounts=True))

    def rollout(self, *args: Any, **kwargs: Any) -> Rollout:
        return super().rollout(*args, **kwargs)._replace(success=None)

    def record(self, *args: Any, **kwargs: Any) -> Recorded:
        return super().record(*args, **kwargs)._replace(success=None)

    def roll_in(self, key: PRNGKeyArray, policy: Policy, then: Policy, episodes: int) -> Recorded:
        """`π ∘_h π′` with h ∼ Geom(1 − γ) for each episode: its step h, with the next state, and no step after it."""
        batch, steps = _roll_in(self.env, key, policy, then, episodes)
        self.ledger.book(episodes, int(steps))
        return batch


@eqx.filter_jit
def _roll_in(
    env: DiscountedEnv, key: PRNGKeyArray, policy: Policy, then: Policy, n: int
) -> tuple[Recorded, Int[Array, ""]]:
    """All episodes go on until the last one stops; each waits at its own step h."""
    time_key, start_key, act_key, step_key = jax.random.split(key, 4)
    times = jnp.log1p(-jax.random.uniform(time_key, (n,))) / jnp.log(env.gamma)
    at = jnp.floor(times).astype(int)

    def play(playing: Policy, latent: Array, h: Array) -> tuple[Array, Array, Array]:
        actions = playing.act(jax.random.fold_in(act_key, h), env.observe(act_key, latent, h), h)
        following, rewards, _ = env.step(jax.random.fold_in(step_key, h), latent, actions, h)
        return actions, following, rewards

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        h, latent, returns = carry
        _, following, rewards = play(policy, latent, h)
        return h + 1, jnp.where(h < at, following, latent), returns + rewards * (h < at)

    start = (jnp.zeros((), int), env.initial(start_key, n), jnp.zeros(n))
    last, latent, returns = jax.lax.while_loop(lambda carry: carry[0] < at.max(), step, start)
    actions, following, rewards = play(then, latent, last)
    states, next_states = env.observe(act_key, latent, last), env.observe(act_key, following, last)
    ended = jnp.zeros(n, bool)
    batch = Recorded(returns + rewards, None, states, actions, rewards, rewards, next_states, ended)
    return batch, at.sum() + n


@dataclass
class DiscountedResetModel(DiscountedTraceModel, JaxResetModel):
    """Reset access."""


def interactive_model(world: Any, algorithm: str) -> InteractiveModel:
    """The world's interactive model, or an error if it has none."""
    create = getattr(world, "interactive_model", world.trace_model)
    return require_interactive(create(), algorithm, world.name)


@dataclass
class DiscountedInteractiveModel(DiscountedTraceModel):
    """Trace access and the interactive offline distribution of a behaviour policy."""

    behaviour: Policy = field(kw_only=True)
    queries: Ledger = field(default_factory=Ledger)

    def offline_next(self, key: PRNGKeyArray, observations: Float[Array, "n obs"]) -> Float[Array, "n obs"]:
        self.queries.book(0, len(observations))
        return _offline_next(self.env, self.behaviour, key, observations)


@eqx.filter_jit
def _offline_next(env: DiscountedEnv, behaviour: Policy, key: PRNGKeyArray, observations: Array) -> Array:
    act_key, step_key = jax.random.split(key)
    following, _, _ = env.step(step_key, env.decode(observations), behaviour.act(act_key, observations, 0), 0)
    return env.observe(step_key, following, 0)


@dataclass(frozen=True)
class DiscountedConfig(Options):
    """A random discounted MDP and its behaviour policy. `seed` draws both, so that runs of any other seed meet the same."""

    states: Count = 10
    actions: TwoOrMore = 3
    gamma: ShareBelowOne = 0.9
    branching: CountOrZero = 0
    """States that an action can lead to; 0: all of them."""
    epsilon: Share = 0.3
    """The behaviour policy plays optimally, but with this probability uniformly."""
    seed: Seed = 0


def _check_probability(epsilon: float) -> None:
    if not 0 <= epsilon <= 1:
        raise HyrloError(f"{NAME}: epsilon is {epsilon}; give a probability")


class DiscountedWorld(World):
    """A random discounted MDP. Without a horizon, episodes are cut off where 1 % of the discounted sum is left."""

    name = NAME
    env: DiscountedEnv
    config: DiscountedConfig

    def __init__(self, horizon: int | None = None, config: DiscountedConfig = DiscountedConfig()):
        if horizon is None:
            horizon = 1 if config.gamma == 0 else int(np.ceil(np.log(TAIL) / np.log(config.gamma)))
        if horizon < 1:
            raise HyrloError(f"{NAME}: horizon is {horizon}; give a whole number of at least 1")
        self.config = config
        self.mdp = DiscountedMDP.random(config.seed, config.states, config.actions, config.gamma, config.branching)
        self.env = DiscountedEnv.create(self.mdp, horizon)

    @property
    def spec(self) -> Spec:
        return self.env.spec

    @classmethod
    def create(cls, name: str, horizon: int | None, config: DiscountedConfig) -> Self:
        return cls(horizon, config)

    def behaviour(self, epsilon: float | None = None) -> Table:
        """The optimal policy, with a uniform action with probability ε."""
        epsilon = self.config.epsilon if epsilon is None else epsilon
        _check_probability(epsilon)
        return (1 - epsilon) * self.mdp.optimal_policy() + epsilon / self.mdp.actions

    def trace_model(self) -> DiscountedTraceModel:
        return DiscountedTraceModel(self.env)

    def reset_model(self) -> DiscountedResetModel:
        return DiscountedResetModel(self.env)

    def interactive_model(self) -> DiscountedInteractiveModel:
        return DiscountedInteractiveModel(self.env, behaviour=table_policy(self.behaviour()))

    def behaviour_data(self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None) -> ObservationDataset:
        """States of the behaviour policy's episodes."""
        observations, _, _ = self._behave(seed, episodes, epsilon)
        return ObservationDataset.from_trajectories(observations, f"{NAME} behaviour data, seed {seed}")

    def behaviour_transitions(
        self, seed: int = 0, episodes: int = 2000, epsilon: float | None = None
    ) -> TransitionDataset:
        """The same episodes with actions and rewards."""
        return TransitionDataset.from_trajectories(
            *self._behave(seed, episodes, epsilon), f"{NAME} behaviour data, seed {seed}"
        )

    def _behave(self, seed: int, episodes: int, epsilon: float | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        key = Keys.of_seed(seed).data
        policy = table_policy(self.behaviour(epsilon))
        batch = JaxTraceModel(self.env).record(key, policy, episodes, tuple(range(self.spec.horizon)))
        states = jnp.concatenate([batch.states, batch.next_states[-1:]])
        return tuple(np.asarray(x).swapaxes(0, 1) for x in (states, batch.actions, batch.rewards))  # type: ignore[return-value]
