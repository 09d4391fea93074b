"""Least squares that notices when it is stuck.

One bad fit ruins every step that comes after it. So a fit is several restarts side by side (one of them warm, where there
is something to start from), judged by held-out loss. If no second restart comes near the best one, the fit is not trusted
and is redone with fresh restarts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.directions import PrincipalDirections
from hyrlo.core.intervals import intervals
from hyrlo.core.latents import LatentCounts, counted_q
from hyrlo.core.networks import MLP, LatentQ, latent_state, pick
from hyrlo.core.ranges import Count, InnerShare, NonNegative, Options, Positive, TwoOrMore

CHECKS = 30  # how often in a fit the held-out loss is looked at
LEAST_WITHIN = 1e-3  # variance within a latent state, along directions of variance 1
NEVER = 1e9  # logit of a latent state that no sample is in
WORSE = 0.01  # discriminants are taken if they explain at most this share less of what can be explained
NEAR = 0.1  # a restart is near the best if it explains this share less of what can be explained


@dataclass(frozen=True)
class FitConfig(Options):
    """Least-squares regression on (s, a): what every way to fit has."""

    expert: ClassVar[tuple[str, ...]] = ("rounds", "held_out", "decay")
    """Options that only `--help-all` shows."""
    updates: Count = 120
    """Gradient steps of each restart."""
    learning_rate: Positive = 0.02
    """Learning rate (Adam)."""
    restarts: Count = 8
    """Fits side by side; the one with the least held-out loss is taken."""
    rounds: Count = 4
    """Most rounds of restarts, while no second restart comes near the best one."""
    held_out: InnerShare = 0.2
    """Share of the samples that is held out to choose among restarts."""


@dataclass(frozen=True)
class LatentProjection(FitConfig):
    """HyQ's softmax encoder ⊗ action, the head in closed form, full-batch gradients on the encoder."""

    prior: ClassVar[Literal["mean", "zero"]] = "mean"
    """What is expected of a latent state and action never seen: the mean target, or nothing."""
    latents: TwoOrMore = 3
    """Number of latent states."""
    directions: Count = 8
    """The encoder sees the states along this many principal directions; fewer overfit less."""
    decay: NonNegative = 0.01
    """L2 penalty on the encoder, for states and targets of variance one."""
    ridge: Positive = 1.0
    """Pseudo-samples per latent state and action, all at the prior."""


@dataclass(frozen=True)
class LatentSgd(FitConfig):
    """HyQ's softmax encoder ⊗ action, all weights by minibatches, stopped early by held-out loss: the paper's regression."""

    prior: ClassVar[Literal["mean", "zero"]] = "mean"
    latents: TwoOrMore = 3
    """Number of latent states."""
    batch: Count = 128
    """Samples per update."""
    ridge: Positive = 1.0
    """Pseudo-samples per latent state and action of the final head, all at the mean target."""


@dataclass(frozen=True)
class MlpSgd(FitConfig):
    """One hidden tanh layer, all weights by minibatches, stopped early by held-out loss."""

    hidden: Count = 64
    """Width of the hidden layer."""
    batch: Count = 128
    """Samples per update."""


LatentFit = LatentProjection | LatentSgd


class RegressionData(NamedTuple):
    """Regression data; the last `held_out` rows are not trained on."""

    states: Float[Array, "n obs"]
    actions: Float[Array, "n actions"]  # one-hot
    targets: Float[Array, "n targets"]

    def split(self, share: float) -> tuple[RegressionData, RegressionData]:
        train = len(self.states) - max(1, int(len(self.states) * share))
        return RegressionData(*(x[:train] for x in self)), RegressionData(*(x[train:] for x in self))


class FitReport(NamedTuple):
    """How a fit went: held-out loss of the best restart, of predicting the mean, and rounds of restarts used."""

    loss: float
    baseline: float
    rounds: int


class SearchProblem(Protocol):
    """What is searched for (`start` makes a random one) and the losses that lead the search."""

    @property
    def stops_early(self) -> bool: ...

    def start(self, key: PRNGKeyArray, samples: RegressionData) -> Any: ...

    def train_loss(self, key: PRNGKeyArray, parameters: Any, train: RegressionData) -> Float[Array, ""]: ...

    def test_loss(self, parameters: Any, train: RegressionData, test: RegressionData) -> Float[Array, ""]: ...


