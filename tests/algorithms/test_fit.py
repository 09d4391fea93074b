"""A fit is trusted once two restarts agree, is redone until then, and is judged by rows that it is not trained on.

Fits and games make as many updates as asked for.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.core.directions import unexplained
from hyrlo.core.intervals import intervals
from hyrlo.core.networks import latent_state
from hyrlo.core.regression import (
    EncoderSearch,
    FitConfig,
    LatentProjection,
    LatentSgd,
    MinibatchQ,
    MlpSgd,
    RegressionData,
    discriminants,
    run_restarts,
    search,
)
from hyrlo.forward.minmax import GameConfig, play, softmax_network


class Plateau(eqx.Module):
    """Nothing to learn: a restart stays where it starts, at random or at one."""

    agree: bool = eqx.field(static=True)
    stops_early: bool = eqx.field(static=True, default=True)

    def start(self, key, samples):
        return jnp.ones(()) if self.agree else jax.random.normal(key)

    def train_loss(self, key, parameters, train):
        return 0.0 * parameters

    def test_loss(self, parameters, train, test):
        return parameters**2


@pytest.mark.parametrize(("agree", "rounds"), [(True, 1), (False, 3)])
def test_a_fit_without_agreement_is_redone_and_the_best_is_kept(agree, rounds):
    samples = RegressionData(jnp.zeros((10, 2)), jnp.zeros((10, 2)), jnp.zeros((10, 1)))
    config = FitConfig(restarts=4, rounds=3, updates=2)
    best, report = search(jax.random.key(0), Plateau(agree), samples, config)
    assert report.rounds == rounds
    assert float(best) ** 2 == pytest.approx(report.loss, rel=1e-5)
    once = search(jax.random.key(0), Plateau(agree), samples, FitConfig(restarts=4, rounds=1, updates=2))[1]
    assert report.loss <= once.loss


class Mean(eqx.Module):
    """One number that is to be the mean target."""

    stops_early: bool = eqx.field(static=True)

    def start(self, key, samples):
        return jnp.full((), 0.5)

    def train_loss(self, key, parameters, train):
        return jnp.mean((parameters - train.targets) ** 2)

    def test_loss(self, parameters, train, test):
        return self.train_loss(None, parameters, test)


def rows(n=20, held_out=5):
    """Samples whose targets are 0, but 1 in the last rows."""
    states, actions = jax.random.normal(jax.random.key(1), (n, 3)), jax.nn.one_hot(jnp.arange(n) % 2, 2)
    return RegressionData(states, actions, jnp.where(jnp.arange(n) < n - held_out, 0.0, 1.0)[:, None])


@pytest.mark.parametrize(("n", "share", "held_out"), [(20, 0.25, 5), (7, 0.2, 1), (3, 0.01, 1)])
def test_the_last_rows_are_held_out_and_no_row_is_in_both_parts(n, share, held_out):
    samples = RegressionData(*(jnp.arange(float(n))[:, None] + shift for shift in (0, 100, 200)))
    train, test = samples.split(share)
    assert len(test.states) == held_out
    for whole, first, last in zip(samples, train, test, strict=True):
        np.testing.assert_array_equal(jnp.concatenate([first, last]), whole)


def test_the_mean_is_that_of_the_rows_to_train_on_and_its_loss_that_of_the_others():
    """Trained on targets 0 it becomes 0, which is wrong by 1 on the held-out rows. With them it would be 0.25."""
    config = FitConfig(restarts=2, updates=300, learning_rate=0.05, held_out=0.25)
    found, losses, baseline = run_restarts(jax.random.key(0), Mean(False), rows(), None, config)
    np.testing.assert_allclose(found, 0.0, atol=0.01)
    np.testing.assert_allclose(losses, 1.0, atol=0.02)
    assert float(baseline) == pytest.approx(1.0)


def test_held_out_rows_say_when_to_stop():
    """Every update leads away from the held-out mean, so the first iterate that is looked at is kept."""
    config = FitConfig(restarts=1, updates=30, learning_rate=0.01, held_out=0.25)
    found, losses, _ = run_restarts(jax.random.key(0), Mean(True), rows(), None, config)
    np.testing.assert_allclose(found, 0.49, atol=1e-4)
    np.testing.assert_allclose(losses, 0.51**2, atol=1e-4)


@pytest.mark.parametrize(
    "problem",
    [
        EncoderSearch(LatentProjection(latents=2)),
        MinibatchQ(LatentSgd(latents=2, batch=64)),
        MinibatchQ(MlpSgd(hidden=4, batch=64)),
    ],
    ids=lambda problem: type(problem.config).__name__,
)
def test_no_regression_sees_the_held_out_rows(problem):
    """Other targets there change the loss, but not one bit of what is learned."""
    samples = rows()._replace(targets=jax.random.normal(jax.random.key(2), (20, 1)))
    poisoned = samples._replace(targets=samples.targets.at[15:].multiply(-1000.0))
    config = FitConfig(restarts=3, updates=1, held_out=0.25)
    (found, losses, _), (same, large, _) = (
        run_restarts(jax.random.key(0), problem, data, None, config) for data in (samples, poisoned)
    )
    jax.tree.map(np.testing.assert_array_equal, found, same)
    assert (large > 1000 * losses).all()


class Slope(eqx.Module):
    """A slope of one: every update of Adam is one learning rate downhill, so the way down counts the updates."""

    stops_early: bool = eqx.field(static=True)

    def start(self, key, samples):
        return jnp.zeros(())

    def train_loss(self, key, parameters, train):
        return parameters

    def test_loss(self, parameters, train, test):
        return parameters


@pytest.mark.parametrize("updates", [1, 7, 59, 2000])
@pytest.mark.parametrize("stops_early", [True, False])
def test_a_fit_makes_as_many_updates_as_asked_for(updates, stops_early):
    samples = RegressionData(jnp.zeros((10, 2)), jnp.zeros((10, 2)), jnp.zeros((10, 1)))
    config = FitConfig(restarts=2, rounds=1, updates=updates, learning_rate=2.0**-7)
    found, _ = search(jax.random.key(0), Slope(stops_early), samples, config)
    assert float(found) * -(2**7) == pytest.approx(updates, abs=0.1)


class Counter(eqx.Module):
    """A discriminator that remembers how often it was asked; the more often, the smaller the distance it finds."""

    all_samples: bool = eqx.field(static=True, default=False)

    def embed(self, policy, batch):
        return jnp.ones(())

    def inner(self, witness, embedding):
        return witness

    def start(self):
        return jnp.zeros(())

    def respond(self, memory, embedding, thorough=False):
        return 1 / (1 + memory), memory + 1


@pytest.mark.parametrize("iterations", [1, 19, 59, 1000])
def test_a_game_has_as_many_rounds_as_asked_for(iterations):
    policy, config = softmax_network(jax.random.key(0), (2, 2)), GameConfig(iterations=iterations)
    _, distance = play(jax.random.key(0), policy, jnp.zeros((4, 2)), Counter(), config, memory=0.0)
    assert 1 / float(distance) ** 2 - 1 == pytest.approx(iterations, rel=1e-3)


@pytest.mark.parametrize(("updates", "most"), [(1, 30), (30, 30), (59, 30), (2000, 30), (5, 2)])
def test_intervals_cover_every_update_once_and_evenly(updates, most):
    parts = [range(*interval) for interval in intervals(updates, most).tolist()]
    assert [t for part in parts for t in part] == list(range(updates))
    assert len(parts) == min(updates, most)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_more_warm_starts_than_restarts_are_left_out():
    """HyQ has two warm starts; `--fit.restarts 1` keeps the first."""
    samples = rows()._replace(targets=jax.random.normal(jax.random.key(2), (20, 1)))
    config = LatentProjection(latents=2, restarts=1, updates=3)
    warm = jax.random.normal(jax.random.key(3), (2, 4, 2))
    one, _, _ = run_restarts(jax.random.key(0), EncoderSearch(config), samples, warm[:1], config)
    both, _, _ = run_restarts(jax.random.key(0), EncoderSearch(config), samples, warm, config)
    np.testing.assert_array_equal(one, both)


def test_discriminants_put_the_border_midway_between_latent_states():
    """A border close to one of two latent states moves to the middle, whatever their shares; an empty one is never chosen."""
    rng = np.random.default_rng(0)
    second = np.arange(1000) < 100  # one state in ten
    states = rng.normal(0, 0.1, (1000, 2)) + np.where(second[:, None], [3.0, 1.0], [-1.0, 1.0])
    skewed = jnp.asarray([[-2.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, -1.0, -50.0]])  # its border is at 0.5
    found = discriminants(skewed, jnp.asarray(states, jnp.float32))
    along = jnp.linspace(-1.0, 3.0, 401)
    best = np.argmax(latent_state(jnp.stack([along, jnp.ones(401)], axis=1), found), axis=1)
    assert set(best.tolist()) == {0, 1}
    assert float(along[np.argmax(best == 1)]) == pytest.approx(1.0, abs=0.1)


def test_noise_is_what_the_leading_direction_leaves_unexplained():
    """One factor behind ten dimensions: correlation l lᵀ off the diagonal, noise variance 1 − l², in closed form."""
    loadings = np.linspace(0.3, 0.9, 10)
    correlation = np.outer(loadings, loadings) + np.diag(1 - loadings**2)
    found = np.asarray(unexplained(jnp.asarray(correlation, jnp.float32), 1)) ** 2
    assert (np.diff(found) < 0).all()  # the more a dimension shares, the less noise it has
    np.testing.assert_allclose(found, 1 - loadings**2, atol=0.2)
