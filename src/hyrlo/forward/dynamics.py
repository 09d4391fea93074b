"""A one-step model of the world, shared by all steps and learned from every transition that was ever paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.networks import MLP, Dynamics
from hyrlo.core.ranges import Count, Options, Positive, Share
from hyrlo.core.replay import ReplayBuffer
from hyrlo.core.whitening import Whitening


@dataclass(frozen=True)
class DynamicsConfig(Options):
    """The learned model of one step."""

    hidden: Count = 128
    """Width of its two hidden layers."""
    updates: Count = 300
    """Gradient steps after each collection; the model is carried on, not begun anew."""
    learning_rate: Positive = 1e-3
    batch: Count = 256
    memory: Count = 50_000
    """Learn from this many of the newest transitions."""
    history: bool = False
    """Foresee a step from the one before it, too: for states observed in part, such as positions without velocities."""
    near: Share = 0.0
    """Share of each batch that is of the steps whose policy is being learned; the rest is of any step so far."""
    least_step: Positive = 1e-3
    """What a step changes counts as at least this share of the spread of the offline states. Too little, and rounding
    errors are learned, or what has hardly moved so far outweighs all else once it does."""


class DynamicsBatch(NamedTuple):
    """Transitions of any step."""

    states: Float[Array, "n obs"]
    actions: Float[Array, "n act"]
    next_states: Float[Array, "n obs"]
    past: Float[Array, "n past"]
    """Change of the state in the step before, and the action taken then; of width 0 without history."""


Memory = ReplayBuffer[DynamicsBatch]


def create_memory(spec: Spec, capacity: int, history: bool = True) -> Memory:
    """An empty replay buffer."""
    state, action = jnp.zeros(spec.observation_size), jnp.zeros(spec.action_size or spec.actions)
    past = jnp.zeros((state.size + action.size) * history)
    return ReplayBuffer.create(DynamicsBatch(state, action, state, past), capacity)


@eqx.filter_jit
def add_steps(memory: Memory, batch: Recorded, begin: Int[Array, ""], stop: Int[Array, ""], spec: Spec) -> Memory:
    """Add the transitions of steps `begin` to before `stop`, up to the end of each episode."""
    actions = as_vectors(batch.actions, spec)
    past = pasts(batch.states, actions)[..., : memory.rows.past.shape[1]]
    rows = DynamicsBatch(batch.states, actions, batch.next_states, past)
    steps = jnp.arange(len(batch.states))[:, None]
    going = batch.states[..., -1] < 0.5 if spec.ends else jnp.ones(batch.states.shape[:2], bool)
    keep = going & (begin <= steps) & (steps < stop)
    flat = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]) if x.shape[-1] else jnp.zeros((keep.size, 0)), rows)
    return memory.add(flat, keep.reshape(-1))


def past_of(
    before: Float[Array, "*n obs"], actions: Float[Array, "*n act"], states: Float[Array, "*n obs"]
) -> Float[Array, "*n past"]:
    """What `Dynamics` may know of the step that led to `states`."""
    return jnp.concatenate([states - before, actions], axis=-1)


def pasts(states: Float[Array, "h n obs"], actions: Float[Array, "h n act"]) -> Float[Array, "h n past"]:
    """Of every step of recorded episodes; nothing had moved before the first."""
    later = past_of(states[:-1], actions[:-1], states[1:])
    return jnp.concatenate([jnp.zeros((1, *states.shape[1:-1], states.shape[-1] + actions.shape[-1])), later])


def as_vectors(actions: Array, spec: Spec) -> Float[Array, "*n act"]:
    """Discrete actions as one-hot vectors."""
    return actions if spec.action_size else jax.nn.one_hot(actions, spec.actions)


def create_dynamics(key: PRNGKeyArray, spec: Spec, whitening: Whitening, config: DynamicsConfig) -> Dynamics:
    """A fresh model of states that `whitening` scales."""
    size = spec.observation_size
    inputs = (size + (spec.action_size or spec.actions)) * (2 if config.history else 1)
    network = MLP.create(key, (inputs, config.hidden, config.hidden, size + 1), last_scale=0.1)
    return Dynamics(network, whitening, config.least_step * whitening.scale, spec.ends, config.history)


@eqx.filter_jit
def learn_dynamics(
    key: PRNGKeyArray, dynamics: Dynamics, memory: Memory, near: Memory, config: DynamicsConfig
) -> tuple[Dynamics, Float[Array, ""]]:
    """The model after some more gradient steps, and its squared error at the end, in units of a typical step."""
    rows = memory.rows
    weight = (jnp.arange(memory.capacity) < memory.added) & ~ended_in(rows.next_states, dynamics)
    total = jnp.maximum(weight.sum(), 1)
    spread = jnp.sqrt(weight @ (rows.next_states - rows.states) ** 2 / total)
    dynamics = with_step_scale(dynamics, jnp.maximum(spread, config.least_step * dynamics.whitening.scale))
    optimiser = optax.adam(optax.cosine_decay_schedule(config.learning_rate, config.updates, alpha=0.1))

    def loss_of(network: MLP, rows: DynamicsBatch) -> tuple[Float[Array, ""], Float[Array, ""]]:
        states, actions, next_states, past = rows
        model = eqx.tree_at(lambda d: d.network, dynamics, network)
        predicted, logit = model.outputs(states, actions, past)
        ended = ended_in(next_states, dynamics)
        error = jnp.mean((predicted - (next_states - states) / dynamics.step_scale) ** 2, axis=1)
        square = jnp.mean(jnp.where(ended, 0.0, error))
        if not dynamics.ends:
            return square, square
        return square + optax.sigmoid_binary_cross_entropy(logit, ended.astype(float)).mean(), square

    def update(carry: tuple, t: Int[Array, ""]) -> tuple[tuple, Float[Array, ""]]:
        network, state = carry
        count = int(config.near * config.batch)
        rows = memory.sample(jax.random.fold_in(key, t), config.batch - count)
        if count:
            own = near.sample(jax.random.fold_in(key, -1 - t), count)
            rows = jax.tree.map(lambda *x: jnp.concatenate(x), rows, own)
        (_, square), gradient = jax.value_and_grad(loss_of, has_aux=True)(network, rows)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(network, updates), state), square

    start = (dynamics.network, optimiser.init(dynamics.network))
    (network, _), errors = jax.lax.scan(update, start, jnp.arange(config.updates))
    return eqx.tree_at(lambda d: d.network, dynamics, network), errors[-50:].mean()


@eqx.filter_jit
def model_error(
    dynamics: Dynamics, batch: Recorded, begin: Int[Array, ""], stop: Int[Array, ""], spec: Spec
) -> Float[Array, ""]:
    """Squared error of the model on steps that it has not learned from, relative to how much they change the states."""
    actions = as_vectors(batch.actions, spec)
    past = pasts(batch.states, actions)[..., : (spec.observation_size + actions.shape[-1]) * dynamics.history]
    flat = lambda x: x.reshape(-1, x.shape[-1])  # noqa: E731
    change, _ = dynamics.outputs(flat(batch.states), flat(actions), past.reshape(change_rows(batch), -1))
    truth = flat(batch.next_states - batch.states) / dynamics.step_scale
    steps = jnp.broadcast_to(jnp.arange(len(batch.states))[:, None], batch.states.shape[:2]).reshape(-1)
    keep = (begin <= steps) & (steps < stop) & ~ended_in(flat(batch.next_states), dynamics)
    total = jnp.maximum(keep.sum(), 1)
    centred = truth - keep @ truth / total
    return (keep @ (change - truth) ** 2).sum() / jnp.maximum((keep @ centred**2).sum(), 1e-12)


def change_rows(batch: Recorded) -> int:
    return batch.states.shape[0] * batch.states.shape[1]


def ended_in(states: Float[Array, "n obs"], dynamics: Dynamics) -> Bool[Array, " n"]:
    return states[:, -1] > 0.5 if dynamics.ends else jnp.zeros(len(states), bool)


def with_step_scale(dynamics: Dynamics, scale: Float[Array, " obs"]) -> Dynamics:
    """The same function in other units, of what is predicted: the last layer makes up for them. The past is simply seen
    in the new ones: they settle soon, and the first are too small by far for its weights to make up for."""
    network = dynamics.network
    ratio = jnp.concatenate([dynamics.step_scale / scale, jnp.ones(1)])
    weights = (*network.weights[:-1], network.weights[-1] * ratio)
    biases = (*network.biases[:-1], network.biases[-1] * ratio)
    return eqx.tree_at(
        lambda d: (d.network.weights, d.network.biases, d.step_scale), dynamics, (weights, biases, scale)
    )
