"""The few function classes the paper uses, as batched Equinox modules."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.whitening import Whitening


class MLP(eqx.Module):
    """Tanh network; the last layer is linear."""

    weights: tuple[Float[Array, "fan_in fan_out"], ...]
    biases: tuple[Float[Array, " fan_out"], ...]

    @classmethod
    def create(cls, key: PRNGKeyArray, sizes: tuple[int, ...], last_scale: float = 1.0) -> MLP:
        """Normal weights of variance 2 / fan-in (`last_scale`² / fan-in on the output) and zero biases."""
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [2.0**0.5] * (len(sizes) - 2) + [last_scale]
        weights = tuple(
            gain * jax.random.normal(k, (fan_in, fan_out)) / fan_in**0.5
            for k, gain, fan_in, fan_out in zip(keys, gains, sizes[:-1], sizes[1:], strict=True)
        )
        return cls(weights, tuple(jnp.zeros(n) for n in sizes[1:]))

    def __call__(self, x: Float[Array, "n fan_in"]) -> Float[Array, "n fan_out"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jnp.tanh(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


class LayerNormMLP(eqx.Module):
    """Relu network with each hidden layer normalised before its relu, which keeps bootstrapped values from exploding."""

    weights: tuple[Float[Array, "fan_in fan_out"], ...]
    biases: tuple[Float[Array, " fan_out"], ...]
    normalise: bool = eqx.field(static=True)

    @classmethod
    def create(
        cls, key: PRNGKeyArray, sizes: tuple[int, ...], normalise: bool = True, last_scale: float = 1.0
    ) -> LayerNormMLP:
        """Random biases: without them a normalised layer would not see the size of its input."""
        base = MLP.create(key, sizes, last_scale)
        biases = [jax.random.normal(jax.random.fold_in(key, i), b.shape) for i, b in enumerate(base.biases[:-1])]
        return cls(base.weights, (*biases, base.biases[-1]), normalise)

    def __call__(self, x: Float[Array, "n fan_in"]) -> Float[Array, "n fan_out"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight + bias
            if self.normalise:
                x = (x - x.mean(axis=1, keepdims=True)) * jax.lax.rsqrt(x.var(axis=1, keepdims=True) + 1e-5)
            x = jax.nn.relu(x)
        return x @ self.weights[-1] + self.biases[-1]


class Whitened(eqx.Module):
    """A network with whitened inputs. Its shift and scale are not learned."""

    network: MLP | LayerNormMLP
    shift: Float[Array, " fan_in"]
    scale: Float[Array, " fan_in"]

    @classmethod
    def create(cls, network: MLP | LayerNormMLP, whitening: Whitening) -> Whitened:
        return cls(network, whitening.shift, whitening.scale)

    def __call__(self, x: Float[Array, "n fan_in"]) -> Float[Array, "n fan_out"]:
        return self.network(jax.lax.stop_gradient(Whitening(self.shift, self.scale))(x))


Network = MLP | LayerNormMLP | Whitened


class Dynamics(eqx.Module):
    """A learned step: `s′ = s + net(s, a)`, in units of a typical step; where episodes can end, whether they do.

    It may also be told of the step before: how the state changed, and what was done (`past`, both in a row).
    States that are observed in part, such as positions without velocities, are hard to foresee without.

    An ended episode is a state of zeros with a last dimension of 1, and stays there. Ending is decided by the sign of a
    logit; the last dimension has the gradient of its probability (straight-through), of this step and of those before.
    """

    network: MLP
    whitening: Whitening
    step_scale: Float[Array, " obs"]
    ends: bool = eqx.field(static=True)
    history: bool = eqx.field(static=True, default=False)

    def outputs(
        self, states: Float[Array, "n obs"], actions: Float[Array, "n act"], past: Float[Array, "n past"]
    ) -> tuple[Float[Array, "n obs"], Float[Array, " n"]]:
        """The change in units of `step_scale`, and the logit of ending."""
        size = states.shape[1]
        if self.ends:  # the flag never changes in what was learned from
            states = states.at[:, -1].set(0.0)
            past = past.at[:, size - 1].set(0.0) if self.history else past
        inputs = [self.whitening(states), jnp.clip(actions, -1.0, 1.0)]
        if self.history:
            changes = Whitening(jnp.zeros(size), self.step_scale)(past[:, :size])
            inputs += [changes, jnp.clip(past[:, size:], -1.0, 1.0)]
        raw = self.network(jnp.concatenate(inputs, axis=1))
        return raw[:, :-1], raw[:, -1]

    def __call__(
        self, states: Float[Array, "n obs"], actions: Float[Array, "n act"], past: Float[Array, "n past"]
    ) -> Float[Array, "n obs"]:
        change, logit = self.outputs(states, actions, past)
        moved = states + change * self.step_scale
        if not self.ends:
            return moved
        soft, before = jax.nn.sigmoid(logit), states[:, -1]
        now = jnp.where(before > 0.5, 0.0, (logit > 0) + soft - jax.lax.stop_gradient(soft))
        ended = (before + (1 - before) * now)[:, None]
        absorbing = jnp.zeros(states.shape[1]).at[-1].set(1.0)
        return ended * absorbing + (1 - jax.lax.stop_gradient(ended)) * moved.at[:, -1].set(0.0)


def latent_state(states: Float[Array, "n obs"], encoder: Float[Array, "rows latents"]) -> Float[Array, "n latents"]:
    """`softmax(E s)`, or `softmax(E s + c)` where the encoder has one row more than states have dimensions, which is c."""
    size = states.shape[1]
    return jax.nn.softmax(states @ encoder[:size] + encoder[size:].sum(axis=0))


class LatentView(eqx.Module):
    """The latent state and the step of an observation, each one-hot."""

    encoders: Float[Array, "steps obs+1 latents"]

    @property
    def size(self) -> int:
        return self.encoders.shape[2] + self.encoders.shape[0]

    def __call__(self, observations: Float[Array, "n obs"], h: int | Int[Array, ""]) -> Float[Array, "n size"]:
        encoder = self.encoders[h]
        return self.of_latents(jnp.argmax(observations @ encoder[:-1] + encoder[-1], axis=1), h)

    def of_latents(self, latent: Int[Array, " n"], h: int | Int[Array, ""]) -> Float[Array, "n size"]:
        steps, _, latents = self.encoders.shape
        step = jnp.broadcast_to(jax.nn.one_hot(h, steps), (len(latent), steps))
        return jnp.concatenate([jax.nn.one_hot(latent, latents), step], axis=1)


class LatentQ(eqx.Module):
    """HyQ's form: `Q(s, a) = head(softmax(E s) ⊗ onehot(a))`, a small latent state times the action."""

    encoder: Float[Array, "rows latents"]
    """Of as many rows as states have dimensions, or one more (`latent_state`)."""
    head: Float[Array, "latents actions"]
    bias: Float[Array, ""]

    @classmethod
    def create(cls, key: PRNGKeyArray, observations: int, actions: int, latents: int) -> LatentQ:
        """Orthogonal, as in the authors' code: the rows of E, and a head of norm 1."""
        encoder_key, head_key = jax.random.split(key)
        orthogonal = jax.nn.initializers.orthogonal()
        head = orthogonal(head_key, (latents * actions, 1)).reshape(latents, actions)
        return cls(orthogonal(encoder_key, (observations, latents)), head, jnp.zeros(()))

    def __call__(self, states: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        return latent_state(states, self.encoder) @ self.head + self.bias


class OptimisticQ(eqx.Module):
    """LSVI-UCB on features φ(s, a) = softmax(`scale` E s) ⊗ onehot(a): `min(w·φ + bonus ‖φ‖_{Σ⁻¹}, most)`."""

    encoder: Float[Array, "obs latents"]
    scale: Float[Array, ""]
    weights: Float[Array, "actions latents"]
    inverse: Float[Array, "actions latents latents"]
    bonus: Float[Array, ""]
    most: Float[Array, ""]

    @classmethod
    def create(
        cls, key: PRNGKeyArray, observations: int, actions: int, latents: int, bonus: float, most: float
    ) -> OptimisticQ:
        encoder = jax.random.normal(key, (observations, latents)) / observations**0.5
        identity = jnp.broadcast_to(jnp.eye(latents), (actions, latents, latents))
        return cls(
            encoder, jnp.ones(()), jnp.zeros((actions, latents)), identity, jnp.asarray(bonus), jnp.asarray(float(most))
        )

    def latents(self, states: Float[Array, "n obs"]) -> Float[Array, "n latents"]:
        return jax.nn.softmax(self.scale * (states @ self.encoder))

    def fitted(
        self,
        states: Float[Array, "n obs"],
        actions: Int[Array, " n"],
        targets: Float[Array, " n"],
        known: Bool[Array, " n"],
    ) -> OptimisticQ:
        """Ridge regression (λ = 1) of the targets onto φ, over the rows that are `known`."""
        latents = self.latents(states)
        taken = jax.nn.one_hot(actions, len(self.weights)) * known[:, None]
        covariance = jnp.einsum("na,nk,nl->akl", taken, latents, latents) + jnp.eye(latents.shape[1])
        moments = jnp.einsum("na,nk,n->ak", taken, latents, targets)
        inverse = jnp.linalg.inv(covariance)
        weights = jnp.einsum("akl,al->ak", inverse, moments)
        return eqx.tree_at(lambda q: (q.weights, q.inverse), self, (weights, inverse))

    def __call__(self, states: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        latents = self.latents(states)
        width = jnp.sqrt(jnp.maximum(jnp.einsum("nk,akl,nl->na", latents, self.inverse, latents), 0.0))
        return jnp.minimum(latents @ self.weights.T + self.bonus * width, self.most)


def pick(values: Float[Array, "n actions"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
    """`values[i, actions[i]]`."""
    return jnp.take_along_axis(values, actions[:, None], axis=1)[:, 0]
