"""SAC (Haarnoja et al. 2018), from scratch and from a roll-in: one stationary policy for every step of an episode.

With a roll-in π^f this is the paper's practical CPI-trace: an episode follows π^f up to a random step h, then the actor π,

    s_0, …, s_h ∼ π^f,    then a ∼ π(·|s) from h on;     only what comes after the switch is learned from.

Critics and actor, for action vectors and (with expectations in place of samples) for discrete actions:

    y = r + γ (min_i Q̄_i(s′, a′) − α log π(a′|s′)),      min_Q ( Q_i(s, a) − y )²,      max_π E[ Q(s, a) − α log π(a|s) ]

Episodes that end have y = r. The end of the horizon is a time limit, not an end, unless `ends_at_horizon`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.random import fold_in
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec, TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError, check_positive
from hyrlo.core.networks import LayerNormMLP, Whitened, pick
from hyrlo.core.policies import Greedy, Policy, Softmax, SquashedGaussian, switch


@dataclass(frozen=True)
class SacConfig:
    """Soft actor-critic with many episodes at once."""

    iterations: int = 40
    """Points of the curve, each with an evaluation and a checkpoint."""
    collections: int = 4
    """Collections of episodes, each followed by updates, per iteration."""
    episodes: int = 16
    """Episodes at once."""
    random_collections: int = 2
    """The first ones act uniformly (after the switch), and nothing is learned from them yet."""
    utd: float = 1.0
    """Updates per transition that is learned from."""
    batch: int = 256
    hidden: int = 128
    """Width of the hidden layers of actor and critics."""
    layers: int = 2
    """Number of the hidden layers."""
    layer_norm: bool = True
    """Normalise the critics' hidden layers; without it, values can explode."""
    critics: int = 2
    subset: int = 0
    """The target is the least value of so many critics, drawn anew for each update; 0 takes all."""
    actor_value: Literal["min", "mean"] = "min"
    """Which value of the critics the actor climbs."""
    actor_every: int = 1
    """Updates of the critics per update of actor and temperature."""
    initial_value: float = 0.0
    """What the critics say at first. The least value there is makes what was never tried look bad."""
    gamma: float = 0.99
    learning_rate: float = 1e-3
    last_learning_rate: float = 0.1
    """Share of it that is left in the last iteration; it falls linearly."""
    tau: float = 0.005
    """Share of the critics that their slow targets take over at each update."""
    entropy: float | None = None
    """Target entropy: per dimension of an action vector (default −0.5), or as a share of log A for A actions (default 0.2)."""
    temperature: float = 0.1
    """α at first."""
    entropy_in_backup: bool = False
    """Whether values count the entropy to come."""
    from_start: float = 0.0
    """With a roll-in: the share of episodes that the actor plays from step 0 on, besides those that happen to."""
    average: float = 0.999
    """The policy is an exponential average of the actors with this memory; 0 takes the last one."""
    ends_at_horizon: bool = False
    """Whether nothing comes after the last step: no value beyond it."""
    reward_scale: float = 1.0
    replay: int = 300_000

    def __post_init__(self) -> None:
        check_positive(
            self, "iterations", "collections", "episodes", "random_collections", "utd", "batch", "hidden", "critics",
            "learning_rate", "tau", "temperature", "reward_scale", "replay", "layers", "actor_every",
        )  # fmt: skip
        if not 0 <= self.from_start <= 1:
            raise HyrloError(f"from_start is {self.from_start}; give a share from 0 to 1")
        if not 0 <= self.subset <= self.critics:
            raise HyrloError(f"subset is {self.subset}; give at most the number of critics, {self.critics}")


PRESETS = {"fast": SacConfig()}
MOTION = SacConfig(
    iterations=70, episodes=32, utd=0.5, gamma=0.98, learning_rate=3e-4, entropy=-1.0, temperature=0.02,
    actor_every=2, initial_value=-10.0, reward_scale=0.2, from_start=0.2, average=0.9995,
)  # fmt: skip
"""Beside `forward.model.MOTION`, for a reward of ±1 at every step, so that values are from −10 to 10. Chosen on the hammer."""


class Agent(eqx.Module):
    """All that is learned, and its optimisers' states."""

    actor: Policy
    average: Policy
    critics: Whitened
    """Stacked along a first axis."""
    targets: Whitened
    log_alpha: Float[Array, ""]
    optimiser: tuple[optax.OptState, optax.OptState, optax.OptState]


