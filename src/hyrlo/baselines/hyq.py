"""HyQ (Song et al. 2022): fitted Q-iteration on canonical offline data and online episodes together.

Every iteration, for every step h: a few episodes roll in the greedy policy to h and act uniformly from there; then, for
h = H−1 … 0, least squares on the tuples of step h, offline and online,

    Q_h = argmin_f Σ ( f(s, a) − r − max_a' Q_{h+1}(s', a') )²,        π_h(s) = argmax_a Q_h(s, a).

The target is r alone where the step ended the episode, and at the last step.
It needs what FOOBAR does without: actions, rewards and next states in the offline data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.baselines.online import Buffer, OnlineConfig, Tuples, alternate, create_buffer, offline_counts, record_tuples
from hyrlo.core.access import Spec, TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.networks import LatentQ, pick
from hyrlo.core.policies import Greedy, Policy, Stack, switch
from hyrlo.core.ranges import Count, Options, Positive
from hyrlo.core.regression import LatentProjection, RegressionData, latent_q, refit_encoder
from hyrlo.core.variants import from_presets
from hyrlo.data.transitions import TransitionDataset


@dataclass(frozen=True)
class HyqConfig(Options):
    """Hybrid Q-learning: canonical offline data and online episodes."""

    offline_samples: Count = 2000
    """Offline tuples used per step (all, if there are fewer)."""
    batch: Count = 512
    """Tuples of a regression step."""
    online: OnlineConfig = field(default_factory=OnlineConfig)


@dataclass(frozen=True)
class HyqSgdConfig(HyqConfig):
    """HyQ with the authors' regression: minibatches on all weights, one Adam per step for the whole run."""

    updates: Count = 500
    """Gradient steps per step and iteration."""
    learning_rate: Positive = 2.5e-3
    """Learning rate (Adam)."""
    latents: Count = 3
    """Number of latent states."""


@dataclass(frozen=True)
class ZeroPriorProjection(LatentProjection):
    """As `LatentProjection`; a latent state and action never seen has value 0."""

    prior: ClassVar[Literal["mean", "zero"]] = "zero"


@dataclass(frozen=True)
class HyqProjectionConfig(HyqConfig):
    """HyQ with the head in closed form; `batch` tuples make a regression, half of them offline."""

    batch: Count = 2000
    """Tuples of a regression, half of them offline."""
    fit: ZeroPriorProjection = field(default_factory=lambda: ZeroPriorProjection(restarts=4, updates=100, ridge=0.1))

    @property
    def latents(self) -> int:
        return self.fit.latents


PRESETS = {"paper": HyqSgdConfig(), "fast": HyqProjectionConfig()}
configure = from_presets(PRESETS, "hyq")


def hyq(model: TraceModel, source: TransitionDataset, config: Any, key: PRNGKeyArray, run: Run) -> Policy:
    """Alternate between collecting with the greedy policy and regression from the last step to the first."""
    spec, each = model.spec, config.online.samples
    uniform, steps = spec.uniform(), np.repeat(np.arange(spec.horizon), each)

    def collect(key: PRNGKeyArray, t: int, policy: Policy) -> Tuples:
        exploring = switch(policy, at=steps, to=uniform)  # π ∘_h unif, a few episodes for every h
        return by_step(record_tuples(model, key, exploring, steps[None]), each)

    offline = jnp.asarray(offline_counts(spec.horizon, source))

    def learn(key: PRNGKeyArray, learner: HyqLearner, buffer: Buffer) -> tuple[HyqLearner, Float[Array, ""]]:
        rows = Rows(offline, buffer.filled, jnp.full_like(offline, buffer.begin))
        return sweep(key, learner, buffer.rows, rows, config)

    start = create_learner(Keys(key).create, spec, config)
    buffer = create_buffer(spec.horizon, spec.observation_size, each * config.online.iterations, source)
    return alternate(model, start, buffer, collect, learn, config.online, key, run)


class HyqLearner(NamedTuple):
    """The greedy policy, to explore as to exploit, and the optimiser of every step (none where fits are in closed form)."""

    exploring: Stack
    optimisers: optax.OptState

    @property
    def best(self) -> Stack:
        return self.exploring


def create_learner(key: PRNGKeyArray, spec: Spec, config: Any) -> HyqLearner:
    size = spec.observation_size + isinstance(config, HyqProjectionConfig)  # the projection finds an offset, too
    create = lambda key: LatentQ.create(key, size, spec.actions, config.latents)  # noqa: E731
    qs = jax.vmap(create)(jax.random.split(key, spec.horizon))
    optimisers = jax.vmap(lambda q: adam(config).init(turned(q)))(qs) if isinstance(config, HyqSgdConfig) else ()
    return HyqLearner(Stack(Greedy(qs)), optimisers)


