"""Behaviour cloning of the roll-in: one stationary policy fitted to the actions that the roll-in took in its states.

    π = argmax_π  E_{h, s_h ∼ π^f}[ log π(a_h | s_h) ],      played without noise

It does not improve on the roll-in by design, yet without noise it often does. It is a baseline for the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.random import fold_in
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.networks import MLP, Whitened, pick
from hyrlo.core.policies import Gaussian, Greedy, Policy
from hyrlo.core.ranges import Count, Options, Positive
from hyrlo.core.variants import from_presets
from hyrlo.core.whitening import Whitening


@dataclass(frozen=True)
class DistilConfig(Options):
    """Regression onto the actions of the roll-in."""

    episodes: Count = 500
    hidden: Count = 128
    """Width of the two hidden layers."""
    updates: Count = 5000
    batch: Count = 256
    learning_rate: Positive = 1e-3


PRESETS = {"fast": DistilConfig()}
configure = from_presets(PRESETS, "distil")


def distil(model: TraceModel, source: Policy, config: DistilConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """One policy from the roll-in `source`."""
    spec = model.spec
    keys = Keys(key)
    sizes = (spec.observation_size, config.hidden, config.hidden, spec.action_size or spec.actions)
    fresh = MLP.create(keys.create, sizes, last_scale=0.01)
    blank = Whitened.create(fresh, Whitening.identity(spec.observation_size))
    phase = run.phase("backward", range(1), blank, model)
    for t in phase:
        batch = model.record(keys.rollout, source, config.episodes, tuple(range(spec.horizon)))
        rows = [x.reshape(-1, *x.shape[2:]) for x in (batch.states, batch.actions)]
        if spec.ends:
            going = rows[0][:, -1] < 0.5
            rows = [x[going] for x in rows]
        network, loss = imitate(keys.fit, phase.state, rows[0], rows[1], config)
        phase.done(
            spec.horizon,
            network,
            evaluate=deterministic_policy(network, spec.action_size),
            loss=float(loss),
            iteration=t,
        )
    return deterministic_policy(phase.state, spec.action_size)


def deterministic_policy(network: Whitened, action_size: int) -> Policy:
    return Gaussian(network, jnp.zeros(action_size), noise=False) if action_size else Greedy(network)


@eqx.filter_jit
def imitate(
    key: PRNGKeyArray, network: Whitened, states: Float[Array, "n obs"], actions: Array, config: DistilConfig
) -> tuple[Whitened, Float[Array, ""]]:
    """The network after all updates, and its mean loss over the last of them."""
    network = Whitened.create(network.network, Whitening.of(states))
    optimiser = optax.adam(optax.cosine_decay_schedule(config.learning_rate, config.updates))

    def loss_of(network: Whitened, rows: Int[Array, " b"]) -> Float[Array, ""]:
        outputs = network(states[rows])
        if actions.ndim == 1:
            return -pick(jax.nn.log_softmax(outputs), actions[rows]).mean()
        return jnp.mean((jnp.tanh(outputs) - jnp.clip(actions[rows], -1.0, 1.0)) ** 2)

    def update(carry: tuple, t: Int[Array, ""]) -> tuple[tuple, Float[Array, ""]]:
        network, state = carry
        rows = jax.random.randint(fold_in(key, t), (config.batch,), 0, len(states))
        loss, gradient = jax.value_and_grad(loss_of)(network, rows)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(network, updates), state), loss

    (network, _), losses = jax.lax.scan(update, (network, optimiser.init(network)), jnp.arange(config.updates))
    return network, losses[-100:].mean()
