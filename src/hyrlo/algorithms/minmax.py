"""Algorithm 4, the min-max game: a one-step policy against a witness.

    min_π max_g  u(π, g) = Ê_on[ A·π(a|s) g(s') ] − Ê_off[ g(s') ]

The witness player answers with the best response, which for MMD is known in closed form. The policy player is no-regret:
it follows the regularised leader over (a fading memory of) all past witnesses, one gradient step a round.
The iterate with the smallest u is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.errors import HyrloError, check_positive
from hyrlo.policies import Softmax

CHECKS = 20  # how often in a game the value of the whole sample is looked at, to keep the best iterate


class Discriminator(Protocol):
    """A class of witnesses in a Hilbert space, where the best response to a policy is its embedding."""

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Array:
        """Estimated mean embedding of the next states under the policy's action probabilities, minus the offline one."""
        ...

    def inner(self, witness: Array, embedding: Array) -> Float[Array, ""]: ...


@dataclass(frozen=True)
class GameConfig:
    """The game's hyper-parameters; the paper's are 1000 rounds at learning rate 0.001."""

    iterations: int = 1000
    learning_rate: float = 1e-3
    batch: int = 256
    """Online samples a round; as many as there are samples for exact best responses."""
    memory: float = 0.98
    """How much of the past witnesses the policy player keeps: 0 answers the last one, 1 averages all."""
    entropy: float = 0.0
    """Weight of the regulariser φ(π) = −entropy."""
    decay: float = 0.0
    """Weight decay of the policy network (AdamW's)."""

    def __post_init__(self) -> None:
        check_positive(self, "iterations", "learning_rate", "batch")
        if not 0 <= self.memory <= 1:
            raise HyrloError(f"memory is {self.memory}; give a share between 0 and 1")


@eqx.filter_jit
def play(
    key: PRNGKeyArray,
    policy: Softmax,
    states: Float[Array, "n obs"],
    discriminator: Discriminator,
    config: GameConfig,
) -> tuple[Softmax, Float[Array, ""]]:
    """The best iterate on states of step h, and the MMD to the offline states of step h + 1 that it reaches there."""
    everything = jnp.arange(len(states))
    batch_size = min(config.batch, len(states))
    optimiser = optax.adamw(config.learning_rate, weight_decay=config.decay)

    def embed(policy: Softmax, batch: Int[Array, " b"]) -> Array:
        return discriminator.embed(jax.nn.softmax(policy.logits(states[batch])), batch)

    def payoff(policy: Softmax, witness: Array, batch: Int[Array, " b"]) -> Float[Array, ""]:
        log_pi = jax.nn.log_softmax(policy.logits(states[batch]))
        regulariser = config.entropy * jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, axis=1))
        return discriminator.inner(witness, discriminator.embed(jnp.exp(log_pi), batch)) + regulariser

    def one_round(carry: tuple, t: Int[Array, ""]) -> tuple[tuple, None]:
        policy, state, witness = carry
        batch = everything
        if batch_size < len(states):
            batch = jax.random.randint(jax.random.fold_in(key, t), (batch_size,), 0, len(states))
        keep = jnp.minimum(config.memory, t / (t + 1.0))
        witness = keep * witness + (1 - keep) * embed(policy, batch)  # best response, remembered
        updates, state = optimiser.update(jax.grad(payoff)(policy, witness, batch), state, policy)
        return (optax.apply_updates(policy, updates), state, witness), None

    def rounds_and_check(carry: tuple, ts: Int[Array, " rounds"]) -> tuple[tuple, None]:
        player, best, best_distance2 = carry
        player, _ = jax.lax.scan(one_round, player, ts)
        response = embed(player[0], everything)
        distance2 = discriminator.inner(response, response)
        better = distance2 < best_distance2
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), player[0], best)
        return (player, best, jnp.minimum(distance2, best_distance2)), None

    no_witness = jnp.zeros_like(embed(policy, everything))
    start = ((policy, optimiser.init(policy), no_witness), policy, jnp.asarray(jnp.inf))
    checks = min(CHECKS, config.iterations)
    schedule = jnp.arange(config.iterations - config.iterations % checks).reshape(checks, -1)
    (_, best, distance2), _ = jax.lax.scan(rounds_and_check, start, schedule)
    return best, jnp.sqrt(jnp.maximum(distance2, 0.0))
