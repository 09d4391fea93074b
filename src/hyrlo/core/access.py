"""Access models: all that an algorithm may do to the world, and the ledger that counts what it did.

A *trace model* can only start episodes at the initial distribution. A *reset model* can also start from given states.
Algorithms state the one they need; sample counts are the ledger's, never an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.errors import AccessError
from hyrlo.core.policies import Actions, Policy, Step, Uniform, UniformBox

Record = int | tuple[int, ...] | Int[np.ndarray, "k n"]
"""Which steps of an episode to keep: one, several, or for each of n episodes its own k."""


@dataclass(frozen=True)
class Spec:
    """Sizes an algorithm needs to build its networks."""

    horizon: int
    observation_size: int
    actions: int
    """Number of discrete actions; 0 where an action is a vector."""
    action_size: int = 0
    """Dimensions of an action that is a vector, each from −1 to 1; 0 where actions are discrete."""
    ends: bool = False
    """Whether the last dimension of a state is 1 once the episode has ended (and 0 before)."""

    def uniform(self) -> Policy:
        """Every action with the same probability."""
        return UniformBox(self.action_size) if self.action_size else Uniform(self.actions)

    def no_actions(self, *shape: int) -> Actions:
        """Room for actions."""
        return jnp.zeros((*shape, self.action_size)) if self.action_size else jnp.zeros(shape, int)


@dataclass
class Ledger:
    """Episodes started and steps taken so far."""

    episodes: int = 0
    steps: int = 0

    def book(self, episodes: int, steps: int) -> None:
        self.episodes += episodes
        self.steps += steps


class Rollout(NamedTuple):
    """A batch of episodes: whole-episode sums, and the steps that were asked for (one, or a leading axis of several).

    `return_to_go` counts from the recorded step, `rewards` is what that step paid.
    """

    returns: Float[Array, " n"]
    success: Bool[Array, " n"] | None
    """None where the environment does not say what a success is."""
    states: Float[Array, "*k n obs"] | None = None
    actions: Int[Array, "*k n"] | Float[Array, "*k n act"] | None = None
    return_to_go: Float[Array, "*k n"] | None = None
    next_states: Float[Array, "*k n obs"] | None = None
    rewards: Float[Array, "*k n"] | None = None
    ended: Bool[Array, "*k n"] | None = None
    """Whether the episode was over after the step; None where episodes never end before the horizon."""


@runtime_checkable
class TraceModel(Protocol):
    """Episodes from the initial distribution, and nothing else."""

    ledger: Ledger

    @property
    def spec(self) -> Spec: ...

    def rollout(
        self,
        key: PRNGKeyArray,
        policy: Policy,
        episodes: int,
        *,
        record: Record = (),
        next_states: bool = False,
        stop: int | None = None,
    ) -> Rollout:
        """Play `episodes` up to step `stop` (the horizon); keep only the steps in `record`, `next_states` if asked."""
        ...

    def evaluation(self) -> TraceModel:
        """The same world with trace access and a ledger of its own, so that evaluation is counted apart."""
        ...


@runtime_checkable
class ResetModel(TraceModel, Protocol):
    """A trace model that can also start from given states."""

    def rollout_from(
        self, key: PRNGKeyArray, observations: Float[Array, "n obs"], policy: Policy, *, at: int
    ) -> Rollout:
        """Reset to `observations` at step `at`, play to the end and record the first step."""
        ...


def require_reset(model: TraceModel, algorithm: str) -> ResetModel:
    """The model as a reset model, or an error that says what to use instead."""
    if not isinstance(model, ResetModel):
        raise AccessError(
            f"{algorithm} needs a reset model but was given a trace model; "
            "use an environment that can be reset to given states, or an algorithm with trace access such as foobar"
        )
    return model


class JaxEnvironment(Protocol):
    """A batched environment in JAX. `h` is traced. `latent` is the simulator's own state: no algorithm sees it."""

    @property
    def spec(self) -> Spec: ...

    def initial(self, key: PRNGKeyArray, n: int) -> Any: ...

    def observe(self, key: PRNGKeyArray, latent: Any, h: Step) -> Float[Array, "n obs"]: ...

    def step(
        self, key: PRNGKeyArray, latent: Any, actions: Actions, h: Step
    ) -> tuple[Any, Float[Array, " n"], Bool[Array, " n"]]:
        """Next latent state, reward, and whether the episode counts as a success."""
        ...