class MinibatchQ(eqx.Module):
    """A Q-function, all its weights by stochastic gradients: the paper's regression."""

    config: LatentSgd | MlpSgd = eqx.field(static=True)
    stops_early: bool = eqx.field(static=True, default=True)

    def start(self, key: PRNGKeyArray, samples: RegressionData) -> eqx.Module:
        return create_q(key, samples.states.shape[1], samples.actions.shape[1], self.config)

    def train_loss(self, key: PRNGKeyArray, parameters: Any, train: RegressionData) -> Float[Array, ""]:
        rows = jax.random.randint(key, (self.config.batch,), 0, len(train.states))
        return self.test_loss(parameters, train, RegressionData(*(x[rows] for x in train)))

    def test_loss(self, parameters: Any, train: RegressionData, test: RegressionData) -> Float[Array, ""]:
        predicted = jnp.sum(parameters(test.states) * test.actions, axis=1, keepdims=True)
        return jnp.mean((predicted - test.targets) ** 2)


class LatentRegression(eqx.Module):
    """`E[y | s, a]` as a table over a soft latent state of `s` and the action, for any number of targets."""

    encoder: Float[Array, "rows latents"]
    head: Float[Array, "actions latents targets"]
    mean: Float[Array, " targets"]

    @classmethod
    def project(
        cls, encoder: Float[Array, "rows latents"], samples: RegressionData, config: LatentFit
    ) -> LatentRegression:
        """The best head for a given encoder: ridge regression in closed form, one small system per action."""
        return projection(encoder, samples, config.ridge, config.prior)[0]

    def latents(self, states: Float[Array, "n obs"]) -> Float[Array, "n latents"]:
        return latent_state(states, self.encoder)

    def loss(self, samples: RegressionData) -> Float[Array, ""]:
        predicted = jnp.einsum("na,nk,akt->nt", samples.actions, self.latents(samples.states), self.head) + self.mean
        return jnp.mean(jnp.sum((predicted - samples.targets) ** 2, axis=1))


def projection(
    encoder: Float[Array, "rows latents"],
    samples: RegressionData,
    ridge: float,
    prior: Literal["mean", "zero"] = "mean",
) -> tuple[LatentRegression, Float[Array, ""]]:
    """The regression with the best head, and its loss on the same samples.

    Both follow from sums over the samples. Samples are the last axis throughout: such products are several times faster.
    """
    size = samples.states.shape[1]  # a further row is an offset, as in `latent_state`
    latents = jax.nn.softmax(encoder[:size].T @ samples.states.T + encoder[size:].sum(axis=0)[:, None], axis=0)
    mean = samples.targets.mean(axis=0) * (prior == "mean")
    centred = samples.targets.T - mean[:, None]
    n, shape = len(samples.states), (samples.actions.shape[1], len(latents), -1)
    features = (samples.actions.T[:, None] * latents).reshape(-1, n)
    sums = features @ jnp.concatenate([latents, centred]).T
    gram, moments = sums[:, : len(latents)].reshape(shape), sums[:, len(latents) :].reshape(shape)
    head = jnp.linalg.solve(gram + ridge * jnp.eye(len(latents)), moments)
    explained = 2 * jnp.sum(head * moments) - jnp.sum(head * (gram @ head))
    return LatentRegression(encoder, head, mean), (jnp.sum(centred**2) - explained) / n


class EncoderSearch(eqx.Module):
    """The encoder of a `LatentRegression`, its head projected out (variable projection)."""

    config: LatentProjection = eqx.field(static=True)
    stops_early: bool = eqx.field(static=True, default=False)

    def start(self, key: PRNGKeyArray, samples: RegressionData) -> Float[Array, "directions+1 latents"]:
        return jax.random.normal(key, (samples.states.shape[1] + 1, self.config.latents))

    def train_loss(self, key: PRNGKeyArray, parameters: Any, train: RegressionData) -> Float[Array, ""]:
        variance = jnp.sum(jnp.var(train.targets, axis=0)) + 1e-12
        loss = projection(parameters, train, self.config.ridge, self.config.prior)[1]
        return loss / variance + self.config.decay * jnp.sum(parameters**2)

    def test_loss(self, parameters: Any, train: RegressionData, test: RegressionData) -> Float[Array, ""]:
        return LatentRegression.project(parameters, train, self.config).loss(test)


