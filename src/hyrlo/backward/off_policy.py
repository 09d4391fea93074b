"""Learning from a replay buffer, from scratch and from a roll-in: collections of episodes and SAC's updates in turns.

With a roll-in π^f this is the paper's practical CPI-trace. An episode follows π^f up to a random step h, then the actor π.
It begins with a clone of the roll-in: π ← argmax_π E[ log π(a_h | s_h) ] over episodes of π^f alone. Without noise, one
policy for all steps is often better than what it is a clone of, and from scratch the actor would have to find again what the
roll-in knows. SAC learns from any transitions, so that those before the switch are in the replay buffer, too.

Learning may end worse than it was. The last actor, the best ones before it (by the episodes that they played from the start
while they explored), the clone and the roll-in race in the end (race.py), and the winner is returned.

Updates run while the next episodes are played. So an actor that plays has not yet learned from the episodes just before,
whatever finishes first: results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.backward.race import race
from hyrlo.backward.reward_units import RewardUnits
from hyrlo.backward.sac import (
    Losses,
    Replay,
    RollInSacConfig,
    SacAgent,
    SacBatch,
    SacConfig,
    clone,
    create_agent,
    deterministic,
    improve,
    in_units,
)
from hyrlo.core.access import Recorded, Spec, TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Mixture, Policy, switch
from hyrlo.core.replay import ReplayBuffer

FEW = 5
"""Fewer episodes from the start say nothing about an actor."""
VALUING = 3000
"""Updates of the critics before a clone begins to change."""


class Learning(NamedTuple):
    """All that changes from iteration to iteration."""

    agent: SacAgent
    replay: Replay
    units: RewardUnits
    first: Policy
    """The actor before it began to learn from rewards."""
    best: Policy
    """The best of the averaged actors so far, along a first axis."""
    earned: Float[Array, " kept"]
    """Mean return of each of them; −∞ where there is none yet."""
    begun: Int[Array, ""]
    """Steps of the ledger when it began."""
    to_beat: Float[Array, ""]
    """Mean return of the roll-in's episodes; ∞ where none were played."""
    ahead: Bool[Array, ""]
    """Whether the actor's own episodes earned more in the last iteration."""

    def after_iteration(self, returns: Float[np.ndarray, " n"]) -> Learning:
        """`returns` are of the episodes that the actor has played from the start in this iteration."""
        if len(returns) >= FEW:
            self = self._replace(ahead=jnp.asarray(returns.mean() > self.to_beat))
        worst = jnp.argmin(self.earned)
        if len(returns) < FEW or returns.mean() <= self.earned[worst]:
            return self
        best = jax.tree.map(lambda kept, new: kept.at[worst].set(new), self.best, self.agent.average)
        return self._replace(best=best, earned=self.earned.at[worst].set(returns.mean()))


@dataclass(frozen=True)
class LearningSource:
    """What is learned from, besides the actor's own episodes."""

    roll_in: Policy | None = None
    from_start: float = 1.0
    """Share of the episodes that the actor plays from step 0 on; in the others it takes over from the roll-in."""
    from_start_ahead: float = 1.0
    """The same once these earn more than the roll-in."""
    without_noise: float = 0.0
    """Share of the episodes in which the actor takes its mean action."""
    clone: int = 0
    """Collections that the roll-in plays alone at first, for the actor to begin as a clone of it."""
    reach: int | None = None
    """It takes over before this step (default: the horizon)."""
    offline: Replay | None = None
    """Transitions that half of every batch is from."""
    known: SacBatch | None = None
    """Transitions that are in the replay buffer from the start."""
    see: Callable[[Policy], Policy] = lambda actor: actor
    """Makes a policy of the world's observations from one of the states that the model records, where these differ."""

    @classmethod
    def of(cls, roll_in: Policy, config: RollInSacConfig, reach: int | None = None) -> LearningSource:
        return cls(roll_in, config.from_start, config.from_start_ahead, config.without_noise, config.clone, reach)


