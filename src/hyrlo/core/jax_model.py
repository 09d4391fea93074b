"""Access models over environments in JAX: whole batches of episodes under one `jit`, compiled once for all steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.access import Ledger, Recorded, Rollout, Spec, Steps, checked_steps
from hyrlo.core.policies import Actions, Policy, Step


class JaxEnvironment(Protocol):
    """A batched environment in JAX. `h` is traced. `latent` is the simulator's own state; no algorithm sees it."""

    @property
    def spec(self) -> Spec: ...

    def initial(self, key: PRNGKeyArray, n: int) -> Any: ...

    def observe(self, key: PRNGKeyArray, latent: Any, h: Step) -> Float[Array, "n obs"]: ...

    def step(
        self, key: PRNGKeyArray, latent: Any, actions: Actions, h: Step
    ) -> tuple[Any, Float[Array, " n"], Bool[Array, " n"]]:
        """Next latent state, reward, and whether the episode counts as a success."""
        ...


class Episodes(NamedTuple):
    """A batch of episodes in progress, and the last step they took."""

    latent: Any
    observations: Float[Array, "n obs"]
    """Of the current step."""
    returns: Float[Array, " n"]
    success: Bool[Array, " n"]
    last_observations: Float[Array, "n obs"]
    last_actions: Actions
    last_returns: Float[Array, " n"]
    """Sum of the rewards before the last step."""


class Player:
    """Plays one batch of episodes. Every random draw is a function of (key, step)."""

    def __init__(self, env: JaxEnvironment, policy: Policy, key: PRNGKeyArray):
        self.env, self.policy = env, policy
        self.start_key, self.observe_key, self.act_key, self.step_key = jax.random.split(key, 4)

    def start(self, n: int) -> Episodes:
        latent = self.env.initial(self.start_key, n)
        return self.start_from(latent, self.observe(latent, 0))

    def start_from(self, latent: Any, observations: Float[Array, "n obs"]) -> Episodes:
        nothing, actions = jnp.zeros(len(observations)), self.env.spec.no_actions(len(observations))
        return Episodes(latent, observations, nothing, nothing.astype(bool), observations, actions, nothing)

    def observe(self, latent: Any, h: Step) -> Float[Array, "n obs"]:
        return self.env.observe(jax.random.fold_in(self.observe_key, h), latent, h)

    def step(self, episodes: Episodes, h: Step) -> Episodes:
        observations, returns = episodes.observations, episodes.returns
        actions = self.policy.act(jax.random.fold_in(self.act_key, h), observations, h)
        latent, rewards, success = self.env.step(jax.random.fold_in(self.step_key, h), episodes.latent, actions, h)
        success = episodes.success | success
        following = self.observe(latent, h + 1)
        return Episodes(latent, following, returns + rewards, success, observations, actions, returns)

    def play(self, episodes: Episodes, start: Step, stop: Step) -> Episodes:
        return jax.lax.fori_loop(start, stop, lambda h, e: self.step(e, h), episodes)


class Kept(NamedTuple):
    """Recorded steps of episodes in progress."""

    states: Float[Array, "*k n obs"]
    actions: Actions
    rewards: Float[Array, "*k n"]
    earned: Float[Array, "*k n"]
    """Sum of the rewards before the step."""
    next_states: Float[Array, "*k n obs"]

    @classmethod
    def last_step(cls, episodes: Episodes) -> Kept:
        rewards = episodes.returns - episodes.last_returns
        return cls(
            episodes.last_observations, episodes.last_actions, rewards, episodes.last_returns, episodes.observations
        )

    def recorded(self, end: Episodes) -> Recorded:
        states, actions, rewards, earned, next_states = self
        ended = jnp.zeros(rewards.shape, bool)
        return Recorded(end.returns, end.success, states, actions, rewards, end.returns - earned, next_states, ended)


@eqx.filter_jit
def _rollout(env: JaxEnvironment, key: PRNGKeyArray, policy: Policy, n: int, stop: Int[Array, ""]) -> Rollout:
    player = Player(env, policy, key)
    end = player.play(player.start(n), 0, stop)
    return Rollout(end.returns, end.success)


