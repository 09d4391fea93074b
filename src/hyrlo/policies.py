"""Policies: one step's policy, a stack of H of them, uniform, and the switch `π ∘_h π′`.

A policy acts on a batch of observations at a step `h`, which may be traced: one compiled roll-out serves every `h`.
"""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.networks import MLP

Step = int | Int[Array, ""]


class Policy(eqx.Module):
    """What a roll-out needs: actions for a batch of observations at step `h`."""

    @abstractmethod
    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Int[Array, " n"]:
        raise NotImplementedError


class Uniform(Policy):
    """Every action with the same probability."""

    actions: int = eqx.field(static=True)

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Int[Array, " n"]:
        return jax.random.randint(key, observations.shape[:1], 0, self.actions)


class Softmax(Policy):
    """A categorical policy whose logits are a network's output."""

    network: MLP

    def logits(self, observations: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        return self.network(observations)

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Int[Array, " n"]:
        return jax.random.categorical(key, self.logits(observations))


class LatentSoftmax(Policy):
    """A categorical policy of a small soft latent state: logits are linear in `softmax(E s)`."""

    encoder: Float[Array, "obs latents"]
    table: MLP

    def logits(self, observations: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        return self.table(jax.nn.softmax(observations @ self.encoder))

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Int[Array, " n"]:
        return jax.random.categorical(key, self.logits(observations))


class Greedy(Policy):
    """`argmax_a Q(s, a)`."""

    q: eqx.Module

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Int[Array, " n"]:
        return jnp.argmax(self.q(observations), axis=1)  # type: ignore[operator]


class Stack(Policy):
    """H one-step policies as one pytree with a leading axis of length H: `π_0 … π_{H-1}`."""

    steps: Policy

    @classmethod
    def repeat(cls, policy: Policy, horizon: int) -> Stack:
        return cls(jax.tree.map(lambda x: jnp.repeat(x[None], horizon, axis=0), policy))

    def __getitem__(self, h: Step) -> Policy:
        return jax.tree.map(lambda x: x[h], self.steps)

    def with_step(self, h: Step, policy: Policy) -> Stack:
        return _set_step(self, jnp.asarray(h), policy)

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Int[Array, " n"]:
        return self[h].act(key, observations, h)


@eqx.filter_jit
def _set_step(stack: Stack, h: Int[Array, ""], policy: Policy) -> Stack:
    return Stack(jax.tree.map(lambda all_steps, one: all_steps.at[h].set(one), stack.steps, policy))


class Switch(Policy):
    """`π ∘_h π′`: `first` before step `at`, `then` from it on."""

    first: Policy
    then: Policy
    at: Int[Array, ""]

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Int[Array, " n"]:
        return jax.lax.cond(
            h < self.at,
            lambda: self.first.act(key, observations, h),
            lambda: self.then.act(key, observations, h),
        )


def switch(first: Policy, *, at: Step, to: Policy) -> Switch:
    """`first ∘_at to`. `at` is traced, so switching at another step compiles nothing new."""
    return Switch(first, to, jnp.asarray(at))
