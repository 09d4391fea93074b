"""Matching by gradient descent: what the estimators `model` and `density` share.

The policies of the next steps are networks. They minimise the squared MMD to the offline states of these steps,

    min_π  Σ_{j=1…k}  MMD²( s_{h+j} under π,  D_{h+j} ),

starting from the policies of the steps before. An `Objective` says how s_{h+j} depends on π.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.random import fold_in
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.networks import MLP, Whitened
from hyrlo.core.policies import Gaussian, Policy, Softmax, Stack
from hyrlo.core.ranges import Count, NonNegative, Options, Positive, TwoOrMore
from hyrlo.core.whitening import Whitening
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits
from hyrlo.forward.dynamics import as_vectors, pasts
from hyrlo.forward.fail import ForwardConfig
from hyrlo.forward.goals import GoalMaker, Goals, Units


@dataclass(frozen=True)
class GradientConfig(ForwardConfig):
    """Forward pass by gradient descent on the MMD: what its estimators have in common."""

    expert: ClassVar[tuple[str, ...]] = (
        "learning_rate", "batch", "features", "moments", "entropy", "std", "std_floor", "explore_share", "explore_std",
        "dynamics",
    )  # fmt: skip
    samples: Count = 100
    """Online episodes per round."""
    rounds: Count = 2
    """Collections, each followed by an update, per policy."""
    hidden: Count = 64
    """Width of the policies' two hidden layers."""
    updates: Count = 300
    """Gradient steps on the policy after each collection."""
    learning_rate: Positive = 1e-3
    """Initial learning rate (Adam); it decays along a cosine."""
    batch: TwoOrMore = 128
    """Online states per gradient step."""
    features: Count = 256
    """Random Fourier features of the MMD."""
    units: Units = "all"
    """Units of the MMD and of the policies' inputs. `all`: the spread of all offline states. `step`: the spread of the
    step's own states, finer where the states of one step differ little. `joint`: as `step`, and the MMD removes
    correlations, so that what dimensions share does not hide how they differ."""
    moments: NonNegative = 0.0
    """Weight of the mean and variance of every dimension beside the random features."""
    entropy: NonNegative = 0.0
    """Weight of the policy's entropy beside the squared MMD."""


@dataclass(frozen=True)
class GaussianConfig(Options):
    """The spread of Gaussian policies; mixed into the configs for action vectors."""

    std: Positive = 0.3
    """Initial standard deviation of an action."""
    std_floor: Positive = 0.1
    """Its lower bound: without one, matching by a model lets it vanish, and the coverage with it."""


class Starts(NamedTuple):
    """What was seen at the first of the steps to learn: states, actions with their log-density, next states, and the step
    before."""

    states: Float[Array, "n obs"]
    actions: Float[Array, "n act"]
    log_density: Float[Array, " n"]
    next_states: Float[Array, "n obs"]
    past: Float[Array, "n past"]

    @classmethod
    def of(cls, batch: Recorded, at: int, policy: Policy, spec: Spec) -> Starts:
        states, actions, following = (jnp.asarray(x[at]) for x in (batch.states, batch.actions, batch.next_states))
        density = log_density(policy, states, actions) if isinstance(policy, Gaussian) else jnp.zeros(len(states))
        past = pasts(jnp.asarray(batch.states), as_vectors(jnp.asarray(batch.actions), spec))[at]
        return cls(states, as_vectors(actions, spec), density, following, past)


log_density = eqx.filter_jit(Gaussian.log_density)


class Objective(Protocol):
    """How the states of the next steps depend on the policies."""

    def distances2(self, key: PRNGKeyArray, policies: Policy, starts: Starts, goals: Goals) -> Float[Array, " k"]:
        """Squared MMD at each of the next steps."""
        ...