@eqx.filter_jit
def _record(
    env: JaxEnvironment,
    key: PRNGKeyArray,
    policy: Policy,
    n: int,
    steps: Int[Array, " k"],
    stop: Int[Array, ""],
    only_one: bool,
) -> Recorded:
    """Play up to and including each of the `steps`, keep what the last step saw and did, and play on to `stop`."""
    player = Player(env, policy, key)

    def play_until(carry: tuple[Array, Episodes], end: Array) -> tuple[tuple[Array, Episodes], Kept]:
        episodes = player.play(carry[1], carry[0], end)
        return (end, episodes), Kept.last_step(episodes)

    (begin, episodes), kept = jax.lax.scan(play_until, (jnp.zeros_like(stop), player.start(n)), steps + 1)
    if only_one:
        kept = jax.tree.map(lambda x: x[0], kept)
    return kept.recorded(player.play(episodes, begin, stop))


@eqx.filter_jit
def _record_own(
    env: JaxEnvironment, key: PRNGKeyArray, policy: Policy, steps: Int[Array, "k n"], stop: Int[Array, ""]
) -> Recorded:
    """As `_record`, with steps of its own for every episode."""
    player = Player(env, policy, key)
    nothing, blank = jnp.zeros(steps.shape), jnp.zeros((*steps.shape, env.spec.observation_size))
    empty = Kept(blank, env.spec.no_actions(*steps.shape), nothing, nothing, blank)

    def step(h: Array, carry: tuple[Episodes, Kept]) -> tuple[Episodes, Kept]:
        episodes = player.step(carry[0], h)

        def keep(old: Array, new: Array) -> Array:
            now = (steps == h).reshape(*steps.shape, *[1] * (old.ndim - 2))
            return jnp.where(now, new, old)

        return episodes, jax.tree.map(keep, carry[1], Kept.last_step(episodes))

    end, kept = jax.lax.fori_loop(0, stop, step, (player.start(steps.shape[1]), empty))
    return kept.recorded(end)


@eqx.filter_jit
def _rollout_from(
    env: Any, key: PRNGKeyArray, policy: Policy, observations: Float[Array, "n obs"], at: Int[Array, ""]
) -> Recorded:
    player = Player(env, policy, key)
    first = player.step(player.start_from(env.decode(observations), observations), at)
    return Kept.last_step(first).recorded(player.play(first, at + 1, env.spec.horizon))


@dataclass
class JaxTraceModel:
    """Trace access to a JAX environment."""

    env: JaxEnvironment
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def rollout(self, key: PRNGKeyArray, policy: Policy, episodes: int, *, stop: int | None = None) -> Rollout:
        stop = self.spec.horizon if stop is None else stop
        self.ledger.book(episodes, episodes * stop)
        return _rollout(self.env, key, policy, episodes, jnp.asarray(stop, jnp.int32))

    def record(
        self, key: PRNGKeyArray, policy: Policy, episodes: int, steps: Steps, *, stop: int | None = None
    ) -> Recorded:
        stop = self.spec.horizon if stop is None else stop
        wanted = jnp.asarray(checked_steps(steps, episodes, stop), jnp.int32)
        self.ledger.book(episodes, episodes * stop)
        end = jnp.asarray(stop, jnp.int32)
        if wanted.ndim == 2:
            return _record_own(self.env, key, policy, wanted, end)
        return _record(self.env, key, policy, episodes, wanted, end, not isinstance(steps, tuple))

    def evaluation(self) -> JaxTraceModel:
        return JaxTraceModel(self.env)


@dataclass
class JaxResetModel(JaxTraceModel):
    """Reset access to a JAX environment that can `decode` an observation into its latent state."""

    def rollout_from(
        self, key: PRNGKeyArray, observations: Float[Array, "n obs"], policy: Policy, *, at: int
    ) -> Recorded:
        n = len(observations)
        self.ledger.book(n, n * (self.spec.horizon - at))
        return _rollout_from(self.env, key, policy, observations, jnp.asarray(at, jnp.int32))
