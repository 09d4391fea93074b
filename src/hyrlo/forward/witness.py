"""The discriminators of FAIL: the unit ball of a kernel (MMD), or the value functions of Equation 1,

    G_h = { max_a f(·, a) − f(·, a′) :  f ∈ F_h, a′ ∈ A }

with F a finite class, searched exhaustively, or a small network, trained by gradient ascent. Both see a policy through how
much each online next state counts under it (`embed`), and both answer with either sign of g: the guarantee of the backward
pass needs E_off[g] − E_on[g], Algorithm 4 plays E_on[g] − E_off[g].

A response is scaled by its payoff, u·g. That leaves the equilibrium as it is (u²/2 in place of u) and makes steps small near
it, as with MMD, whose best response is the whole difference of embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.errors import HyrloError
from hyrlo.core.networks import MLP, pick
from hyrlo.core.ranges import Count, Options, Positive, Share, TwoOrMore
from hyrlo.distances import StateUnits, compared_bandwidth, compared_features
from hyrlo.forward.minmax import Discriminator

SCALES = (0.5, 1.0, 2.0, 4.0)  # of the random functions, in median distances
FLAT = 0.01  # a network whose g is nowhere larger is drawn again
SMOOTH = 0.2  # temperature of the maximum along which witnesses climb
THOROUGH = 10  # factor on the usual ascent when an iterate is judged

ValueClass = Callable[[Float[Array, "n obs"], int], Float[Array, "functions n actions"]]
"""A finite class F: the values of all its functions at states of step h."""


@dataclass(frozen=True)
class WitnessConfig(Options):
    """A class of discriminators."""

    measure: ClassVar[str] = "ipm"
    """Name of the distance in the metrics."""
    memory: Share = 0.0
    """Share of the past witnesses that the policy player keeps: 0 answers the last one, 1 averages all."""


@dataclass(frozen=True)
class SampleWitness(WitnessConfig):
    """Discriminators that can be evaluated at samples."""


@dataclass(frozen=True)
class Mmd(SampleWitness):
    """The unit ball of the RBF kernel, by random Fourier features."""

    measure: ClassVar[str] = "mmd"
    memory: Share = 0.98
    """Share of the past witnesses that the policy player keeps: 0 answers the last one, 1 averages all."""
    features: TwoOrMore = 256
    """Random Fourier features; an even number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features % 2:
            raise HyrloError(f"features is {self.features}; give an even number of at least 2")


@dataclass(frozen=True)
class ExactMmd(WitnessConfig):
    """The unit ball of the RBF kernel, without approximation."""

    measure: ClassVar[str] = "mmd"
    memory: Share = 0.98
    """Share of the past witnesses that the policy player keeps: 0 answers the last one, 1 averages all."""


@dataclass(frozen=True)
class RandomValues(SampleWitness):
    """Equation 1 with a finite class F of random functions."""

    functions: Count = 64
    """Number of functions."""
    cosines: Count = 8
    """Random cosines in each function."""


@dataclass(frozen=True)
class GivenValues(SampleWitness):
    """Equation 1 with a finite class F of your own."""

    functions: ValueClass = field(kw_only=True)


@dataclass(frozen=True)
class ValueNetwork(SampleWitness):
    """Equation 1 with f a small network."""

    expert: ClassVar[tuple[str, ...]] = ("bound", "restarts", "ascent", "learning_rate")
    hidden: Count = 16
    """Width of the hidden layer."""
    bound: Positive = 4.0
    """The largest Frobenius norm of a layer's weights, on whitened states."""
    restarts: TwoOrMore = 4
    """Networks side by side, half of them for each sign; they are kept from round to round."""
    ascent: Count = 3
    """Gradient steps on the witness per round of the game."""
    learning_rate: Positive = 0.03
    """Learning rate of these steps (Adam)."""


