"""A fit is trusted once two restarts agree, and redone until then."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from hyrlo.core.regression import FitConfig, RegressionData, search


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