class Replay(NamedTuple):
    """The newest transitions."""

    states: Float[Array, "m obs"]
    actions: Array
    rewards: Float[Array, " m"]
    next_states: Float[Array, "m obs"]
    ended: Bool[Array, " m"]
    added: Int[Array, ""]


def sac(model: TraceModel, source: None, config: SacConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """From scratch: the actor plays whole episodes."""
    return learn(model, None, config, key, run, "online")


def cpi_trace(model: TraceModel, source: Policy, config: SacConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """From the roll-in `source`: the actor takes over at a random step."""
    return learn(model, source, config, key, run, "backward")


def learn(
    model: TraceModel,
    roll_in: Policy | None,
    config: SacConfig,
    key: PRNGKeyArray,
    run: Run,
    name: str,
    offline: Replay | None = None,
) -> Policy:
    """Collect and update in turn; with `offline` transitions, half of every batch is from them."""
    spec, n = model.spec, config.episodes
    create_key, first_key = jax.random.split(fold_in(key, config.iterations))

    def collect(key: PRNGKeyArray, policy: Policy, replay: Replay) -> tuple[Replay, Int[Array, ""]]:
        switch_key, rollout_key = jax.random.split(key)
        at = switch_steps(switch_key, n, spec.horizon, 1.0 if roll_in is None else config.from_start)
        acting = policy if roll_in is None else switch(roll_in, at=at, to=policy)
        batch = model.record(rollout_key, acting, n, tuple(range(spec.horizon)))
        return remember(replay, batch, at, config)

    def begin() -> tuple:
        """A first look at the world, for the scale of its states."""
        replay = empty_replay(spec, config)
        for i in range(config.random_collections):
            replay, _ = collect(fold_in(first_key, i), spec.uniform(), replay)
        return create_agent(create_key, spec, replay, config), tuple(replay)

    blank = empty_replay(spec, config)
    phase = run.phase(
        name, range(config.iterations), (create_agent(create_key, spec, blank, config), tuple(blank)), model
    )
    for t in phase:
        agent, replay = begin() if t == 0 else phase.state
        replay = Replay(*replay)
        left = 1 - t / config.iterations
        rate = jnp.asarray(config.learning_rate * (left + (1 - left) * config.last_learning_rate))
        for i in range(config.collections):
            collect_key, update_key = jax.random.split(fold_in(fold_in(key, t), i))
            replay, added = collect(collect_key, agent.actor, replay)
            updates = (config.utd * added).astype(int)
            agent, losses = improve(update_key, agent, replay, offline, updates, rate, spec, config)
        metrics = {k: float(v) for k, v in losses._asdict().items()}
        phase.done(spec.horizon, (agent, tuple(replay)), evaluate=calm(agent.average), iteration=t, **metrics)
    return calm(phase.state[0].average)


def switch_steps(key: PRNGKeyArray, n: int, horizon: int, from_start: float) -> Int[Array, " n"]:
    """When the actor takes over: at any step with the same probability, or for some episodes at once."""
    at_once = jax.random.uniform(fold_in(key, 0), (n,)) < from_start
    return jnp.where(at_once, 0, jax.random.randint(key, (n,), 0, horizon))


def empty_replay(spec: Spec, config: SacConfig) -> Replay:
    blank, nothing = jnp.zeros((config.replay, spec.observation_size)), jnp.zeros(config.replay)
    return Replay(blank, spec.no_actions(config.replay), nothing, blank, nothing.astype(bool), jnp.zeros((), int))


@eqx.filter_jit
def remember(replay: Replay, batch: Recorded, at: Int[Array, " n"], config: SacConfig) -> tuple[Replay, Int[Array, ""]]:
    """Keep what came after the switch, up to the end of the episode; and how much that is."""
    horizon, room = len(batch.states), len(replay.rewards)
    ended = batch.ended
    over = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    steps = jnp.arange(horizon)[:, None]
    new = (steps >= at) & ~over
    if config.ends_at_horizon:
        ended = ended | (steps == horizon - 1)
    place = jnp.where(new, (replay.added + jnp.cumsum(new.reshape(-1)).reshape(new.shape) - 1) % room, room).reshape(-1)
    rows = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:]),
        (batch.states, batch.actions, batch.rewards, batch.next_states, ended),
    )
    kept = [old.at[place].set(x, mode="drop") for old, x in zip(replay[:5], rows, strict=True)]
    count = new.sum()
    return Replay(kept[0], kept[1], kept[2], kept[3], kept[4], replay.added + count), count