@eqx.filter_jit
def run_restarts(
    key: PRNGKeyArray, problem: SearchProblem, samples: RegressionData, warm: Any, config: FitConfig
) -> tuple[Any, Float[Array, " r"], Float[Array, ""]]:
    """The restarts where they ended and their held-out losses; the first ones start from `warm` (a leading axis of some; those
    beyond the number of restarts are left out).

    All see the same minibatches: one matrix product serves all.
    """
    start_key, batch_key = jax.random.split(key)
    train, test = samples.split(config.held_out)
    optimiser = optax.adam(config.learning_rate)
    restarts = jax.vmap(lambda k: problem.start(k, samples))(jax.random.split(start_key, config.restarts))
    if warm is not None:
        restarts = jax.tree.map(lambda many, some: many.at[: len(some)].set(some[: len(many)]), restarts, warm)

    def update(t: Int[Array, ""], learner: tuple) -> tuple:
        def one(parameters: Any, state: Any) -> tuple[Any, Any]:
            gradient = jax.grad(lambda p: problem.train_loss(jax.random.fold_in(batch_key, t), p, train))(parameters)
            updates, state = optimiser.update(gradient, state)
            return optax.apply_updates(parameters, updates), state

        return jax.vmap(one)(*learner)

    def updates_and_check(carry: tuple, interval: Int[Array, " 2"]) -> tuple[tuple, None]:
        learner, best, best_loss = carry
        learner = jax.lax.fori_loop(interval[0], interval[1], update, learner)
        now = jax.vmap(lambda p: problem.test_loss(p, train, test))(learner[0])
        if not problem.stops_early:
            return (learner, learner[0], now), None
        choose = jax.vmap(lambda better, new, old: jax.tree.map(lambda x, y: jnp.where(better, x, y), new, old))
        return (learner, choose(now < best_loss, learner[0], best), jnp.minimum(now, best_loss)), None

    start = ((restarts, jax.vmap(optimiser.init)(restarts)), restarts, jnp.full(config.restarts, jnp.inf))
    (_, best, losses), _ = jax.lax.scan(updates_and_check, start, intervals(config.updates, CHECKS))
    baseline = jnp.mean(jnp.sum((test.targets - train.targets.mean(axis=0)) ** 2, axis=1))
    return best, losses, baseline


@eqx.filter_jit
def _take(many: Any, index: Int[Array, ""]) -> Any:
    return jax.tree.map(lambda x: x[index], many)


def search(
    key: PRNGKeyArray, problem: SearchProblem, samples: RegressionData, config: FitConfig, warm: Any = None
) -> tuple[Any, FitReport]:
    """The best of the restarts, once a second one agrees with it."""
    best, best_loss = None, float("inf")
    some = None if warm is None else jax.tree.map(lambda x: x[None], warm)
    for attempt in range(1, config.rounds + 1):
        found, losses, baseline = run_restarts(jax.random.fold_in(key, attempt), problem, samples, some, config)
        winner = int(jnp.argmin(losses))
        if best is None or float(losses[winner]) < best_loss:
            best, best_loss = _take(found, jnp.asarray(winner)), float(losses[winner])
        near = losses <= best_loss + NEAR * jnp.maximum(baseline - best_loss, 0.0)
        if int(near.sum()) >= min(2, config.restarts):
            break
    return best, FitReport(best_loss, float(baseline), attempt)


@eqx.filter_jit
def sharpen(
    encoder: Float[Array, "k+1 latents"], samples: RegressionData, config: LatentProjection
) -> Float[Array, "k+1 latents"]:
    """The encoder by linear discriminants of its own latent states; if that predicts worse, at the best of some scales.

    The L2 penalty finds directions, but leaves latents soft and their borders where they happen to be. A border near a latent
    state costs one state in some hundreds, which no held-out loss shows.
    """
    train, test = samples.split(config.held_out)
    scales = 2.0 ** jnp.arange(6)
    held_out = lambda encoder: LatentRegression.project(encoder, train, config).loss(test)  # noqa: E731
    losses = jax.vmap(lambda scale: held_out(scale * encoder))(scales)
    scaled, baseline = scales[jnp.argmin(losses)] * encoder, jnp.sum(jnp.var(test.targets, axis=0))
    refined = discriminants(encoder, samples.states)
    slack = WORSE * jnp.maximum(baseline - losses.min(), 0.0)
    return jnp.where(held_out(refined) <= losses.min() + slack, refined, scaled)