class Rows(NamedTuple):
    """For every step: the number of offline tuples, of online tuples, and the row of the buffer where these begin."""

    offline: Int[Array, "*h"]
    online: Int[Array, "*h"]
    begin: Int[Array, "*h"]

    def draw(self, key: PRNGKeyArray, share: Float[Array, ""] | float, shape: tuple[int, ...]) -> Int[Array, ...]:
        """Rows of one step, a `share` of them online ones."""
        keys = Keys(key)
        from_online = jax.random.uniform(keys.which, shape) < share
        where = jax.random.uniform(keys.row, shape)
        online, offline = ((where * count).astype(int) for count in (self.online, self.offline))
        return jnp.where(from_online, self.begin + online, offline)


@eqx.filter_jit
def by_step(tuples: Tuples, each: int) -> Tuples:
    """A batch whose episodes are in the order of their steps, as one axis of steps and one of episodes."""
    return jax.tree.map(lambda x: x[0].reshape(-1, each, *x.shape[2:]), tuples)


@eqx.filter_jit
def sweep(
    key: PRNGKeyArray,
    learner: HyqLearner,
    tuples: Tuples,
    rows: Rows,
    config: Any,
) -> tuple[HyqLearner, Float[Array, ""]]:
    """Regression at h = H−1 … 0."""
    regress = sgd if isinstance(config, HyqSgdConfig) else project

    def learn(after: tuple[LatentQ, Array], step: tuple) -> tuple[tuple[LatentQ, Array], tuple]:
        (following, last), (q, optimiser, tuples, rows, key) = after, step
        over = last | tuples.terminals
        targets = tuples.rewards + jnp.where(over, 0.0, following(tuples.next_states).max(axis=1))
        neighbour = jnp.where(last, q.encoder, following.encoder)
        q, optimiser, loss = regress(key, Regression(q, optimiser, neighbour, tuples, targets, rows), config)
        return (q, jnp.asarray(False)), (q, optimiser, loss)

    qs: LatentQ = learner.exploring.steps.q  # type: ignore[attr-defined]
    begin = (jax.tree.map(lambda x: x[-1], qs), jnp.asarray(True))
    steps = (qs, learner.optimisers, tuples, rows, jax.random.split(key, len(rows.offline)))
    _, (qs, optimisers, losses) = jax.lax.scan(learn, begin, steps, reverse=True)
    return HyqLearner(Stack(Greedy(qs)), optimisers), losses.mean()


class Regression(NamedTuple):
    """The least squares of one step: what to start from, the tuples, their targets, and which rows count."""

    q: LatentQ
    optimiser: optax.OptState
    neighbour: Float[Array, "rows latents"]
    tuples: Tuples
    targets: Float[Array, " n"]
    rows: Rows


def adam(config: HyqSgdConfig) -> optax.GradientTransformation:
    return optax.adam(config.learning_rate)


def turned(q: LatentQ) -> LatentQ:
    """With the encoder transposed: its gradient is a product twice as fast this way round."""
    return eqx.tree_at(lambda m: m.encoder, q, q.encoder.T)


def sgd(key: PRNGKeyArray, step: Regression, config: HyqSgdConfig) -> tuple[LatentQ, optax.OptState, Float[Array, ""]]:
    """The authors' regression: minibatches on all weights, the encoder starting from the one just learned at h + 1.

    Adam goes on from the iteration before, as in the authors' code. Begun anew, its first steps have full length and undo
    what small steps had learned.
    """
    q, state, neighbour, tuples, targets, rows = step
    share = rows.online / (rows.offline + 2 * rows.online)  # with every online tuple, one offline tuple is added again
    batches = rows.draw(key, share, (config.updates, config.batch))

    def loss_of(q: LatentQ, batch: Int[Array, " b"]) -> Float[Array, ""]:
        values = turned(q)(tuples.states[batch])
        return jnp.mean((pick(values, tuples.actions[batch]) - targets[batch]) ** 2)

    def update(carry: tuple, batch: Int[Array, " b"]) -> tuple[tuple, Float[Array, ""]]:
        q, state = carry
        loss, gradient = jax.value_and_grad(loss_of)(q, batch)
        updates, state = adam(config).update(gradient, state)
        return (optax.apply_updates(q, updates), state), loss

    start = turned(eqx.tree_at(lambda m: m.encoder, q, neighbour))
    (q, state), losses = jax.lax.scan(update, (start, state), batches)
    return turned(q), state, losses[-1]


def project(
    key: PRNGKeyArray, step: Regression, config: HyqProjectionConfig
) -> tuple[LatentQ, tuple, Float[Array, ""]]:
    """The head in closed form; restarts from this step's encoder, from that of step h + 1, and at random.

    Half of the tuples are online ones: those tell which good action belongs to which state, of which the offline data,
    where nearly every action is right, say little.
    """
    q, no_optimiser, neighbour, tuples, targets, rows = step
    keys = Keys(key)
    batch = rows.draw(keys.draw, 0.5, (config.batch,))
    actions = jax.nn.one_hot(tuples.actions[batch], q.head.shape[1])
    samples = RegressionData(tuples.states[batch], actions, targets[batch, None])
    encoder, loss = refit_encoder(keys.fit, samples, jnp.stack([q.encoder, neighbour]), config.fit)
    return latent_q(encoder, samples, config.fit), no_optimiser, loss