@eqx.filter_jit
def create_agent(key: PRNGKeyArray, spec: Spec, replay: Replay, config: SacConfig) -> Agent:
    known = (jnp.arange(len(replay.rewards)) < replay.added).astype(float)[:, None]
    total = jnp.maximum(known.sum(), 1.0)
    shift = (known * replay.states).sum(axis=0) / total
    scale = jnp.sqrt((known * (replay.states - shift) ** 2).sum(axis=0) / total)
    scale = jnp.where(scale > 1e-6, scale, 1.0)
    actor_key, critic_key = jax.random.split(key)
    hidden, inputs = (config.hidden,) * config.layers, spec.observation_size
    outputs = 2 * spec.action_size or spec.actions
    body = Whitened(LayerNormMLP.create(actor_key, (inputs, *hidden, outputs), False, 0.01), shift, scale)
    actor: Policy = SquashedGaussian(body) if spec.action_size else Softmax(body)
    if spec.action_size:  # actions come whitened already
        inputs += spec.action_size
        shift, scale = jnp.pad(shift, (0, spec.action_size)), jnp.pad(scale, (0, spec.action_size), constant_values=1.0)

    def critic(key: PRNGKeyArray) -> Whitened:
        sizes = (inputs, *hidden, 1 if spec.action_size else spec.actions)
        network = LayerNormMLP.create(key, sizes, config.layer_norm)
        biases = (*network.biases[:-1], network.biases[-1] + config.initial_value)
        return Whitened(eqx.tree_at(lambda net: net.biases, network, biases), shift, scale)

    critics = jax.vmap(critic)(jax.random.split(critic_key, config.critics))
    log_alpha = jnp.log(jnp.asarray(config.temperature))
    adam = optax.scale_by_adam()
    return Agent(
        actor, actor, critics, critics, log_alpha, (adam.init(actor), adam.init(critics), adam.init(log_alpha))
    )


def calm(actor: Policy) -> Policy:
    """The actor without its noise."""
    if isinstance(actor, SquashedGaussian):
        return SquashedGaussian(actor.network, noise=False)
    return Greedy(actor.network)  # type: ignore[attr-defined]


class Losses(NamedTuple):
    critic: Float[Array, ""]
    value: Float[Array, ""]
    entropy: Float[Array, ""]


@eqx.filter_jit
def improve(
    key: PRNGKeyArray,
    agent: Agent,
    replay: Replay,
    offline: Replay | None,
    updates: Int[Array, ""],
    rate: Float[Array, ""],
    spec: Spec,
    config: SacConfig,
) -> tuple[Agent, Losses]:
    """`updates` times, at learning rate `rate`: critics, actor, temperature, targets."""

    def draw(key: PRNGKeyArray, source: Replay, n: int) -> Replay:
        known = jnp.minimum(source.added, len(source.rewards))
        rows = (jax.random.uniform(key, (n,)) * known).astype(int)
        return Replay(*(x[rows] for x in source[:5]), source.added)  # type: ignore[call-arg]

    def one(t: Int[Array, ""], carry: tuple[Agent, Losses]) -> tuple[Agent, Losses]:
        batch_key, update_key = jax.random.split(fold_in(key, t))
        half = 0 if offline is None else config.batch // 2
        batch = draw(batch_key, replay, config.batch - half)
        if offline is not None:
            old = draw(fold_in(batch_key, 1), offline, half)
            batch = Replay(*(jnp.concatenate(x) for x in zip(batch[:5], old[:5], strict=True)), batch.added)  # type: ignore[call-arg]
        return update(update_key, *carry, t, batch, rate, spec, config)

    nothing = jnp.zeros(())
    return jax.lax.fori_loop(0, updates, one, (agent, Losses(nothing, nothing, nothing)))


