"""BRIEE (Zhang et al. 2022): online RL with representation learning, on the lock the best without offline data.

Every iteration collects with the current policy, learns for every step a feature φ(s, a) = softmax(E s / τ) ⊗ onehot(a)
in a min-max-min game, and plans with it (LSVI-UCB):

    min_φ max_f { min_w Ê( w·φ(s,a) − f(s') )² − min_{φ̃, w̃} Ê( w̃·φ̃(s,a) − f(s') )² }
    Q_h(s, a) = min( w_h·φ(s, a) + α ‖φ(s, a)‖_{Σ_h⁻¹}, H ),     π_h(s) = argmax_a Q_h(s, a)

The discriminators f stay: φ must predict all that were ever found. Their values at the tuples are computed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.baselines.online import Buffer, OnlineConfig, Tuples, alternate, create_buffer, record_tuples
from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.networks import MLP, OptimisticQ
from hyrlo.core.policies import Greedy, Policy, Stack, switch
from hyrlo.core.ranges import Count, CountOrZero, NonNegative, Options, Positive, ShareBelowOne
from hyrlo.core.regression import RegressionData, projection
from hyrlo.core.variants import from_presets


@dataclass(frozen=True)
class BrieeConfig(Options):
    """Representation learning by a game, and optimism; the defaults are those of the authors' code."""

    latents: Count = 3
    temperature: Positive = 1.0
    first_temperature: Positive = 0.1
    """τ of step 0."""
    rounds: Count = 30
    """Discriminators per iteration."""
    updates: Count = 64
    """Gradient steps on φ, and on a new discriminator and its φ̃, per round."""
    batch: Count = 512
    hidden: Count = 256
    """Width of the discriminators' two hidden layers."""
    learning_rate: Positive = 0.01
    momentum: ShareBelowOne = 0.99
    usual_size: CountOrZero = 0
    """Scale observations as if they had this many dimensions: a gradient step on E grows with their norm. 0: as they are."""
    ridge: Positive = 0.01
    """Of the regression onto φ, in samples."""
    bonus: NonNegative = 0.2
    """α in units of the horizon."""
    window: Count = 10_000
    """Learn from this many of the newest tuples of a step."""
    recent: CountOrZero = 0
    """Half of the tuples of φ's regressions come from this many of the newest: those the policy has just come to."""
    warm_start: CountOrZero = 10_000
    """Random episodes before the first iteration for horizons of at least 50."""
    online: OnlineConfig = field(default_factory=lambda: OnlineConfig(iterations=100))


PRESETS = {
    "paper": BrieeConfig(),
    "fast": BrieeConfig(
        rounds=8, batch=256, hidden=64, recent=2000, window=20_000, usual_size=16, online=OnlineConfig(200, 60)
    ),
}
configure = from_presets(PRESETS, "briee")


class BrieeLearner(NamedTuple):
    """Optimistic to explore, without bonus to exploit."""

    exploring: Stack
    best: Stack


