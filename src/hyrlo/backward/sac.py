"""SAC (Haarnoja et al. 2018): one stationary policy for every step of an episode. `off_policy.py` collects what it learns from.

Critics and actor, for action vectors and (with expectations in place of samples) for discrete actions:

    y = r + γ min_i Q̄_i(s′, a′),      min_Q ( Q_i(s, a) − y )²,      max_π E[ min_i Q_i(s, a) − α log π(a|s) ]

The entropy is in the actor's objective only. `entropy_in_backup` also puts it into the target, as in the original:
y = r + γ (min_i Q̄_i(s′, a′) − α log π(a′|s′)).

Episodes that end have y = r. The end of the horizon is a time limit, not an end, unless `ends_at_horizon`. Rewards are in
units of the returns seen (reward_units.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.backward.race import race_episodes
from hyrlo.backward.reward_units import RewardUnits
from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.networks import LayerNormMLP, Whitened, pick
from hyrlo.core.policies import Greedy, Policy, Softmax, SquashedGaussian
from hyrlo.core.ranges import (
    Count,
    CountOrZero,
    Finite,
    NonNegative,
    Options,
    Positive,
    PositiveShare,
    Share,
    ShareBelowOne,
)
from hyrlo.core.replay import ReplayBuffer
from hyrlo.core.whitening import Whitening


@dataclass(frozen=True)
class SacConfig(Options):
    """Soft actor-critic that collects several episodes at once."""

    expert: ClassVar[tuple[str, ...]] = (
        "random_collections", "batch", "layers", "layer_norm", "num_qs", "num_min_qs", "actor_value", "actor_every",
        "last_learning_rate", "tau", "temperature", "entropy_in_backup", "average", "ends_at_horizon", "replay",
        "raw_rewards", "keep", "check", "temperature_rate", "from_start_ahead", "without_noise", "clone",
    )  # fmt: skip
    steps: CountOrZero = 0
    """Environment steps, without the last check (default: 5,000 for each of the first 100 steps of the horizon)."""
    iterations: Count = 40
    """Points of the curve, each with an evaluation and a checkpoint."""
    episodes: Count = 32
    """Episodes at a time, followed by updates."""
    random_collections: Count = 2
    """Collections with uniform actions (after the switch) before the first update."""
    utd: Positive = 0.5
    """Updates per collected transition."""
    batch: Count = 256
    """Transitions per update."""
    hidden: Count = 128
    """Width of the hidden layers of actor and critics."""
    layers: Count = 2
    """Number of hidden layers."""
    layer_norm: bool = True
    """Normalise the critics' hidden layers; without it, values can diverge."""
    num_qs: Count = 2
    """Number of critics."""
    num_min_qs: CountOrZero = 0
    """The target is the minimum over this many critics, drawn anew for each update; 0 takes all."""
    actor_value: Literal["min", "mean"] = "min"
    """Which value of the critics the actor maximises."""
    actor_every: Count = 2
    """Updates of the critics per update of actor and temperature."""
    gamma: Share | None = None
    """Discount (default: 1 − 1/H for horizons H from 50 to 100, 0.98 below and 0.99 above)."""
    learning_rate: Positive = 3e-4
    """Initial learning rate of actor, critics and temperature (Adam)."""
    last_learning_rate: Share = 0.1
    """Share of the learning rate that is left in the last iteration; it falls linearly."""
    tau: PositiveShare = 0.005
    """Step size of the target critics towards the critics, per update."""
    entropy: Finite | None = None
    """Target entropy: per dimension of an action vector (default −1), or as a share of log A for A actions (default 0.2)."""
    temperature: Positive = 0.02
    """Initial α."""
    temperature_rate: NonNegative = 1.0
    """Learning rate of the temperature, in multiples of the others'."""
    entropy_in_backup: bool = False
    """Whether values include the entropy of later steps."""
    average: ShareBelowOne = 0.9995
    """The policy is an exponential average of the actors with this decay; 0 takes the last actor."""
    ends_at_horizon: bool = False
    """Whether the last step is terminal, so that no value is bootstrapped after it."""
    raw_rewards: bool = False
    """Take rewards as they are, not in units of the returns seen."""
    keep: Count = 3
    """The last actor is compared in the end with this many of the best ones before it."""
    check: Count = 16
    """Episodes of each policy in the first round of that comparison; the better half plays on."""
    replay: Count = 300_000
    """Capacity of the replay buffer, in transitions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_min_qs > self.num_qs:
            raise HyrloError(f"num_min_qs is {self.num_min_qs}; give at most num_qs, which is {self.num_qs}")

    def discount(self, horizon: int) -> float:
        return 1 - 1 / min(max(horizon, 50), 100) if self.gamma is None else self.gamma

    @property
    def race_episodes(self) -> int:
        """The most episodes of the last comparison: of the last actor and the best ones."""
        return race_episodes(1 + self.keep, self.check)

    def total_steps(self, horizon: int) -> int:
        return self.steps or 5000 * min(horizon, 100)


@dataclass(frozen=True)
class RollInSacConfig(SacConfig):
    """Soft actor-critic from a roll-in."""

    utd: Positive = 0.45
    temperature_rate: NonNegative = 10.0
    from_start: Share = 0.2
    """Share of episodes that the actor plays from step 0 on, besides those that switch there by chance."""
    from_start_ahead: Share = 0.7
    """The same once these episodes earn more than the roll-in: what is left to learn is then where the actor goes."""
    without_noise: Share = 0.5
    """Share of episodes in which the actor takes its mean action."""
    clone: CountOrZero = 4
    """Collections that the roll-in plays alone at first; the actor begins as a clone of it. With 0 it begins at random, after
    collections with uniform actions."""

    @property
    def race_episodes(self) -> int:
        """Also of the roll-in and its clone."""
        return race_episodes(2 + self.keep + bool(self.clone), self.check)


SCRATCH_PRESETS = {"fast": SacConfig()}
PRESETS = {"fast": RollInSacConfig()}
LATENT = RollInSacConfig(
    episodes=16, utd=0.25, actor_every=1, hidden=64, gamma=1.0, learning_rate=1e-3, entropy=0.4, temperature=0.1,
    average=0.999, temperature_rate=1.0, from_start=0.0, without_noise=0.0, clone=0, ends_at_horizon=True, raw_rewards=True,
)  # fmt: skip
"""For latent states, which are shown with the step: the last one is an end. Chosen on the lock, seeds 1 to 13."""

CLONING, CLONING_RATE = 10_000, 1e-3
"""Updates that make the actor a clone, and their initial learning rate."""

Params = TypeVar("Params")


class TrainState(eqx.Module, Generic[Params]):
    """Parameters and the state of their Adam optimiser."""

    params: Params
    optimiser: optax.OptState

    @classmethod
    def create(cls, params: Params) -> TrainState[Params]:
        return cls(params, optax.adam(0.0).init(params))

    def apply_gradients(self, gradients: Params, learning_rate: Float[Array, ""]) -> TrainState[Params]:
        updates, optimiser = optax.adam(learning_rate).update(gradients, self.optimiser)
        return TrainState(optax.apply_updates(self.params, updates), optimiser)


class SacAgent(eqx.Module):
    """All that is learned, with optimiser states."""

    actor: TrainState[Policy]
    average: Policy
    """Exponential average of the actors."""
    critics: TrainState[Whitened]
    """Stacked along a first axis."""
    targets: Whitened
    log_alpha: TrainState[Array]


class SacBatch(NamedTuple):
    """Transitions."""

    states: Float[Array, "n obs"]
    actions: Array
    rewards: Float[Array, " n"]
    next_states: Float[Array, "n obs"]
    ended: Bool[Array, " n"]


Replay = ReplayBuffer[SacBatch]


class Losses(NamedTuple):
    """Of the last update."""

    critic: Float[Array, ""]
    value: Float[Array, ""]
    entropy: Float[Array, ""]


@eqx.filter_jit
def create_agent(key: PRNGKeyArray, spec: Spec, replay: Replay, units: RewardUnits, config: SacConfig) -> SacAgent:
    """Fresh networks, whitened by the states in the replay buffer. Critics begin at the least value seen: what was not tried
    looks bad."""
    known = jnp.arange(replay.capacity) < replay.added
    whitening = Whitening.of(replay.rows.states, known.astype(float))
    actor_key, critic_key = jax.random.split(key)
    hidden, size = (config.hidden,) * config.layers, spec.observation_size
    actor_sizes = (size, *hidden, 2 * spec.action_size or spec.actions)
    network = Whitened.create(LayerNormMLP.create(actor_key, actor_sizes, False, 0.01), whitening)
    actor: Policy = SquashedGaussian(network) if spec.action_size else Softmax(network)
    critic_sizes = (size + spec.action_size, *hidden, 1 if spec.action_size else spec.actions)

    def critic(key: PRNGKeyArray) -> Whitened:
        network = LayerNormMLP.create(key, critic_sizes, config.layer_norm)
        network = eqx.tree_at(lambda net: net.biases[-1], network, replace_fn=lambda b: b + units.least_value)
        return Whitened.create(network, whitening.with_identity(spec.action_size))

    critics = jax.vmap(critic)(jax.random.split(critic_key, config.num_qs))
    log_alpha = jnp.log(jnp.asarray(config.temperature))
    return SacAgent(TrainState.create(actor), actor, TrainState.create(critics), critics, TrainState.create(log_alpha))


@eqx.filter_jit
def clone(key: PRNGKeyArray, agent: SacAgent, replay: Replay, config: SacConfig) -> SacAgent:
    """The agent with an actor that makes the actions in the replay buffer likely."""

    def one(t: Int[Array, ""], actor: TrainState[Policy]) -> TrainState[Policy]:
        batch = replay.sample(jax.random.fold_in(key, t), config.batch)
        loss_of = lambda actor: -actor.log_density(batch.states, batch.actions).mean()  # noqa: E731
        return actor.apply_gradients(jax.grad(loss_of)(actor.params), CLONING_RATE * (1 - t / CLONING))

    actor = jax.lax.fori_loop(0, CLONING, one, agent.actor).params
    return SacAgent(TrainState.create(actor), actor, agent.critics, agent.targets, agent.log_alpha)


def deterministic(actor: Policy) -> Policy:
    """The actor without noise."""
    if isinstance(actor, SquashedGaussian):
        return SquashedGaussian(actor.network, noise=False)
    return Greedy(actor.network)  # type: ignore[attr-defined]


def q_values(critics: Whitened, states: Float[Array, "n obs"], actions: Array | None = None) -> Float[Array, "q n *a"]:
    """Q-values of every critic for the given action vectors, or without any for all discrete actions."""
    if actions is None:
        return jax.vmap(lambda critic: critic(states))(critics)
    inputs = jnp.concatenate([states, jnp.clip(actions, -1.0, 1.0)], axis=1)
    return jax.vmap(lambda critic: critic(inputs))(critics)[..., 0]


def random_subset(key: PRNGKeyArray, critics: Whitened, config: SacConfig) -> Whitened:
    """`num_min_qs` of the critics."""
    if not config.num_min_qs:
        return critics
    chosen = jax.random.choice(key, config.num_qs, (config.num_min_qs,), replace=False)
    return jax.tree.map(lambda x: x[chosen], critics)


def soft_value(
    key: PRNGKeyArray, actor: Policy, critics: Whitened, states: Array, alpha: Array, reduce: Callable = jnp.min
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Value of the actor with its entropy weighted by `alpha`, and the entropy. `reduce` combines the critics."""
    if isinstance(actor, SquashedGaussian):
        actions, log_pi = actor.sample(key, states)
        return reduce(q_values(critics, states, actions), axis=0) - alpha * log_pi, -log_pi
    log_pi = jax.nn.log_softmax(actor.logits(states))  # type: ignore[attr-defined]
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=1)
    value = jnp.sum(jnp.exp(log_pi) * reduce(q_values(critics, states), axis=0), axis=1)
    return value + alpha * entropy, entropy