def update(
    key: PRNGKeyArray,
    agent: Agent,
    losses: Losses,
    t: Int[Array, ""],
    batch: Replay,
    rate: Float[Array, ""],
    spec: Spec,
    config: SacConfig,
) -> tuple[Agent, Losses]:
    """One gradient step on the critics and, every so often, on actor and temperature."""
    next_key, actor_key = jax.random.split(key)
    alpha = jnp.exp(agent.log_alpha)
    actor_state, critic_state, alpha_state = agent.optimiser

    def soft_value(
        key: PRNGKeyArray, actor: Policy, critics: Whitened, states: Array, weight: Array, which: Any = jnp.min
    ) -> tuple[Array, Array]:
        """Of following the actor, with its entropy counted at `weight`; and the entropy itself."""
        if isinstance(actor, SquashedGaussian):
            actions, log_pi = actor.sample(key, states)
            return which(values(critics, states, actions), axis=0) - weight * log_pi, -log_pi
        log_pi = jax.nn.log_softmax(actor.logits(states))  # type: ignore[attr-defined]
        entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=1)
        return jnp.sum(jnp.exp(log_pi) * which(values(critics, states), axis=0), axis=1) + weight * entropy, entropy

    weight = alpha if config.entropy_in_backup else jnp.zeros(())
    targets = some_of(fold_in(key, 0), agent.targets, config)
    following, _ = soft_value(next_key, agent.actor, targets, batch.next_states, weight)
    target = config.reward_scale * batch.rewards + config.gamma * jnp.where(batch.ended, 0.0, following)

    def critic_loss(critics: Whitened) -> Float[Array, ""]:
        if spec.action_size:
            predicted = values(critics, batch.states, batch.actions)
        else:
            predicted = jax.vmap(pick, (0, None))(values(critics, batch.states), batch.actions)
        return jnp.mean((predicted - target) ** 2, axis=1).sum()

    def actor_loss(actor: Policy) -> tuple[Float[Array, ""], tuple[Array, Array]]:
        which = jnp.mean if config.actor_value == "mean" else jnp.min
        value, entropy = soft_value(actor_key, actor, agent.critics, batch.states, alpha, which)
        return -value.mean(), (value.mean(), entropy.mean())

    def act_better(state: tuple) -> tuple:
        actor, log_alpha, actor_state, alpha_state, *_ = state
        (_, (value, entropy)), gradient = jax.value_and_grad(actor_loss, has_aux=True)(actor)
        default, most = (-0.5, spec.action_size) if spec.action_size else (0.2, np.log(spec.actions))
        wanted = most * (default if config.entropy is None else config.entropy)
        actor, actor_state = descend(actor, gradient, actor_state, rate)
        # of α·(entropy − wanted): more temperature where there is too little
        log_alpha, alpha_state = descend(log_alpha, alpha * (entropy - wanted), alpha_state, rate)
        return actor, log_alpha, actor_state, alpha_state, value, entropy

    state = (agent.actor, agent.log_alpha, actor_state, alpha_state, losses.value, losses.entropy)
    due = t % config.actor_every == 0
    actor, log_alpha, actor_state, alpha_state, value, entropy = jax.lax.cond(due, act_better, lambda x: x, state)
    loss, gradient = jax.value_and_grad(critic_loss)(agent.critics)
    critics, critic_state = descend(agent.critics, gradient, critic_state, rate)
    slow = mix(agent.targets, critics, config.tau)
    average = mix(agent.average, actor, 1 - config.average)
    optimiser = (actor_state, critic_state, alpha_state)
    return Agent(actor, average, critics, slow, log_alpha, optimiser), Losses(loss, value, entropy)  # type: ignore[arg-type]


def some_of(key: PRNGKeyArray, critics: Whitened, config: SacConfig) -> Whitened:
    if not config.subset:
        return critics
    chosen = jax.random.choice(key, config.critics, (config.subset,), replace=False)
    return jax.tree.map(lambda x: x[chosen], critics)


def descend(old: Any, gradient: Any, state: optax.OptState, rate: Float[Array, ""]) -> tuple[Any, optax.OptState]:
    """One step of Adam."""
    change, state = optax.scale_by_adam().update(gradient, state)
    return jax.tree.map(lambda x, c: x - rate * c, old, change), state


def values(critics: Whitened, states: Float[Array, "n obs"], actions: Float[Array, "n act"] | None = None) -> Array:
    """Of every critic: of the given action vectors, or of all discrete actions."""
    inputs = states if actions is None else jnp.concatenate([states, jnp.clip(actions, -1.0, 1.0)], axis=1)
    every = jax.vmap(lambda critic: critic(inputs))(critics)
    return every if actions is None else every[..., 0]


def mix(old: eqx.Module, new: eqx.Module, share: float) -> eqx.Module:
    return jax.tree.map(lambda o, n: (1 - share) * o + share * n, old, new)