DISCRIMINATORS: dict[str, type[WitnessConfig]] = {
    "mmd": Mmd, "exact": ExactMmd, "value": RandomValues, "value-network": ValueNetwork,
}  # fmt: skip
"""By their names on the command line; `exact` is for importance weights only."""


@eqx.filter_jit
def next_features(
    key: PRNGKeyArray,
    online: Float[Array, "n obs"],
    offline: Float[Array, "m obs"],
    offline_weights: Float[Array, " m"],
    units: StateUnits,
    features: int,
) -> tuple[Float[Array, "n f"], Float[Array, " f"]]:
    """Random features of the online next states, and the mean of the offline ones."""
    here, there = units(online), units(offline)
    width = compared_bandwidth(here, there, None, offline_weights)
    frequencies = jax.random.normal(key, (here.white.shape[1], features // 2))
    mean = offline_weights @ compared_features(there, frequencies, width)
    return compared_features(here, frequencies, width), mean


def value_discriminator(
    key: PRNGKeyArray,
    counts: Counts,
    witness: WitnessConfig,
    online: Float[Array, "n obs"],
    offline: Float[Array, "m obs"],
    offline_weights: Float[Array, " m"],
    units: StateUnits,
    actions: int,
    h: int,
) -> Discriminator:
    """The witnesses of Equation 1 at states of step `h`, against what a policy makes each online next state `count`.

    A class of one's own sees the states as they are, the others in `units`.
    """
    match witness:
        case ValueNetwork():
            create = eqx.filter_jit(NetworkWitnesses.create)
            return create(key, counts, online, offline, offline_weights, units, actions, witness)
        case GivenValues(functions=functions):
            return finite_witnesses(counts, functions, online, offline, offline_weights, h)
        case RandomValues():
            functions = random_functions(key, online, offline, offline_weights, units, actions, witness)
            inputs = units.inputs(online), units.inputs(offline)
            return finite_witnesses(counts, functions, *inputs, offline_weights, h)
    raise TypeError(f"{type(witness).__name__} is not a class of value functions")


class Counts(Protocol):
    """How much each online next state counts under a policy: the estimator of its next states."""

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Float[Array, " n"]: ...


class ImportanceCounts(eqx.Module):
    """`A·π(a|s)`, divided by the number of samples."""

    actions: Int[Array, " n"]

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Float[Array, " n"]:
        weights = policy.shape[1] * pick(policy, self.actions[batch])
        return jnp.zeros(len(self.actions)).at[batch].add(weights / len(batch))


class FiniteWitnesses(eqx.Module):
    """All g of a finite class at once; the best of them by looking at each."""

    counts: Counts
    online: Float[Array, "n g"]
    offline_mean: Float[Array, " g"]
    all_samples: bool = eqx.field(static=True, default=True)

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Float[Array, " g"]:
        return self.counts.embed(policy, batch) @ self.online - self.offline_mean

    def inner(self, witness: Float[Array, " g"], embedding: Float[Array, " g"]) -> Float[Array, ""]:
        return witness @ embedding

    def start(self) -> tuple:
        return ()

    def respond(self, memory: tuple, embedding: Float[Array, " g"], thorough: bool = False) -> tuple[Array, tuple]:
        best = jnp.argmax(jnp.abs(embedding))
        return jnp.zeros_like(embedding).at[best].set(embedding[best]), memory


class NetworkWitnesses(eqx.Module):
    """f = sigmoid(network), so that 0 ≤ g ≤ 1; networks of either sign climb on, and the best of them answers.

    A witness is its values: at the online next states and, last, its offline mean. Outputs of a network may be permuted, so
    a′ = 0 stands for every a′.
    """

    counts: Counts
    online: Float[Array, "n obs"]
    offline: Float[Array, "m obs"]
    offline_weights: Float[Array, " m"]
    signs: Float[Array, " r"]
    key: PRNGKeyArray
    actions: int = eqx.field(static=True)
    config: ValueNetwork = eqx.field(static=True)
    all_samples: bool = eqx.field(static=True, default=True)

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        counts: Counts,
        online: Float[Array, "n obs"],
        offline: Float[Array, "m obs"],
        offline_weights: Float[Array, " m"],
        units: StateUnits,
        actions: int,
        config: ValueNetwork,
    ) -> NetworkWitnesses:
        inputs = units.inputs(online), units.inputs(offline)
        signs = 1.0 - 2.0 * (jnp.arange(config.restarts) % 2)
        return cls(counts, *inputs, offline_weights, signs, key, max(actions, 2), config)

    def embed(self, policy: Float[Array, "b actions"], batch: Int[Array, " b"]) -> Float[Array, " n"]:
        return self.counts.embed(policy, batch)

    def inner(self, witness: Float[Array, " n+1"], embedding: Float[Array, " n"]) -> Float[Array, ""]:
        return witness[:-1] @ embedding - witness[-1]

    def values(self, network: MLP) -> Float[Array, " n+1"]:
        offline = self.offline_weights @ difference(network, self.offline)
        return jnp.append(difference(network, self.online), offline)

    def fresh(self, key: PRNGKeyArray) -> tuple[MLP, Any]:
        """Random networks, and the state of their ascent."""
        sizes = (self.online.shape[1], self.config.hidden, self.actions)
        draw = lambda k: within(MLP.create(k, sizes), self.config.bound)  # noqa: E731
        networks = jax.vmap(draw)(jax.random.split(key, self.config.restarts))
        return networks, jax.vmap(optax.adam(self.config.learning_rate).init)(networks)

    def start(self) -> tuple[tuple[MLP, Any], PRNGKeyArray]:
        return self.fresh(self.key), self.key

    def respond(
        self, memory: tuple[tuple[MLP, Any], PRNGKeyArray], embedding: Float[Array, " n"], thorough: bool = False
    ) -> tuple[Float[Array, " n+1"], tuple[tuple[MLP, Any], PRNGKeyArray]]:
        optimiser = optax.adam(self.config.learning_rate)

        def loss(network: MLP, sign: Float[Array, ""]) -> Float[Array, ""]:
            return -sign * self.inner(self.values(network), embedding)

        def climb(carry: tuple[MLP, Any], _: None) -> tuple[tuple[MLP, Any], None]:
            def one(network: MLP, state: Any, sign: Float[Array, ""]) -> tuple[MLP, Any]:
                updates, state = optimiser.update(jax.grad(loss)(network, sign), state)
                return within(optax.apply_updates(network, updates), self.config.bound), state

            return jax.vmap(one)(*carry, self.signs), None

        steps = self.config.ascent * (THOROUGH if thorough else 1)
        climbed, _ = jax.lax.scan(climb, memory[0], None, length=steps)
        each = jax.vmap(self.values)(climbed[0])
        payoffs = jax.vmap(self.inner, (0, None))(each, embedding)
        best = jnp.argmax(jnp.abs(payoffs))
        # Where its sign does not pay, the best that a network can be is g = 0, and there is no gradient to lead back.
        flat, key = each[:, :-1].max(axis=1) < FLAT, jax.random.fold_in(memory[1], 1)
        choose = jax.vmap(lambda one, new, old: jax.tree.map(lambda x, y: jnp.where(one, x, y), new, old))
        return payoffs[best] * each[best], (choose(flat, self.fresh(key), climbed), key)


def difference(network: MLP, states: Float[Array, "n obs"]) -> Float[Array, " n"]:
    """g = max_a f(·, a) − f(·, 0), with the gradient of a smooth maximum.

    Where f(·, 0) is the largest, g is 0 and its own gradient, too: all networks could become blind to the same states.
    """
    values = jax.nn.sigmoid(network(states))
    smooth = SMOOTH * jax.nn.logsumexp(values / SMOOTH, axis=1)
    return jax.lax.stop_gradient(values.max(axis=1) - smooth) + smooth - values[:, 0]


def within(network: MLP, bound: float) -> MLP:
    """The network with no layer's weights larger than `bound`."""
    shrink = lambda w: w * jnp.minimum(1.0, bound / jnp.maximum(jnp.linalg.norm(w), 1e-12))  # noqa: E731
    return eqx.tree_at(lambda n: n.weights, network, tuple(shrink(w) for w in network.weights))


class RandomFunctions(eqx.Module):
    """f(s, a) = (1 + v_a · cos(W s + b)) / 2 with |v_a|₁ = 1, so that 0 ≤ f ≤ 1; W at several scales."""

    frequencies: Float[Array, "functions obs cosines"]
    phases: Float[Array, "functions cosines"]
    weights: Float[Array, "functions cosines actions"]

    @classmethod
    def draw(
        cls, key: PRNGKeyArray, widths: Float[Array, " obs"], actions: int, config: RandomValues
    ) -> RandomFunctions:
        """`widths` are typical distances, by dimension."""
        keys = jax.random.split(key, 3)
        widths = widths[:, None] * jnp.resize(jnp.asarray(SCALES), (config.functions, 1, 1))
        frequencies = jax.random.normal(keys[0], (config.functions, widths.shape[1], config.cosines)) / widths
        phases = jax.random.uniform(keys[1], (config.functions, config.cosines), maxval=2 * jnp.pi)
        weights = jax.random.normal(keys[2], (config.functions, config.cosines, actions))
        return cls(frequencies, phases, weights / jnp.abs(weights).sum(axis=1, keepdims=True))

    def __call__(self, states: Float[Array, "n obs"], h: int) -> Float[Array, "functions n actions"]:
        cosines = jnp.cos(jnp.einsum("no,foc->fnc", states, self.frequencies) + self.phases[:, None])
        return (1 + cosines @ self.weights) / 2


@eqx.filter_jit
def random_functions(
    key: PRNGKeyArray,
    online: Float[Array, "n obs"],
    offline: Float[Array, "m obs"],
    offline_weights: Float[Array, " m"],
    units: StateUnits,
    actions: int,
    config: RandomValues,
) -> RandomFunctions:
    """Functions of the states in `units`."""
    width = compared_bandwidth(units(online), units(offline), None, offline_weights)
    widths = jnp.full(online.shape[1], width)
    if units.ends:  # the flag alone must tell who has ended, however far apart the states are
        widths = widths.at[-1].set(1 / max(SCALES))
    return RandomFunctions.draw(key, widths, actions, config)


def finite_witnesses(
    counts: Counts,
    functions: ValueClass,
    online: Float[Array, "n obs"],
    offline: Float[Array, "m obs"],
    offline_weights: Float[Array, " m"],
    h: int,
) -> FiniteWitnesses:
    """The witnesses of a finite class at states of step h."""
    values = []
    for states in (online, offline):
        of = jnp.asarray(functions(states, h), jnp.float32)
        if of.ndim != 3 or of.shape[1] != len(states):
            raise HyrloError(
                f"the class of value functions gives an array of shape {of.shape} at step {h}; "
                f"give (functions, {len(states)}, actions)"
            )
        if not bool(jnp.isfinite(of).all()):
            where = np.argwhere(~np.isfinite(np.asarray(of)))[0]
            raise HyrloError(
                f"the class of value functions is not finite at step {h}, entry {where.tolist()}; return finite values"
            )
        values.append(differences(of))
    return FiniteWitnesses(counts, values[0], offline_weights @ values[1])


@jax.jit
def differences(values: Float[Array, "functions n actions"]) -> Float[Array, "n g"]:
    """max_a f(·, a) − f(·, a′) for every f and a′."""
    each = values.max(axis=2, keepdims=True) - values
    return jnp.moveaxis(each, 1, 0).reshape(values.shape[1], -1)