def td_target(
    key: PRNGKeyArray, subset_key: PRNGKeyArray, agent: SacAgent, batch: SacBatch, gamma: float, config: SacConfig
) -> Float[Array, " n"]:
    """Targets y of the critics. Rewards are in the units of the critics."""
    alpha = jnp.exp(agent.log_alpha.params) if config.entropy_in_backup else jnp.zeros(())
    targets = random_subset(subset_key, agent.targets, config)
    following, _ = soft_value(key, agent.actor.params, targets, batch.next_states, alpha)
    return batch.rewards + gamma * jnp.where(batch.ended, 0.0, following)


def update_critics(
    critics: TrainState[Whitened], batch: SacBatch, target: Float[Array, " n"], rate: Float[Array, ""]
) -> tuple[TrainState[Whitened], Float[Array, ""]]:
    def loss_of(critics: Whitened) -> Float[Array, ""]:
        if batch.actions.ndim == 2:
            predicted = q_values(critics, batch.states, batch.actions)
        else:
            predicted = jax.vmap(pick, (0, None))(q_values(critics, batch.states), batch.actions)
        return jnp.mean((predicted - target) ** 2, axis=1).sum()

    loss, gradients = jax.value_and_grad(loss_of)(critics.params)
    return critics.apply_gradients(gradients, rate), loss


