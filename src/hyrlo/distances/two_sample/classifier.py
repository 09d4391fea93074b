"""Classifiers of roll-in against data, judged on states that they were not trained on."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import scipy.stats
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.core.intervals import intervals
from hyrlo.core.networks import MLP
from hyrlo.distances.mmd import compared_features
from hyrlo.distances.two_sample.config import TestConfig
from hyrlo.distances.two_sample.samples import PaddedStates, Pool, median_distance

CHECKED = 4  # one in CHECKED of the states that a classifier may see is held out to choose between fits
SCALES = (1.0, 1.4, 2.0, 2.8, 4.0)
CHECKS = 15  # number of evaluations on the held-out states during a fit


class Scores(NamedTuple):
    """Classifier output on held-out states."""

    logits: Float[Array, "steps p"]
    """Estimates of log μ/d."""
    in_region: Bool[Array, "steps p"]
    """Whether the state lies in the region A, where the data are more likely."""


@eqx.filter_jit
def held_out_scores(
    key: PRNGKeyArray, roll_in: PaddedStates, data: PaddedStates, config: TestConfig, ends: bool = False
) -> tuple[Scores, Scores]:
    """Cross-fitted classifiers. Roll-in and data have equal total weight, so that the logit estimates the log density ratio."""
    n = roll_in.states.shape[1]

    def one_step(step: tuple[Array, Array, Array, Array, Array]) -> Scores:
        key, x, n_real, y, m_real = step
        pool = Pool.of(x, n_real, y, m_real, ends)
        number = jnp.concatenate([jnp.arange(len(x)), jnp.arange(len(y))])
        part = number % config.folds
        components = kernel_components(key, pool, len(x), config)

        def one_fold(fold: Array) -> Scores:
            known = pool.real & (part != fold)
            to_check = known & ((number // config.folds) % CHECKED == 0)
            fold_key = jax.random.fold_in(key, fold)
            return classify(fold_key, pool, components, known & ~to_check, to_check, config)

        by_fold = jax.vmap(one_fold)(jnp.arange(config.folds))
        return jax.tree.map(lambda x: jnp.take_along_axis(x, part[None], axis=0)[0], by_fold)

    keys = jax.random.split(key, len(roll_in.states))
    scores = jax.lax.map(one_step, (keys, *roll_in, *data))
    return jax.tree.map(lambda x: x[:, :n], scores), jax.tree.map(lambda x: x[:, n:], scores)


def kernel_components(key: PRNGKeyArray, pool: Pool, n: int, config: TestConfig) -> Float[Array, "p c"]:
    """Leading principal components of the kernel's random features, scaled to unit variance. They separate clusters."""
    frequencies = jax.random.normal(key, (pool.compared.white.shape[1], config.features // 2))
    features = compared_features(pool.compared, frequencies, median_distance(pool, n))
    weights = balanced_weights(pool.real, pool.is_data)
    centred = features - weights @ features
    variances, directions = jnp.linalg.eigh((centred * weights[:, None]).T @ centred)
    count = min(config.components, len(variances))
    return centred @ (directions[:, -count:] / jnp.sqrt(jnp.maximum(variances[-count:], 1e-6)))


def classify(
    key: PRNGKeyArray,
    pool: Pool,
    components: Float[Array, "p c"],
    to_train: Bool[Array, " p"],
    to_check: Bool[Array, " p"],
    config: TestConfig,
) -> Scores:
    """Fit two classifiers and keep the one with the smaller loss on the states `to_check`.

    A network on the states finds any difference, given enough states. A linear function of the kernel's components finds
    small differences in the frequency of clusters. The region A has the threshold with the largest gap on `to_check`, but
    never a negative one.
    """
    checked = balanced_weights(to_check, pool.is_data)
    sizes = (pool.inputs.shape[1], config.hidden, 1), (components.shape[1], 1)
    trained = balanced_weights(to_train, pool.is_data)
    fits = [
        fit_classifier(jax.random.fold_in(key, i), size, inputs, pool.is_data, trained, checked, config)
        for i, (size, inputs) in enumerate(zip(sizes, (pool.inputs, components), strict=True))
    ]
    logits = jnp.where(fits[0][1] < fits[1][1], fits[0][0], fits[1][0])
    sign = jnp.where(pool.is_data, 1.0, -1.0)
    losses = jnp.stack([checked @ jax.nn.softplus(-sign * scale * logits) for scale in SCALES])
    logits = logits * jnp.asarray(SCALES)[jnp.argmin(losses)]  # early stopping leaves the logits too small
    order = jnp.argsort(-logits)
    gaps = jnp.cumsum((checked * sign)[order])
    return Scores(logits, logits >= jnp.maximum(logits[order][jnp.argmax(gaps)], 0.0))


def fit_classifier(
    key: PRNGKeyArray,
    sizes: tuple[int, ...],
    inputs: Float[Array, "p d"],
    is_data: Bool[Array, " p"],
    trained: Float[Array, " p"],
    checked: Float[Array, " p"],
    config: TestConfig,
) -> tuple[Float[Array, " p"], Float[Array, ""]]:
    """Early stopping: logits with the smallest `checked` loss during the fit, and that loss."""
    start_key, batch_key = jax.random.split(key)
    sign = jnp.where(is_data, 1.0, -1.0)
    schedule = optax.cosine_decay_schedule(config.learning_rate, config.updates)
    optimiser = optax.adamw(schedule, weight_decay=config.decay)
    network = MLP.create(start_key, sizes, last_scale=0.01)
    cumulated = jnp.cumsum(trained)

    def loss(network: MLP, rows: Int[Array, " b"]) -> Float[Array, ""]:
        return jnp.mean(jax.nn.softplus(-sign[rows] * network(inputs[rows])[:, 0]))

    def update(t: Int[Array, ""], learner: tuple) -> tuple:
        network, state = learner
        draw = jax.random.uniform(jax.random.fold_in(batch_key, t), (config.batch,))
        rows = jnp.minimum(jnp.searchsorted(cumulated, draw), len(sign) - 1)
        updates, state = optimiser.update(jax.grad(loss)(network, rows), state, network)
        return optax.apply_updates(network, updates), state

    def updates_and_check(carry: tuple, interval: Int[Array, " 2"]) -> tuple[tuple, None]:
        learner, best, least = carry
        learner = jax.lax.fori_loop(interval[0], interval[1], update, learner)
        logits = learner[0](inputs)[:, 0]
        now = jnp.sum(checked * jax.nn.softplus(-sign * logits))
        return (learner, jnp.where(now < least, logits, best), jnp.minimum(now, least)), None

    start = ((network, optimiser.init(network)), network(inputs)[:, 0], jnp.log(2.0))
    (_, best, least), _ = jax.lax.scan(updates_and_check, start, intervals(config.updates, CHECKS))
    return best, least


def balanced_weights(rows: Bool[Array, " p"], is_data: Bool[Array, " p"]) -> Float[Array, " p"]:
    """Weights of the given rows that sum to one half over the roll-in and over the data."""
    kinds = jnp.stack([rows & ~is_data, rows & is_data])
    return (kinds / jnp.maximum(2 * kinds.sum(axis=1, keepdims=True), 1)).sum(axis=0)


def rank_test(roll_in: Float[Array, " n"], data: Float[Array, " m"], folds: int) -> float:
    """p-value for larger held-out logits on data than on the roll-in: Mann–Whitney per fold, Bonferroni over the folds."""
    each = [
        scipy.stats.mannwhitneyu(data[k::folds], roll_in[k::folds], alternative="greater").pvalue for k in range(folds)
    ]
    return float(min(1.0, folds * min(each)))
