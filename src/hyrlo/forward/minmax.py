"""Algorithm 4, the min-max game: a one-step policy against a witness.

    min_π max_g  u(π, g) = Ê_on[ A·π(a|s) g(s') ] − Ê_off[ g(s') ]

The witness player answers with the best response, which for MMD is known in closed form (for the value functions of
Equation 1, see witness.py). The policy player is no-regret:
it follows the regularised leader over (a fading memory of) all past witnesses, one gradient step a round.
The iterate with the smallest u is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.errors import HyrloError, check_positive
from hyrlo.core.policies import Softmax

CHECKS = 20  # how often in a game the value of the whole sample is looked at, to keep the best iterate


class Embedding(Protocol):
    """A class of witnesses by what it sees of a policy."""

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Array:
        """Estimated mean embedding of the next states under the policy's action probabilities, minus the offline one."""
        ...

    def inner(self, witness: Array, embedding: Array) -> Float[Array, ""]:
        """The payoff of a witness against a policy."""
        ...


class Discriminator(Embedding, Protocol):
    """A class of witnesses with a player, which may remember something from round to round."""

    @property
    def all_samples(self) -> bool:
        """Whether it answers all samples, not the round's batch only."""
        ...

    def start(self) -> Any: ...

    def respond(self, memory: Any, embedding: Array, thorough: bool = False) -> tuple[Array, Any]:
        """The best witness against an embedding, times its payoff there."""
        ...


class UnitBall(eqx.Module):
    """The unit ball of a Hilbert space: the best witness times its payoff is the embedding itself."""

    space: Embedding
    all_samples: bool = eqx.field(static=True, default=False)

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Array:
        return self.space.embed(policy, batch)

    def inner(self, witness: Array, embedding: Array) -> Float[Array, ""]:
        return self.space.inner(witness, embedding)

    def start(self) -> tuple:
        return ()

    def respond(self, memory: tuple, embedding: Array, thorough: bool = False) -> tuple[Array, tuple]:
        return embedding, memory


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
    """The best iterate on states of step h, and the distance to the offline states of step h + 1 that it reaches there."""
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
        policy, state, witness, memory = carry
        batch = everything
        if batch_size < len(states):
            batch = jax.random.randint(jax.random.fold_in(key, t), (batch_size,), 0, len(states))
        keep = jnp.minimum(config.memory, t / (t + 1.0))
        seen = embed(policy, everything if discriminator.all_samples else batch)
        response, memory = discriminator.respond(memory, seen)
        witness = keep * witness + (1 - keep) * response  # best response, remembered
        updates, state = optimiser.update(jax.grad(payoff)(policy, witness, batch), state, policy)
        return (optax.apply_updates(policy, updates), state, witness, memory), None

    def rounds_and_check(carry: tuple, ts: Int[Array, " rounds"]) -> tuple[tuple, None]:
        player, best, best_distance2 = carry
        player, _ = jax.lax.scan(one_round, player, ts)
        seen = embed(player[0], everything)
        distance2 = discriminator.inner(discriminator.respond(player[3], seen, thorough=True)[0], seen)
        better = distance2 < best_distance2
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), player[0], best)
        return (player, best, jnp.minimum(distance2, best_distance2)), None

    memory = discriminator.start()
    response, _ = eqx.filter_eval_shape(discriminator.respond, memory, embed(policy, everything))
    no_witness = jnp.zeros(response.shape)
    start = ((policy, optimiser.init(policy), no_witness, memory), policy, jnp.asarray(jnp.inf))
    checks = min(CHECKS, config.iterations)
    schedule = jnp.arange(config.iterations - config.iterations % checks).reshape(checks, -1)
    (_, best, distance2), _ = jax.lax.scan(rounds_and_check, start, schedule)
    return best, jnp.sqrt(jnp.maximum(distance2, 0.0))