def update_actor(
    key: PRNGKeyArray, agent: SacAgent, batch: SacBatch, rate: Float[Array, ""], config: SacConfig
) -> tuple[TrainState[Policy], Float[Array, ""], Float[Array, ""]]:
    """The actor after one step, its value and its entropy before it."""
    alpha, reduce = jnp.exp(agent.log_alpha.params), jnp.mean if config.actor_value == "mean" else jnp.min

    def loss_of(actor: Policy) -> tuple[Float[Array, ""], tuple[Array, Array]]:
        value, entropy = soft_value(key, actor, agent.critics.params, batch.states, alpha, reduce)
        return -value.mean(), (value.mean(), entropy.mean())

    (_, (value, entropy)), gradients = jax.value_and_grad(loss_of, has_aux=True)(agent.actor.params)
    return agent.actor.apply_gradients(gradients, rate), value, entropy


def update_temperature(
    log_alpha: TrainState[Array], entropy: Float[Array, ""], target: float, rate: Float[Array, ""]
) -> TrainState[Array]:
    """One step on α (entropy − target): the temperature rises where the entropy is too low."""
    return log_alpha.apply_gradients(jnp.exp(log_alpha.params) * (entropy - target), rate)


def update_targets(agent: SacAgent, config: SacConfig) -> SacAgent:
    """Move target critics and averaged actor towards the current ones."""
    # The old values are the first argument: the other order rounds differently, and equal seeds must give equal bytes.
    targets = optax.incremental_update(agent.targets, agent.critics.params, 1 - config.tau)
    average = optax.incremental_update(agent.average, agent.actor.params, config.average)
    return SacAgent(agent.actor, average, agent.critics, targets, agent.log_alpha)