@eqx.filter_jit
def descend(
    key: PRNGKeyArray, policies: Policy, starts: Starts, goals: Goals, objective: Objective, config: GradientConfig
) -> tuple[Policy, Float[Array, " k"]]:
    """Gradient steps on the policies (with a leading axis), and the squared MMD at each step in the end."""
    everything = jnp.arange(len(starts.states))
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.cosine_decay_schedule(config.learning_rate, config.updates, alpha=0.05)),
    )

    def loss_of(policies: Policy, key: PRNGKeyArray, rows: Int[Array, " b"]) -> Float[Array, ""]:
        batch = jax.tree.map(lambda x: x[rows], starts)
        entropies = jax.vmap(lambda policy: entropy(policy, starts.states[rows]))(policies).sum()
        return objective.distances2(key, policies, batch, goals).sum() - config.entropy * entropies

    def update(carry: tuple, t: Int[Array, ""]) -> tuple[tuple, None]:
        policies, state = carry
        batch_key, loss_key = jax.random.split(fold_in(key, t))
        rows = jax.random.randint(batch_key, (config.batch,), 0, len(everything))
        updates, state = optimiser.update(jax.grad(loss_of)(policies, loss_key, rows), state)
        return (with_std_floor(optax.apply_updates(policies, updates), config), state), None

    (policies, _), _ = jax.lax.scan(update, (policies, optimiser.init(policies)), jnp.arange(config.updates))
    return policies, objective.distances2(key, policies, jax.tree.map(lambda x: x[everything], starts), goals)


def with_std_floor(policy: Policy, config: GradientConfig) -> Policy:
    if not isinstance(policy, Gaussian):
        return policy
    assert isinstance(config, GaussianConfig)
    return eqx.tree_at(lambda p: p.log_std, policy, jnp.clip(policy.log_std, np.log(config.std_floor), 0.0))


def entropy(policy: Policy, states: Float[Array, "n obs"]) -> Float[Array, ""]:
    if isinstance(policy, Gaussian):
        return policy.log_std.sum()
    log_pi = jax.nn.log_softmax(policy.logits(states))  # type: ignore[attr-defined]
    return -jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, axis=1))


def policy_at(policies: Policy, i: int | Int[Array, ""]) -> Policy:
    return jax.tree.map(lambda x: x[i], policies)


def initial_policy(key: PRNGKeyArray, spec: Spec, whitening: Whitening, config: GradientConfig) -> Policy:
    sizes = (spec.observation_size, config.hidden, config.hidden, spec.action_size or spec.actions)
    network = Whitened.create(MLP.create(key, sizes, last_scale=0.01), whitening)
    if isinstance(config, GaussianConfig):
        return Gaussian(network, jnp.full(spec.action_size, np.log(config.std)))
    return Softmax(network)


def initial_policies(
    key: PRNGKeyArray, data: ObservationDataset, spec: Spec, block: int, units: StateUnits, config: GradientConfig
) -> Stack:
    """The same policy for all blocks, each with the units of its own step where `config.units` says so."""
    if config.units == "all":
        return Stack.repeat(initial_policy(key, spec, units.whitening, config), spec.horizon, block)
    each = [units.of_step(*data.padded(h)).whitening for h in range(0, spec.horizon, block)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *each)
    return Stack(eqx.filter_vmap(lambda own: initial_policy(key, spec, own, config))(stacked), block)


def with_units_of(policy: Policy, own: Policy) -> Policy:
    """The weights of `policy` with the input units of `own`: the same action for a state equally far from its step's mean."""
    units = lambda p: (p.network.shift, p.network.scale)  # noqa: E731
    return eqx.tree_at(units, policy, units(own))


def goal_maker(
    key: PRNGKeyArray, data: ObservationDataset, spec: Spec, units: StateUnits, config: GradientConfig
) -> GoalMaker:
    frequencies = jax.random.normal(key, (spec.observation_size - spec.ends, config.features // 2))
    return GoalMaker(data, frequencies, units, config.units, config.moments)


def steps_before(stop: int, horizon: int, n: int) -> Int[np.ndarray, "h n"]:
    """Every step before `stop`, padded with the last one to `horizon` rows: one shape for every step, compiled once."""
    return np.repeat(np.minimum(np.arange(horizon), stop - 1)[:, None], n, axis=1)


def repeated_to(x: np.ndarray, size: int) -> np.ndarray:
    """Rows repeated up to `size`, so that shapes stay the same from round to round."""
    return np.resize(x, (size, *x.shape[1:]))


def own_distance(distances2: Float[Array, " k"], goals: Goals, block: int) -> float:
    """The root mean squared MMD over the steps of the first block."""
    own = distances2[:block].sum() / goals.real[:block].sum()
    return float(jnp.sqrt(jnp.maximum(own, 0.0)))
