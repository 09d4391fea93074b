"""The few function classes the paper uses, as batched Equinox modules."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


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


def pick(values: Float[Array, "n actions"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
    """`values[i, actions[i]]`."""
    return jnp.take_along_axis(values, actions[:, None], axis=1)[:, 0]