class _Episodes(NamedTuple):
    """A batch of episodes under way, with what was seen, done and earned before in the last step."""

    latent: Any
    returns: Float[Array, " n"]
    success: Bool[Array, " n"]
    observations: Float[Array, "n obs"]
    actions: Actions
    earned: Float[Array, " n"]


class _Player:
    """Plays one batch of episodes. Every random draw is a function of (key, step), so an observation can be made again."""

    def __init__(self, env: JaxEnvironment, policy: Policy, key: PRNGKeyArray):
        self.env, self.policy = env, policy
        self.start_key, self.observe_key, self.act_key, self.step_key = jax.random.split(key, 4)

    def start(self, latent: Any, n: int) -> _Episodes:
        nothing = jnp.zeros(n)
        observations = jnp.zeros((n, self.env.spec.observation_size))
        return _Episodes(latent, nothing, nothing.astype(bool), observations, self.env.spec.no_actions(n), nothing)

    def observe(self, latent: Any, h: Step) -> Float[Array, "n obs"]:
        return self.env.observe(jax.random.fold_in(self.observe_key, h), latent, h)

    def step(self, episodes: _Episodes, observations: Float[Array, "n obs"], h: Step) -> _Episodes:
        actions = self.policy.act(jax.random.fold_in(self.act_key, h), observations, h)
        latent, rewards, success = self.env.step(jax.random.fold_in(self.step_key, h), episodes.latent, actions, h)
        earned = episodes.returns
        return _Episodes(latent, earned + rewards, episodes.success | success, observations, actions, earned)

    def play(self, episodes: _Episodes, start: Step, stop: Step) -> _Episodes:
        return jax.lax.fori_loop(start, stop, lambda h, e: self.step(e, self.observe(e.latent, h), h), episodes)


@eqx.filter_jit
def _rollout(
    env: JaxEnvironment,
    key: PRNGKeyArray,
    policy: Policy,
    n: int,
    record: Int[Array, " k"],
    next_states: bool,
    stop: Int[Array, ""],
) -> Rollout:
    player = _Player(env, policy, key)

    def play_until(carry: tuple[Array, _Episodes], end: Array) -> tuple[tuple[Array, _Episodes], Any]:
        begin, episodes = carry
        episodes = player.play(episodes, begin, end)
        following = player.observe(episodes.latent, end) if next_states else None
        reward = episodes.returns - episodes.earned
        return (end, episodes), (episodes.observations, episodes.actions, episodes.earned, following, reward)

    # Play up to and including each recorded step; what the last step saw and did is then at hand.
    ends = jnp.concatenate([record + 1, stop[None]]) if record.size else stop[None]
    start = (jnp.zeros_like(stop), player.start(env.initial(player.start_key, n), n))
    (_, end), recorded = jax.lax.scan(play_until, start, ends)
    if not record.size:
        return Rollout(end.returns, end.success)
    states, actions, earned, following, rewards = jax.tree.map(lambda x: x[:-1], recorded)
    return Rollout(end.returns, end.success, states, actions, end.returns - earned, following, rewards)


class _Kept(NamedTuple):
    """The recorded steps of episodes under way."""

    states: Float[Array, "k n obs"]
    actions: Actions
    earned: Float[Array, "k n"]
    rewards: Float[Array, "k n"]
    next_states: Float[Array, "k n obs"]


