"""Algorithm 4, the min-max game: a one-step policy against a witness.

    min_π max_g  u(π, g) = Ê_on[ A·π(a|s) g(s') ] − Ê_off[ g(s') ]

The witness player answers with the best response, which for MMD is known in closed form (for the value functions of
Equation 1, see witness.py). The policy player is no-regret:
it follows the regularised leader over (a fading memory of) all past witnesses, one gradient step a round.
The iterate with the smallest u is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.intervals import intervals
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Softmax
from hyrlo.core.ranges import Count, NonNegative, Options, Positive

CHECKS = 20  # evaluations of the whole sample during a game, to keep the best iterate


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
class GameConfig(Options):
    """The min-max game; the paper plays 1000 rounds at learning rate 0.001."""

    expert: ClassVar[tuple[str, ...]] = ("entropy",)
    iterations: Count = 1000
    """Rounds of the game."""
    learning_rate: Positive = 1e-3
    """Learning rate of the policy player (Adam)."""
    entropy: NonNegative = 0.0
    """Weight of the policy's entropy in the regulariser φ(π)."""


class Players(NamedTuple):
    """Both players: the policy with its optimiser, the averaged witness, and what the discriminator remembers."""

    policy: Softmax
    optimiser: optax.OptState
    witness: Array
    memory: Any


@eqx.filter_jit
def play(
    key: PRNGKeyArray,
    policy: Softmax,
    states: Float[Array, "n obs"],
    discriminator: Discriminator,
    config: GameConfig,
    memory: float,
    batch: int | None = None,
) -> tuple[Softmax, Float[Array, ""]]:
    """The best iterate on states of step h, and its distance to the offline states of step h + 1.

    The policy player keeps the share `memory` of the past witnesses: 0 answers the last one, 1 averages all.
    A round sees `batch` samples, or all.
    """
    everything = jnp.arange(len(states))
    optimiser = optax.adam(config.learning_rate)

    def embed(policy: Softmax, rows: Int[Array, " b"]) -> Array:
        return discriminator.embed(jax.nn.softmax(policy.logits(states[rows])), rows)

    def payoff(policy: Softmax, witness: Array, rows: Int[Array, " b"]) -> Float[Array, ""]:
        log_pi = jax.nn.log_softmax(policy.logits(states[rows]))
        regulariser = config.entropy * jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, axis=1))
        return discriminator.inner(witness, discriminator.embed(jnp.exp(log_pi), rows)) + regulariser

    def one_round(t: Int[Array, ""], players: Players) -> Players:
        rows = everything
        if batch is not None and batch < len(states):
            rows = jax.random.randint(jax.random.fold_in(key, t), (batch,), 0, len(states))
        policy, state, witness, remembered = players
        seen = embed(policy, everything if discriminator.all_samples else rows)
        response, remembered = discriminator.respond(remembered, seen)  # g^t, the best response
        keep = jnp.minimum(memory, t / (t + 1.0))
        witness = keep * witness + (1 - keep) * response
        updates, state = optimiser.update(jax.grad(payoff)(policy, witness, rows), state, policy)
        return Players(optax.apply_updates(policy, updates), state, witness, remembered)

    def rounds_and_check(carry: tuple, interval: Int[Array, " 2"]) -> tuple[tuple, None]:
        players, best, best_distance2 = carry
        players = jax.lax.fori_loop(interval[0], interval[1], one_round, players)
        seen = embed(players.policy, everything)
        distance2 = discriminator.inner(discriminator.respond(players.memory, seen, thorough=True)[0], seen)
        better = distance2 < best_distance2
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), players.policy, best)
        return (players, best, jnp.minimum(distance2, best_distance2)), None

    remembered = discriminator.start()
    response, _ = eqx.filter_eval_shape(discriminator.respond, remembered, embed(policy, everything))
    players = Players(policy, optimiser.init(policy), jnp.zeros(response.shape), remembered)
    start = (players, policy, jnp.asarray(jnp.inf))
    (_, best, distance2), _ = jax.lax.scan(rounds_and_check, start, intervals(config.iterations, CHECKS))
    return best, jnp.sqrt(jnp.maximum(distance2, 0.0))


@eqx.filter_jit
def softmax_network(key: PRNGKeyArray, sizes: tuple[int, ...]) -> Softmax:
    """A tanh network that starts out nearly uniform."""
    return Softmax(MLP.create(key, sizes, last_scale=0.01))
