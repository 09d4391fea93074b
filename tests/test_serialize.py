"""Policies of a user's own are saved and loaded once they are registered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.core import serialize
from hyrlo.core.policies import Mixture, Uniform


class Threshold(hyrlo.Policy):
    """Action 1 where the first number of a state exceeds a limit."""

    limit: jax.Array

    def act(self, key, observations, h):
        return (observations[:, 0] > self.limit).astype(int)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(serialize, "MODULES", dict(serialize.MODULES))
    return hyrlo.register(Threshold)


def test_a_registered_policy_is_saved_and_loaded(registered, tmp_path):
    hyrlo.save_policy(tmp_path, Mixture(registered(jnp.asarray(0.5)), Uniform(2), jnp.asarray(0.0)))
    loaded = hyrlo.load_policy(tmp_path)
    states = jnp.array([[0.4], [0.6]])
    np.testing.assert_array_equal(loaded.act(jax.random.key(0), states, 0), [0, 1])


def test_a_policy_that_nobody_registered_is_an_error_before_anything_is_written(tmp_path):
    with pytest.raises(hyrlo.HyrloError, match=r"Threshold cannot be saved.*@hyrlo\.register"):
        hyrlo.save_policy(tmp_path / "new", Mixture(Uniform(2), Threshold(jnp.asarray(0.5)), jnp.asarray(0.5)))
    assert not (tmp_path / "new").exists()


def test_loading_without_its_code_says_what_to_do(registered, tmp_path, monkeypatch):
    hyrlo.save_policy(tmp_path, registered(jnp.asarray(0.5)))
    monkeypatch.delitem(serialize.MODULES, "Threshold")
    with pytest.raises(hyrlo.RunError, match="unknown module Threshold"):
        hyrlo.load_policy(tmp_path)


def test_names_are_taken_once(registered):
    assert hyrlo.register(registered) is registered  # again is fine: notebooks run cells twice
    other = type("Uniform", (hyrlo.Policy,), {"act": Threshold.act})
    with pytest.raises(hyrlo.HyrloError, match=r"is the name of hyrlo\.core\.policies\.Uniform"):
        hyrlo.register(other)