def briee(model: TraceModel, source: None, config: BrieeConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Alternate between collecting, learning the features of all steps at once, and planning."""
    spec, each = model.spec, config.online.samples
    steps = np.repeat(np.arange(spec.horizon), each)
    uniform = spec.uniform()
    random_iterations = -(-config.warm_start // len(steps)) if spec.horizon >= 50 else 0

    def collect(key: PRNGKeyArray, t: int, policy: Policy) -> Tuples:
        """π ∘_h unif for every h; the tuples of steps h and h + 1, of which the second saw a uniform action as well."""
        start = np.zeros_like(steps) if t < random_iterations else steps
        record = np.stack([steps, np.minimum(steps + 1, spec.horizon - 1)])
        return two_by_step(record_tuples(model, key, switch(policy, at=start, to=uniform), record), each)

    def learn(key: PRNGKeyArray, learner: BrieeLearner, buffer: Buffer) -> tuple[BrieeLearner, Float[Array, ""]]:
        if buffer.added[0] <= 2 * each * random_iterations:
            return learner, jnp.zeros(())
        return improve(key, learner.exploring, buffer.rows, buffer.added[0], config)

    q = OptimisticQ.create(
        Keys(key).create,
        spec.observation_size,
        spec.actions,
        config.latents,
        config.bonus * spec.horizon,
        most=spec.horizon,
    )
    shrink = (config.usual_size / spec.observation_size) ** 0.5 if config.usual_size else 1.0
    scale = jnp.full(spec.horizon, shrink / config.temperature).at[0].set(shrink / config.first_temperature)
    q = eqx.tree_at(lambda q: q.encoder, q, q.encoder / shrink)
    start = eqx.tree_at(lambda s: s.steps.q.scale, Stack.repeat(Greedy(q), spec.horizon), scale)
    room = min(config.window, 2 * each * config.online.iterations) // (2 * each) * (2 * each)
    buffer = create_buffer(spec.horizon, spec.observation_size, room)
    return alternate(model, BrieeLearner(start, start), buffer, collect, learn, config.online, key, run)


@eqx.filter_jit
def two_by_step(tuples: Tuples, each: int) -> Tuples:
    """Tuples of every step: those rolled in to it, and those of the episodes that turned uniform one step before."""

    def arrange(x: Array) -> Array:
        own, after = x.reshape(2, -1, each, *x.shape[2:])
        before = jnp.concatenate([own[:1], after[:-1]])  # no one turns uniform before step 0: its own tuples again
        return jnp.concatenate([own, before], axis=1)

    return jax.tree.map(arrange, tuples)


@eqx.filter_jit
def improve(
    key: PRNGKeyArray, policy: Stack, tuples: Tuples, added: Int[Array, ""], config: BrieeConfig
) -> tuple[BrieeLearner, Float[Array, ""]]:
    """Features of all steps side by side, then planning with them: optimistically to explore, without bonus to exploit."""
    qs: OptimisticQ = policy.steps.q  # type: ignore[attr-defined]
    keys = jax.random.split(key, len(qs.encoder))
    encoders, losses = jax.vmap(lambda key, q, tuples: represent(key, q, tuples, added, config))(keys, qs, tuples)
    qs = eqx.tree_at(lambda q: q.encoder, qs, encoders)
    known = jnp.arange(tuples.actions.shape[1]) < added

    def plan(after: tuple[OptimisticQ, Array], step: tuple) -> tuple[tuple[OptimisticQ, Array], OptimisticQ]:
        (following, last), (q, tuples) = after, step
        value = jnp.where(last | tuples.terminals, 0.0, following(tuples.next_states).max(axis=1))
        q = q.fitted(tuples.states, tuples.actions, tuples.rewards + value, known)
        return (q, jnp.asarray(False)), q

    def backwards(qs: OptimisticQ) -> Stack:
        begin = (jax.tree.map(lambda x: x[-1], qs), jnp.asarray(True))
        return Stack(Greedy(jax.lax.scan(plan, begin, (qs, tuples), reverse=True)[1]))

    without_bonus = eqx.tree_at(lambda q: q.bonus, qs, replace_fn=jnp.zeros_like)
    return BrieeLearner(backwards(qs), backwards(without_bonus)), losses.mean()


class RepresentationGame(NamedTuple):
    """The tuples of one step, and the error of a feature map at predicting functions of their next states."""

    states: Float[Array, "n obs"]
    actions: Float[Array, "n actions"]
    next_states: Float[Array, "n obs"]
    ridge: float

    def error(self, encoder: Array, batch: Int[Array, " b"], targets: Float[Array, "b t"]) -> Float[Array, ""]:
        return projection(encoder, RegressionData(self.states[batch], self.actions[batch], targets), self.ridge)[1]

    def gap(self, network: MLP, rival: Array, encoder: Array, batch: Int[Array, " b"]) -> Float[Array, ""]:
        """How much worse than the rival φ̃ the features φ predict the discriminator."""
        targets = discriminate(network, self.next_states[batch])
        return self.error(encoder, batch, targets) - self.error(rival, batch, targets)


def represent(
    key: PRNGKeyArray, q: OptimisticQ, tuples: Tuples, added: Int[Array, ""], config: BrieeConfig
) -> tuple[Float[Array, "obs latents"], Float[Array, ""]]:
    """The game at one step: a new discriminator f and its rival φ̃, then φ against all discriminators so far."""
    actions = jax.nn.one_hot(tuples.actions, len(q.weights))
    game = RepresentationGame(q.scale * tuples.states, actions, tuples.next_states, config.ridge)

    def batches(key: PRNGKeyArray) -> Int[Array, "updates batch"]:
        return draw(key, added, len(actions), config.recent, (config.updates, config.batch))

    def one_round(carry: tuple, r: Int[Array, ""]) -> tuple[tuple, Float[Array, ""]]:
        encoder, state, outputs = carry
        keys = Keys(key).at(r)
        network, _ = accuse(keys, game, encoder, batches(keys.accuse), config)
        outputs = outputs.at[:, r].set(discriminate(network, game.next_states)[:, 0])  # once, not at every update
        encoder, state, losses = answer(game, encoder, state, outputs, batches(keys.answer), config)
        return (encoder, state, outputs), losses[-1]

    start = (q.encoder, optimiser(config).init(q.encoder), jnp.zeros((len(actions), config.rounds)))
    (encoder, _, _), losses = jax.lax.scan(one_round, start, jnp.arange(config.rounds))
    return encoder, losses[-1]


def accuse(
    keys: Keys,
    game: RepresentationGame,
    encoder: Array,
    batches: Int[Array, "updates b"],
    config: BrieeConfig,
) -> tuple[MLP, Float[Array, "obs latents"]]:
    """A new discriminator f that widens the gap between φ and φ̃, and the rival φ̃, which predicts f as well as it can."""
    sizes = (game.next_states.shape[1], config.hidden, config.hidden, 1)
    player = (MLP.create(keys.network, sizes), jax.random.normal(keys.rival, encoder.shape) / len(encoder) ** 0.5)

    def narrowness(player: tuple[MLP, Array], batch: Int[Array, " b"]) -> Float[Array, ""]:
        return -game.gap(player[0], player[1], encoder, batch)

    def update(carry: tuple, batch: Int[Array, " b"]) -> tuple[tuple, None]:
        player, state = carry
        updates, state = optimiser(config).update(jax.grad(narrowness)(player, batch), state)
        return (optax.apply_updates(player, updates), state), None

    return jax.lax.scan(update, (player, optimiser(config).init(player)), batches)[0][0]


def answer(
    game: RepresentationGame,
    encoder: Array,
    state: optax.OptState,
    outputs: Float[Array, "n rounds"],
    batches: Int[Array, "updates b"],
    config: BrieeConfig,
) -> tuple[Array, optax.OptState, Float[Array, " updates"]]:
    """φ learns to predict all discriminators so far."""

    def update(carry: tuple, batch: Int[Array, " b"]) -> tuple[tuple, Float[Array, ""]]:
        encoder, state = carry
        loss, gradient = jax.value_and_grad(game.error)(encoder, batch, outputs[batch])
        updates, state = optimiser(config).update(gradient, state)
        return (optax.apply_updates(encoder, updates), state), loss

    (encoder, state), losses = jax.lax.scan(update, (encoder, state), batches)
    return encoder, state, losses


def optimiser(config: BrieeConfig) -> optax.GradientTransformation:
    return optax.sgd(config.learning_rate, config.momentum)


def draw(key: PRNGKeyArray, added: Int[Array, ""], room: int, recent: int, shape: tuple[int, ...]) -> Int[Array, ...]:
    """Rows of the buffer, half of them from the `recent` newest ones if there is such a number."""
    keys = Keys(key)
    where, filled = jax.random.uniform(keys.row, shape), jnp.minimum(added, room)
    anywhere = (where * filled).astype(int)
    if not recent:
        return anywhere
    newest = (added - 1 - (where * jnp.minimum(filled, recent)).astype(int)) % room
    return jnp.where(jax.random.bernoulli(keys.which, shape=shape), newest, anywhere)


def discriminate(network: MLP, states: Float[Array, "n obs"]) -> Float[Array, "n 1"]:
    """A discriminator is bounded, or it would widen any gap by its scale alone."""
    return jnp.tanh(network(states))