def discriminants(encoder: Float[Array, "k+1 latents"], states: Float[Array, "n k"]) -> Float[Array, "k+1 latents"]:
    """Linear discriminant analysis of the states by their likeliest latent state: borders lie midway between the means."""
    label = jax.nn.one_hot(jnp.argmax(latent_state(states, encoder), axis=1), encoder.shape[1])
    count = label.sum(axis=0)
    means = label.T @ states / jnp.maximum(count, 1.0)[:, None]
    within = states - label @ means
    weights = jnp.linalg.solve(within.T @ within / len(states) + LEAST_WITHIN * jnp.eye(states.shape[1]), means.T)
    offset = jnp.where(count > 0, -0.5 * jnp.sum(means.T * weights, axis=0), -NEVER)
    return jnp.append(weights, offset[None], axis=0)


def refit_encoder(
    key: PRNGKeyArray, samples: RegressionData, warm: Float[Array, "w obs+1 latents"], config: LatentProjection
) -> tuple[Float[Array, "obs+1 latents"], Float[Array, ""]]:
    """As `fit_encoder` under `jit`: one round of restarts, the first of them from `warm`, and the held-out loss."""
    directions = PrincipalDirections.of(samples.states, config.directions)
    inside = samples._replace(states=directions(samples.states))
    started = jax.vmap(directions.encoder_inside)(warm)
    found, losses, _ = run_restarts(key, EncoderSearch(config), inside, started, config)
    return directions.encoder_of_states(sharpen(found[jnp.argmin(losses)], inside, config)), losses.min()


def fit_encoder(
    key: PRNGKeyArray,
    samples: RegressionData,
    config: LatentProjection,
    warm: Float[Array, "obs+1 latents"] | None = None,
) -> tuple[Float[Array, "obs+1 latents"], FitReport]:
    """The encoder of the soft latent state that best predicts the targets, searched among the principal directions."""
    directions = eqx.filter_jit(PrincipalDirections.of)(samples.states, config.directions)
    inside = samples._replace(states=directions(samples.states))
    warm = None if warm is None else directions.encoder_inside(warm)
    found, report = search(key, EncoderSearch(config), inside, config, warm)
    return directions.encoder_of_states(sharpen(found, inside, config)), report


def create_q(key: PRNGKeyArray, observations: int, actions: int, config: FitConfig | LatentCounts) -> LatentQ | MLP:
    if isinstance(config, LatentCounts):
        return LatentQ.create(key, observations + 1, actions, config.latents)
    if isinstance(config, MlpSgd):
        return MLP.create(key, (observations, config.hidden, actions))
    assert isinstance(config, LatentProjection | LatentSgd)
    offset = isinstance(config, LatentProjection)
    return LatentQ.create(key, observations + offset, actions, config.latents)


@eqx.filter_jit
def latent_q(encoder: Float[Array, "rows latents"], samples: RegressionData, config: LatentFit) -> LatentQ:
    regression = LatentRegression.project(encoder, samples, config)
    return LatentQ(encoder, regression.head[..., 0].T, regression.mean[0])


def fit_q(
    key: PRNGKeyArray,
    states: Float[Array, "n obs"],
    actions: Int[Array, " n"],
    targets: Float[Array, " n"],
    action_count: int,
    config: FitConfig | LatentCounts,
    warm: LatentQ | MLP | None = None,
) -> tuple[LatentQ | MLP, FitReport]:
    """`argmin_f Σ (f(s, a) − target)²`."""
    if isinstance(config, LatentCounts):
        q = counted_q(np.asarray(states), np.asarray(actions), np.asarray(targets), action_count, config)
        residual = targets - pick(q(states), actions)
        return q, FitReport(float(jnp.mean(residual**2)), float(jnp.var(targets)), 1)
    samples = RegressionData(states, jax.nn.one_hot(actions, action_count), targets[:, None])
    if isinstance(config, LatentProjection):
        encoder, report = fit_encoder(key, samples, config, warm.encoder if isinstance(warm, LatentQ) else None)
        return latent_q(encoder, samples, config), report
    assert isinstance(config, LatentSgd | MlpSgd)
    q, report = search(key, MinibatchQ(config), samples, config, warm)
    return (q if isinstance(config, MlpSgd) else latent_q(q.encoder, samples, config)), report
