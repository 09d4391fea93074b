"""The few function classes the paper uses, as batched Equinox modules."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


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


class Whitened(eqx.Module):
    """A network of `(x − shift) / scale`, clipped: far from what `shift` and `scale` were taken from, inputs stay sane."""

    network: MLP
    shift: Float[Array, " fan_in"]
    scale: Float[Array, " fan_in"]

    def __call__(self, x: Float[Array, "n fan_in"]) -> Float[Array, "n fan_out"]:
        return self.network(jnp.clip((x - self.shift) / self.scale, -8.0, 8.0))


class LatentQ(eqx.Module):
    """HyQ's form: `Q(s, a) = head(softmax(E s) ⊗ onehot(a))`, a small latent state times the action."""

    encoder: Float[Array, "obs latents"]
    head: Float[Array, "latents actions"]
    bias: Float[Array, ""]

    @classmethod
    def create(cls, key: PRNGKeyArray, observations: int, actions: int, latents: int) -> LatentQ:
        encoder_key, head_key = jax.random.split(key)
        return cls(
            jax.random.normal(encoder_key, (observations, latents)) / observations**0.5,
            jax.random.normal(head_key, (latents, actions)) / (latents * actions) ** 0.5,
            jnp.zeros(()),
        )

    def __call__(self, states: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        return jax.nn.softmax(states @ self.encoder) @ self.head + self.bias


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
