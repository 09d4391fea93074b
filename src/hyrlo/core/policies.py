"""Policies: one step's policy, a stack of H of them, uniform, and the switch `π ∘_h π′`.

A policy acts on a batch of observations at a step `h`, which may be traced: one compiled roll-out serves every `h`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.networks import LatentView, Network, latent_state, pick

Step = int | Int[Array, ""]
Actions = Int[Array, " n"] | Float[Array, "n act"]
"""Discrete actions, or vectors whose entries are from −1 to 1."""


class Policy(eqx.Module):
    """What a roll-out needs: actions for a batch of observations at step `h`."""

    @abstractmethod
    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        raise NotImplementedError

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        """The most likely actions, without chance. A policy that does not say which they are draws with a fixed key."""
        return self.act(jax.random.key(0), observations, h)

    def rows(self, start: int, n: int) -> Policy:
        """The policy of `n` episodes of a batch from number `start` on, for worlds that play a batch in parts."""
        return self


class Uniform(Policy):
    """Every action with the same probability."""

    actions: int = eqx.field(static=True)

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jax.random.randint(key, observations.shape[:1], 0, self.actions)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.zeros(observations.shape[:1], int)


class UniformBox(Policy):
    """Every action vector with the same density."""

    size: int = eqx.field(static=True)

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jax.random.uniform(key, (len(observations), self.size), minval=-1.0, maxval=1.0)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.zeros((len(observations), self.size))


class Gaussian(Policy):
    """A diagonal Gaussian around a network's squashed output; the noise is the same in every state.

    Actions outside of [−1, 1] are clipped by the environment, so that the density here is exact.
    """

    network: Network
    log_std: Float[Array, " act"]
    noise: bool = eqx.field(static=True, default=True)

    def mean(self, observations: Float[Array, "n obs"]) -> Float[Array, "n act"]:
        return jnp.tanh(self.network(observations))

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        mean = self.mean(observations)
        return mean + self.noise * jnp.exp(self.log_std) * jax.random.normal(key, mean.shape)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self.mean(observations)

    def log_density(self, observations: Float[Array, "n obs"], actions: Float[Array, "n act"]) -> Float[Array, " n"]:
        return jax.scipy.stats.norm.logpdf(actions, self.mean(observations), jnp.exp(self.log_std)).sum(axis=1)


MOST_SQUASHED = 0.97
"""Actions beyond have no density worth fitting: a clipped action says only that it is large."""


class SquashedGaussian(Policy):
    """SAC's actor: `tanh(mean + noise · std · ε)`, mean and std a network's output; without noise, its mean action."""

    network: Network
    noise: bool = eqx.field(static=True, default=True)

    def sample(
        self, key: PRNGKeyArray, observations: Float[Array, "n obs"]
    ) -> tuple[Float[Array, "n act"], Float[Array, " n"]]:
        """Actions, and their log-density."""
        mean, std = self.mean_and_std(observations)
        raw = mean + self.noise * std * jax.random.normal(key, mean.shape)
        return jnp.tanh(raw), squashed_log_density(raw, mean, std)

    def log_density(self, observations: Float[Array, "n obs"], actions: Float[Array, "n act"]) -> Float[Array, " n"]:
        """Of given actions; those at the bounds count as close to them."""
        raw = jnp.arctanh(jnp.clip(actions, -MOST_SQUASHED, MOST_SQUASHED))
        return squashed_log_density(raw, *self.mean_and_std(observations))

    def mean_and_std(self, observations: Float[Array, "n obs"]) -> tuple[Float[Array, "n act"], Float[Array, "n act"]]:
        """Before the tanh."""
        mean, log_std = jnp.split(self.network(observations), 2, axis=1)
        return mean, jnp.exp(jnp.clip(log_std - 1.0, -6.0, 1.0))

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self.sample(key, observations)[0]

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.tanh(self.mean_and_std(observations)[0])


def squashed_log_density(raw: Array, mean: Array, std: Array) -> Float[Array, " n"]:
    """Of `tanh(raw)`, where `raw` is normal."""
    squeeze = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))  # log of tanh's derivative, without overflow
    return (jax.scipy.stats.norm.logpdf(raw, mean, std) - squeeze).sum(axis=1)


class Softmax(Policy):
    """A categorical policy whose logits are a network's output."""

    network: Network

    def logits(self, observations: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        return self.network(observations)

    def log_density(self, observations: Float[Array, "n obs"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return pick(jax.nn.log_softmax(self.logits(observations)), actions)

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jax.random.categorical(key, self.logits(observations))

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.argmax(self.logits(observations), axis=1)


class LatentSoftmax(Policy):
    """A categorical policy of a small soft latent state: logits are linear in `softmax(E s + c)`."""

    encoder: Float[Array, "obs+1 latents"]
    table: Network

    def logits(self, observations: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        return self.table(latent_state(observations, self.encoder))

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jax.random.categorical(key, self.logits(observations))

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.argmax(self.logits(observations), axis=1)


class LatentTable(Policy):
    """Action probabilities for each latent state: `softmax(E s + c)` times a table."""

    encoder: Float[Array, "obs+1 latents"]
    table: Float[Array, "latents actions"]

    def probabilities(self, observations: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        return latent_state(observations, self.encoder) @ self.table

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jax.random.categorical(key, jnp.log(self.probabilities(observations)))

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.argmax(self.probabilities(observations), axis=1)


class ThroughView(Policy):
    """A policy of latent states, given observations."""

    policy: Policy
    view: LatentView

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self.policy.act(key, self.view(observations, h), h)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self.policy.mode(self.view(observations, h), h)


class Greedy(Policy):
    """`argmax_a Q(s, a)`."""

    q: eqx.Module

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self.mode(observations, h)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.argmax(self.q(observations), axis=1)  # type: ignore[operator]


class Blend(Policy):
    """CPI's `(1 − α) π + α π′`, again and again: each action is drawn anew from greedy policies; the rest is uniform."""

    greedy: Greedy
    """Stacked along a first axis."""
    shares: Float[Array, " k"]
    actions: int = eqx.field(static=True)

    def probabilities(self, observations: Float[Array, "n obs"]) -> Float[Array, "n actions"]:
        chosen = jax.vmap(lambda g: jnp.argmax(g.q(observations), axis=1))(self.greedy)
        uniform = jnp.maximum(1 - self.shares.sum(), 0.0) / self.actions
        return jnp.einsum("k,kna->na", self.shares, jax.nn.one_hot(chosen, self.actions)) + uniform

    def towards(self, greedy: Greedy, alpha: float, place: int) -> Blend:
        """`(1 − α) π + α π′`; π′ is kept at a place not yet used."""
        kept = jax.tree.map(lambda many, one: many.at[place].set(one), self.greedy, greedy)
        return Blend(kept, ((1 - alpha) * self.shares).at[place].set(alpha), self.actions)

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jax.random.categorical(key, jnp.log(self.probabilities(observations)))

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return jnp.argmax(self.probabilities(observations), axis=1)


class Stack(Policy):
    """H one-step policies as one pytree with a leading axis of length H: `π_0 … π_{H-1}`; each may serve several steps."""

    steps: Policy
    every: int = eqx.field(static=True, default=1)
    """How many consecutive steps share a policy; the leading axis is then as much shorter."""

    @classmethod
    def repeat(cls, policy: Policy, horizon: int, every: int = 1) -> Stack:
        return cls(jax.tree.map(lambda x: jnp.repeat(x[None], -(-horizon // every), axis=0), policy), every)

    def __getitem__(self, h: Step) -> Policy:
        return jax.tree.map(lambda x: x[h // self.every], self.steps)

    def with_step(self, h: Step, policy: Policy) -> Stack:
        return _set_step(self, jnp.asarray(h), policy)

    def block(self, h: Step, n: int) -> Policy:
        """The n policies from step h on, with a leading axis; past the end the last one is repeated."""
        at = h // self.every + jnp.arange(n)
        return jax.tree.map(lambda x: x.at[at].get(mode="clip"), self.steps)

    def with_block(self, h: Step, policies: Policy) -> Stack:
        """Replace the policies from step h on, which have a leading axis; those past the end are dropped."""
        set_block = lambda x, new: x.at[h // self.every + jnp.arange(len(new))].set(new, mode="drop")  # noqa: E731
        return Stack(jax.tree.map(set_block, self.steps, policies), self.every)

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self[h].act(key, observations, h)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self[h].mode(observations, h)


@eqx.filter_jit
def _set_step(stack: Stack, h: Int[Array, ""], policy: Policy) -> Stack:
    set_one = lambda all_steps, one: all_steps.at[h // stack.every].set(one)  # noqa: E731
    return Stack(jax.tree.map(set_one, stack.steps, policy), stack.every)


def _where(rows: Bool[Array, " n"], first: Actions, second: Actions) -> Actions:
    return jnp.where(rows.reshape(-1, *[1] * (first.ndim - 1)), first, second)


class Switch(Policy):
    """`π ∘_h π′`: `first` before step `at`, `then` from it on. Each episode of a batch may have an `at` of its own."""

    first: Policy
    then: Policy
    at: Int[Array, "*n"]

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self._choose(lambda policy: policy.act(key, observations, h), h)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self._choose(lambda policy: policy.mode(observations, h), h)

    def _choose(self, actions: Callable[[Policy], Actions], h: Step) -> Actions:
        if self.at.ndim:
            return _where(h < self.at, actions(self.first), actions(self.then))
        return jax.lax.cond(h < self.at, lambda: actions(self.first), lambda: actions(self.then))

    def rows(self, start: int, n: int) -> Policy:
        at = self.at
        if at.ndim:  # past the end of the batch nobody looks: any value does
            at = jnp.asarray(np.take(at, np.arange(start, start + n), mode="clip"))
        return Switch(self.first.rows(start, n), self.then.rows(start, n), at)


class Mixture(Policy):
    """A share of the episodes follows `second`, the others `first`.

    The rows of a batch are episodes and keep their policy. The two are spread evenly over the batch, so that any part of
    it, such as held-out rows, has its share of both.
    """

    first: Policy
    second: Policy
    share: Float[Array, ""]

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        first, second = self.first.act(key, observations, h), self.second.act(key, observations, h)
        return _where(self._seconds(jnp.arange(len(observations))), second, first)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        """Of the policy with the larger share."""
        first, second = self.first.mode(observations, h), self.second.mode(observations, h)
        return jnp.where(self.share > 0.5, second, first)

    def rows(self, start: int, n: int) -> Policy:
        never = np.iinfo(np.int32).max
        at = jnp.where(self._seconds(jnp.arange(start, start + n)), 0, never)
        return Switch(self.first.rows(start, n), self.second.rows(start, n), at)

    def _seconds(self, numbers: Int[Array, " n"]) -> Bool[Array, " n"]:
        """Which episodes follow `second`."""
        spread = (numbers * 40503) % 65536  # multiples of the golden ratio, modulo one
        return spread < self.share * 65536


class MostLikely(Policy):
    """The most likely actions of a policy."""

    policy: Policy

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self.mode(observations, h)

    def mode(self, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return self.policy.mode(observations, h)

    def rows(self, start: int, n: int) -> Policy:
        return MostLikely(self.policy.rows(start, n))


def switch(first: Policy, *, at: Step | Int[Array, " n"] | Int[np.ndarray, " n"], to: Policy) -> Switch:
    """`first ∘_at to`. `at` is traced, so switching at another step compiles nothing new."""
    return Switch(first, to, jnp.asarray(at))


def action_of(policy: Policy, size: int) -> jax.ShapeDtypeStruct | None:
    """What the policy makes of one state of `size` numbers, without computing it; None if they do not fit."""
    try:
        return jax.eval_shape(policy.rows(0, 1).act, jax.random.key(0), np.zeros((1, size), np.float32), np.int32(0))
    except Exception:  # whatever a policy of a damaged file does with arrays of other shapes
        return None


def known_steps(policy: Policy) -> int | None:
    """For how many steps there is a policy, as far as stacks in it say."""
    is_stack = lambda x: isinstance(x, Stack)  # noqa: E731
    stacks = filter(is_stack, jax.tree.leaves(policy, is_leaf=is_stack))
    return min((s.every * len(x) for s in stacks for x in jax.tree.leaves(s.steps)[:1]), default=None)


STATIONARY = (Uniform, UniformBox, Gaussian, SquashedGaussian, Softmax, LatentSoftmax, LatentTable, Greedy, Blend)


def is_stationary(policy: Policy) -> bool:
    """Whether it is known to be the same at every step."""
    if isinstance(policy, Mixture):
        return is_stationary(policy.first) and is_stationary(policy.second)
    return type(policy) in STATIONARY
