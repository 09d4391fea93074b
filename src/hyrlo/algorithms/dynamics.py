"""A one-step model of the world, shared by all steps and learned from every transition that was ever paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.access import Rollout, Spec
from hyrlo.errors import HyrloError, check_positive
from hyrlo.networks import MLP, Dynamics

LEAST_STEP = 1e-3
"""What a step changes counts as at least this share of the spread of the states, or rounding errors would be learned."""


@dataclass(frozen=True)
class DynamicsConfig:
    """The learned model of one step."""

    hidden: int = 128
    """Width of its two hidden layers."""
    updates: int = 300
    """Gradient steps after each collection; the model is carried on, not begun anew."""
    learning_rate: float = 1e-3
    batch: int = 256
    memory: int = 50_000
    """Learn from this many of the newest transitions."""
    near: float = 0.0
    """Share of each batch that is of the steps whose policy is being learned; the rest is of any step so far."""

    def __post_init__(self) -> None:
        check_positive(self, "hidden", "updates", "learning_rate", "batch", "memory")
        if not 0 <= self.near <= 1:
            raise HyrloError(f"near is {self.near}; give a share from 0 to 1")


class Memory(NamedTuple):
    """The newest transitions, of any step."""

    states: Float[Array, "m obs"]
    actions: Float[Array, "m act"]
    next_states: Float[Array, "m obs"]
    added: Int[Array, ""]

    @classmethod
    def create(cls, spec: Spec, room: int) -> Memory:
        blank = jnp.zeros((room, spec.observation_size))
        return cls(blank, jnp.zeros((room, spec.action_size or spec.actions)), blank, jnp.zeros((), int))

    def add(self, batch: Rollout, begin: int, stop: int, spec: Spec) -> Memory:
        """Transitions of `begin` to before `stop`, but of episodes that had ended. In NumPy: their number varies."""
        vectors = as_vectors(jnp.asarray(batch.actions), spec)
        states, actions, next_states = (_rows(x, begin, stop) for x in (batch.states, vectors, batch.next_states))
        going = states[:, -1] < 0.5 if spec.ends else np.ones(len(states), bool)
        room, added = len(self.states), int(self.added)
        new = [x[going][-room:] for x in (states, actions, next_states)]
        where = (added + np.arange(len(new[0]))) % room
        full = []
        for old, rows in zip(self[:3], new, strict=True):
            array = np.array(old)
            array[where] = rows
            full.append(jnp.asarray(array))
        return Memory(full[0], full[1], full[2], jnp.asarray(added + len(where)))


def _rows(x: Array | None, begin: int, stop: int) -> np.ndarray:
    steps = np.asarray(x)[begin:stop]
    return steps.reshape(-1, steps.shape[-1])


def as_vectors(actions: Array, spec: Spec) -> Float[Array, "*n act"]:
    """Discrete actions as one-hot vectors."""
    return actions if spec.action_size else jax.nn.one_hot(actions, spec.actions)


def create_dynamics(
    key: PRNGKeyArray, spec: Spec, shift: Float[Array, " obs"], scale: Float[Array, " obs"], config: DynamicsConfig
) -> Dynamics:
    size = spec.observation_size
    sizes = (size + (spec.action_size or spec.actions), config.hidden, config.hidden, size + 1)
    return Dynamics(MLP.create(key, sizes, last_scale=0.1), shift, scale, LEAST_STEP * jnp.asarray(scale), spec.ends)


@eqx.filter_jit
def learn_dynamics(
    key: PRNGKeyArray, dynamics: Dynamics, memory: Memory, near: Memory, config: DynamicsConfig
) -> tuple[Dynamics, Float[Array, ""]]:
    """The model after some more gradient steps, and its squared error at the end, in units of a typical step."""
    known = jnp.minimum(memory.added, len(memory.states))
    weight = (jnp.arange(len(memory.states)) < known) & ~ended_in(memory.next_states, dynamics)
    total = jnp.maximum(weight.sum(), 1)
    spread = jnp.sqrt(weight @ (memory.next_states - memory.states) ** 2 / total)
    dynamics = with_step_scale(dynamics, jnp.maximum(spread, LEAST_STEP * dynamics.scale))
    optimiser = optax.adam(optax.cosine_decay_schedule(config.learning_rate, config.updates, alpha=0.1))

    def loss_of(network: MLP, rows: tuple[Array, Array, Array]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        states, actions, next_states = rows
        model = eqx.tree_at(lambda d: d.network, dynamics, network)
        predicted, logit = model.outputs(states, actions)
        ended = ended_in(next_states, dynamics)
        error = jnp.mean((predicted - (next_states - states) / dynamics.step_scale) ** 2, axis=1)
        square = jnp.mean(jnp.where(ended, 0.0, error))
        if not dynamics.ends:
            return square, square
        return square + optax.sigmoid_binary_cross_entropy(logit, ended.astype(float)).mean(), square

    def draw(key: PRNGKeyArray, source: Memory, n: int) -> tuple[Array, Array, Array]:
        there = jnp.minimum(source.added, len(source.states))
        rows = (jax.random.uniform(key, (n,)) * there).astype(int)
        return source.states[rows], source.actions[rows], source.next_states[rows]

    def update(carry: tuple, t: Int[Array, ""]) -> tuple[tuple, Float[Array, ""]]:
        network, state = carry
        some = int(config.near * config.batch)
        rows = draw(jax.random.fold_in(key, t), memory, config.batch - some)
        if some:
            own = draw(jax.random.fold_in(key, -1 - t), near, some)
            rows = tuple(jnp.concatenate(x) for x in zip(rows, own, strict=True))  # type: ignore[assignment]
        (_, square), gradient = jax.value_and_grad(loss_of, has_aux=True)(network, rows)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(network, updates), state), square

    start = (dynamics.network, optimiser.init(dynamics.network))
    (network, _), errors = jax.lax.scan(update, start, jnp.arange(config.updates))
    return eqx.tree_at(lambda d: d.network, dynamics, network), errors[-50:].mean()


def ended_in(states: Float[Array, "n obs"], dynamics: Dynamics) -> Bool[Array, " n"]:
    return states[:, -1] > 0.5 if dynamics.ends else jnp.zeros(len(states), bool)


def with_step_scale(dynamics: Dynamics, scale: Float[Array, " obs"]) -> Dynamics:
    """The same function in other units: the last layer makes up for them."""
    ratio = jnp.concatenate([dynamics.step_scale / scale, jnp.ones(1)])
    network = dynamics.network
    weights, biases = (
        (*network.weights[:-1], network.weights[-1] * ratio),
        (*network.biases[:-1], network.biases[-1] * ratio),
    )
    return eqx.tree_at(
        lambda d: (d.network.weights, d.network.biases, d.step_scale), dynamics, (weights, biases, scale)
    )