def target_entropy(spec: Spec, config: SacConfig) -> float:
    default, unit = (-1.0, spec.action_size) if spec.action_size else (0.2, np.log(spec.actions))
    return unit * (default if config.entropy is None else config.entropy)


def update(
    key: PRNGKeyArray,
    agent: SacAgent,
    losses: Losses,
    t: Int[Array, ""],
    batch: SacBatch,
    rate: Float[Array, ""],
    actor_rate: Float[Array, ""],
    spec: Spec,
    config: SacConfig,
) -> tuple[SacAgent, Losses]:
    """Update number t: the critics and, every `actor_every` updates, actor and temperature."""
    keys = Keys(key)

    def act_better() -> tuple:
        actor, value, entropy = update_actor(keys.actor, agent, batch, actor_rate, config)
        log_alpha = update_temperature(
            agent.log_alpha, entropy, target_entropy(spec, config), config.temperature_rate * actor_rate
        )
        return actor, log_alpha, value, entropy

    target = td_target(keys.next_actions, keys.subset, agent, batch, config.discount(spec.horizon), config)
    due, unchanged = t % config.actor_every == 0, (agent.actor, agent.log_alpha, losses.value, losses.entropy)
    actor, log_alpha, value, entropy = jax.lax.cond(due, act_better, lambda: unchanged)
    critics, loss = update_critics(agent.critics, batch, target, rate)
    agent = SacAgent(actor, agent.average, critics, agent.targets, log_alpha)
    return update_targets(agent, config), Losses(loss, value, entropy)


@eqx.filter_jit
def improve(
    key: PRNGKeyArray,
    agent: SacAgent,
    replay: Replay,
    offline: Replay | None,
    units: RewardUnits,
    updates: Int[Array, ""],
    rate: Float[Array, ""],
    actor_rate: Float[Array, ""],
    spec: Spec,
    config: SacConfig,
) -> tuple[SacAgent, Losses]:
    """`updates` updates at learning rate `rate`, with `actor_rate` for actor and temperature. With `offline` transitions, half
    of every batch is from them."""

    def one(t: Int[Array, ""], carry: tuple[SacAgent, Losses]) -> tuple[SacAgent, Losses]:
        keys = Keys(key).at(t)
        half = 0 if offline is None else config.batch // 2
        batch = replay.sample(keys.batch, config.batch - half)
        if offline is not None:
            old = offline.sample(keys.offline, half)
            batch = jax.tree.map(lambda *x: jnp.concatenate(x), batch, old)
        batch = batch._replace(rewards=units(batch.rewards))
        return update(keys.update, *carry, t, batch, rate, actor_rate, spec, config)

    nothing = jnp.zeros(())
    return jax.lax.fori_loop(0, updates, one, (agent, Losses(nothing, nothing, nothing)))


@eqx.filter_jit
def in_units(agent: SacAgent, before: RewardUnits, after: RewardUnits, gamma: float) -> SacAgent:
    """The same agent in other units of rewards: critics and temperature are rescaled."""
    known = before.most > before.least
    ratio = jnp.where(known, after.scale / before.scale, 1.0)
    offset = jnp.where(known, (before.shift - after.shift) * after.scale, 0.0) / (1 - gamma) if gamma < 1 else 0.0

    def rescaled(critics: Whitened) -> Whitened:
        last = lambda c: (c.network.weights[-1], c.network.biases[-1])  # noqa: E731
        weight, bias = last(critics)
        return eqx.tree_at(last, critics, (ratio * weight, ratio * bias + offset))

    critics = eqx.tree_at(lambda c: c.params, agent.critics, rescaled(agent.critics.params))
    log_alpha = eqx.tree_at(lambda a: a.params, agent.log_alpha, agent.log_alpha.params + jnp.log(ratio))
    return SacAgent(agent.actor, agent.average, critics, rescaled(agent.targets), log_alpha)