@eqx.filter_jit
def _rollout_own(
    env: JaxEnvironment,
    key: PRNGKeyArray,
    policy: Policy,
    record: Int[Array, "k n"],
    next_states: bool,
    stop: Int[Array, ""],
) -> Rollout:
    """As `_rollout`, but every episode has steps of its own to record."""
    player, n = _Player(env, policy, key), record.shape[1]
    start = player.start(env.initial(player.start_key, n), n)
    nothing = jnp.zeros(record.shape)
    blank = jnp.zeros((*record.shape, env.spec.observation_size))
    empty = _Kept(blank, env.spec.no_actions(*record.shape), nothing, nothing, blank)

    def step(h: Array, carry: tuple[_Episodes, _Kept]) -> tuple[_Episodes, _Kept]:
        episodes, kept = carry
        observations = player.observe(episodes.latent, h)
        episodes = player.step(episodes, observations, h)
        now = record == h
        return episodes, _Kept(
            jnp.where(now[..., None], observations, kept.states),
            jnp.where(now[..., None] if env.spec.action_size else now, episodes.actions, kept.actions),
            jnp.where(now, episodes.earned, kept.earned),
            jnp.where(now, episodes.returns - episodes.earned, kept.rewards),
            _next_of(record, h, observations, kept.next_states) if next_states else kept.next_states,
        )

    end, kept = jax.lax.fori_loop(0, stop, step, (start, empty))
    following = _next_of(record, stop, player.observe(end.latent, stop), kept.next_states) if next_states else None
    to_go = end.returns - kept.earned
    return Rollout(end.returns, end.success, kept.states, kept.actions, to_go, following, kept.rewards)


def _next_of(record: Int[Array, "k n"], h: Step, observations: Array, kept: Array) -> Array:
    """Keep the observations of step h where the step before it is recorded."""
    return jnp.where((record + 1 == h)[..., None], observations, kept)


@eqx.filter_jit
def _rollout_from(
    env: Any, key: PRNGKeyArray, policy: Policy, observations: Float[Array, "n obs"], at: Int[Array, ""]
) -> Rollout:
    player = _Player(env, policy, key)
    episodes = player.start(env.decode(observations), len(observations))
    first = player.step(episodes, observations, at)
    end = player.play(first, at + 1, env.spec.horizon)
    return Rollout(end.returns, end.success, observations, first.actions, end.returns, rewards=first.returns)


@dataclass
class JaxTraceModel:
    """Trace access to a JAX environment: whole batches of episodes under one `jit`, whatever the step."""

    env: JaxEnvironment
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def rollout(
        self,
        key: PRNGKeyArray,
        policy: Policy,
        episodes: int,
        *,
        record: Record = (),
        next_states: bool = False,
        stop: int | None = None,
    ) -> Rollout:
        stop = self.spec.horizon if stop is None else stop
        if isinstance(record, np.ndarray):
            if record.shape[1] != episodes or record.min() < 0 or record.max() >= stop:
                raise ValueError(
                    f"record has shape {record.shape}; give {episodes} episodes steps from 0 to before {stop}"
                )
            self.ledger.book(episodes, episodes * stop)
            steps_of_each = jnp.asarray(record, jnp.int32)
            return _rollout_own(self.env, key, policy, steps_of_each, next_states, jnp.asarray(stop, jnp.int32))
        several = isinstance(record, tuple)
        steps = record if isinstance(record, tuple) else (int(record),)
        if list(steps) != sorted(set(steps)) or any(not 0 <= h < stop for h in steps):
            raise ValueError(f"record is {record}; give steps in increasing order, from 0 to before stop = {stop}")
        self.ledger.book(episodes, episodes * stop)
        batch = _rollout(
            self.env, key, policy, episodes, jnp.asarray(steps, jnp.int32), next_states, jnp.asarray(stop, jnp.int32)
        )
        if not several:
            return Rollout(batch.returns, batch.success, *(None if x is None else x[0] for x in batch[2:]))
        return batch

    def evaluation(self) -> JaxTraceModel:
        return JaxTraceModel(self.env)


@dataclass
class JaxResetModel(JaxTraceModel):
    """Reset access to a JAX environment that can `decode` an observation into its latent state."""

    def rollout_from(
        self, key: PRNGKeyArray, observations: Float[Array, "n obs"], policy: Policy, *, at: int
    ) -> Rollout:
        n = len(observations)
        self.ledger.book(n, n * (self.spec.horizon - at))
        return _rollout_from(self.env, key, policy, observations, jnp.asarray(at, jnp.int32))


class Evaluation(NamedTuple):
    """Mean return and success rate of a policy; `success_rate` is None where success is not defined."""

    return_mean: float
    success_rate: float | None
    episodes: int


def evaluate(model: TraceModel, policy: Policy, key: PRNGKeyArray, episodes: int) -> Evaluation:
    """Play `episodes` with a ledger of their own."""
    batch = model.evaluation().rollout(key, policy, episodes)
    success = None if batch.success is None else float(batch.success.mean())
    return Evaluation(float(batch.returns.mean()), success, episodes)