def sac(model: TraceModel, source: None, config: SacConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """From scratch: the actor plays whole episodes."""
    return learn(model, LearningSource(), config, key, run, "online")


def cpi_trace(
    model: TraceModel, source: Policy, config: RollInSacConfig, key: PRNGKeyArray, run: Run, reach: int | None = None
) -> Policy:
    """From the roll-in `source`: the actor takes over at a random step, before `reach` if the roll-in is lost there."""
    return learn(model, LearningSource.of(source, config, reach), config, key, run, "backward")


def learn(
    model: TraceModel, source: LearningSource, config: SacConfig, key: PRNGKeyArray, run: Run, name: str
) -> Policy:
    """Collections and updates in turns; then the best policy."""
    learner = OffPolicyLearner(model, source, config, Keys(key))
    phase = run.phase(name, range(config.iterations), learner.start(), model)
    for t in phase:
        now = learner.begin(phase.state) if t == 0 else phase.state
        now, losses = learner.iterate(now, t)
        metrics = {k: float(v) for k, v in losses._asdict().items()}
        phase.done(model.spec.horizon, now, evaluate=learner.policy(now.agent.average), iteration=t, **metrics)
    return race(model, learner.candidates(phase.state), config.check, Keys(key).check, run)


class OffPolicyLearner:
    """Plays and learns."""

    def __init__(self, model: TraceModel, source: LearningSource, config: SacConfig, keys: Keys):
        self.model, self.spec, self.source, self.config, self.keys = model, model.spec, source, config, keys
        self.gamma = config.discount(self.spec.horizon)

    def policy(self, actor: Policy) -> Policy:
        """The actor without noise."""
        return self.source.see(deterministic(actor))

    def candidates(self, now: Learning) -> dict[str, Policy]:
        """What may be returned."""
        actors = {"last": now.agent.average}
        for i in np.argsort(-now.earned)[: int((now.earned > -jnp.inf).sum())]:
            actors[f"best {len(actors)}"] = jax.tree.map(lambda x, i=i: x[i], now.best)
        if self.source.clone:
            actors["clone"] = now.first
        found = {name: self.policy(actor) for name, actor in actors.items()}
        return found if self.source.roll_in is None else {**found, "roll-in": self.source.roll_in}

    def exploring(self, actor: Policy) -> Policy:
        share = self.source.without_noise
        return Mixture(actor, deterministic(actor), jnp.asarray(share)) if share else actor

    def start(self) -> Learning:
        config, begun = self.config, jnp.asarray(self.model.ledger.steps)
        empty = empty_replay(self.spec, config)
        units = RewardUnits.raw() if config.raw_rewards else RewardUnits.unknown()
        agent = create_agent(self.keys.create, self.spec, empty, units, config)
        kept = jax.tree.map(lambda x: jnp.stack([x] * config.keep), agent.average)
        return Learning(
            agent,
            empty,
            units,
            agent.average,
            kept,
            jnp.full(config.keep, -jnp.inf),
            begun,
            jnp.asarray(jnp.inf),
            jnp.asarray(False),
        )

    def begin(self, now: Learning) -> Learning:
        """Networks that are whitened by the states of the first episodes, and the transitions that are known beforehand."""
        now = self.with_known(self.cloned(now)) if self.source.clone else self.at_random(self.with_known(now))
        return now._replace(first=now.agent.average)

    def with_known(self, now: Learning) -> Learning:
        known = self.source.known
        return now if known is None else now._replace(replay=now.replay.add(known, jnp.ones(len(known.rewards), bool)))

    def at_random(self, now: Learning) -> Learning:
        """After uniform actions, the actor's are near 0."""
        for i in range(self.config.random_collections):
            now, _ = self.collect(Keys(self.keys.first).at(i), self.spec.uniform(), now)
        return now._replace(agent=create_agent(self.keys.create, self.spec, now.replay, now.units, self.config))

    def cloned(self, now: Learning) -> Learning:
        """After episodes of the roll-in, the actor is a clone of it, and the critics know its values."""
        never, earned = jnp.full(self.config.episodes, self.spec.horizon), []
        for i in range(self.source.clone):
            now, returns = self.collect(Keys(self.keys.first).at(i), self.spec.uniform(), now, never)
            earned.append(returns)
        agent = create_agent(self.keys.create, self.spec, now.replay, now.units, self.config)
        agent = clone(self.keys.clone, agent, now.replay, self.config)
        now = now._replace(agent=agent, to_beat=jnp.asarray(np.mean(earned), jnp.float32))
        return self.improved(self.keys.values, now, jnp.asarray(VALUING), self.config.learning_rate, 0.0)[0]

    def iterate(self, now: Learning, t: int) -> tuple[Learning, Losses]:
        """Collections, each followed by updates, until the steps of this iteration are used up. Updates run in the background
        until their result is needed: the actor of a collection is the one before the updates that were begun last."""
        config, spec, own = self.config, self.spec, []
        rate = learning_rate(t / config.iterations, config)
        steps = config.total_steps(spec.horizon) - config.episodes * spec.horizon + 1  # room for a whole collection
        due, i, acting = int(now.begun) + steps * (t + 1) // config.iterations, 0, now.agent.actor.params
        while True:
            keys, before = self.keys.at(t, i), now.replay.added
            now, returns = self.collect(keys, self.exploring(acting), now)
            own.append(returns)
            acting = now.agent.actor.params
            updates = (config.utd * (now.replay.added - before)).astype(int)
            now, losses = self.improved(keys.update, now, updates, rate, rate)
            if self.model.ledger.steps >= due:
                return now.after_iteration(np.concatenate(own)), losses
            i += 1

    def improved(
        self, key: PRNGKeyArray, now: Learning, updates: Int[Array, ""], rate: float, actor_rate: float
    ) -> tuple[Learning, Losses]:
        rates = jnp.asarray(rate), jnp.asarray(actor_rate)
        agent, losses = improve(
            key, now.agent, now.replay, self.source.offline, now.units, updates, *rates, self.spec, self.config
        )
        return now._replace(agent=agent), losses

    def collect(
        self, keys: Keys, actor: Policy, now: Learning, given: Int[Array, " n"] | None = None
    ) -> tuple[Learning, Float[np.ndarray, " k"]]:
        """Play some episodes, in which the actor takes over at steps `given` (default: random ones); also the returns of those
        that it has played from the start, or if steps are given of all."""
        n, horizon, source = self.config.episodes, self.spec.horizon, self.source
        share = source.from_start_ahead if now.ahead else source.from_start
        at = switch_steps(keys.switch, n, source.reach or horizon, share) if given is None else given
        acting = source.see(actor)
        acting = acting if source.roll_in is None else switch(source.roll_in, at=at, to=acting)
        batch = self.model.record(keys.rollout, acting, n, tuple(range(horizon)))
        units = now.units if self.config.raw_rewards else seen_in(now.units, batch, self.gamma)
        agent, replay = in_units(now.agent, now.units, units, self.gamma), remember(now.replay, batch, self.config)
        counted = np.asarray(at) == 0 if given is None else slice(None)
        return now._replace(agent=agent, replay=replay, units=units), np.asarray(batch.returns)[counted]


def learning_rate(done: float, config: SacConfig) -> float:
    """It falls linearly; `done` is the share of the iterations that have passed."""
    return config.learning_rate * (1 - done + done * config.last_learning_rate)


def switch_steps(key: PRNGKeyArray, n: int, horizon: int, from_start: float) -> Int[Array, " n"]:
    """The step at which the actor takes over: uniform, but 0 for a share `from_start` of the episodes."""
    keys = Keys(key)
    at_once = jax.random.uniform(keys.at_once, (n,)) < from_start
    return jnp.where(at_once, 0, jax.random.randint(keys.step, (n,), 0, horizon))


def empty_replay(spec: Spec, config: SacConfig) -> Replay:
    state, number = jnp.zeros(spec.observation_size), jnp.zeros(())
    return ReplayBuffer.create(SacBatch(state, spec.no_actions(), number, state, number.astype(bool)), config.replay)


@eqx.filter_jit
def remember(replay: Replay, batch: Recorded, config: SacConfig) -> Replay:
    """Add the transitions up to the end of each episode."""
    ended, steps = batch.ended, jnp.arange(len(batch.ended))[:, None]
    over = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    if config.ends_at_horizon:
        ended = ended | (steps == len(steps) - 1)
    rows = SacBatch(batch.states, batch.actions, batch.rewards, batch.next_states, ended)
    return replay.add(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows), ~over.reshape(-1))


@eqx.filter_jit
def seen_in(units: RewardUnits, batch: Recorded, gamma: float) -> RewardUnits:
    return units.seen(batch.rewards, batch.ended, gamma)
