"""Small Gymnasium worlds, policies and commands for the tests of the adapter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.core.policies import Policy
from hyrlo.envs.gym.collect import collect_transitions

KEY = jax.random.key(3)
LOCK_ID = "gym:hyrlo/CombinationLock-v0"
TEMPTING = "gym:tests.gym_envs:Tempting-v0"
FIRST, SECOND = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
"""States of `Tempting`."""
WALK, SPACES = "gym:tests.gym_envs:Walk-v0", "gym:tests.gym_envs:Spaces-v0"


class Constant(Policy):
    """One action vector, whatever it sees."""

    action: jax.Array

    def act(self, key, observations, h):
        return jnp.broadcast_to(self.action, (len(observations), *self.action.shape))


def walk(horizon=None, num_envs=4, asynchronous=False, **kwargs):
    return hyrlo.make(WALK, horizon, num_envs=num_envs, asynchronous=asynchronous, kwargs=kwargs)


def tempting(n=200):
    """The world and tuples of uniform actions."""
    world = hyrlo.make(TEMPTING)
    return world, collect_transitions(world, [], n)


def every(world):
    return tuple(range(world.spec.horizon))


def same(one, other):
    for name, x, y in zip(one._fields, one, other, strict=True):
        assert (x is None) == (y is None), name
        if x is not None:
            np.testing.assert_array_equal(x, y, err_msg=name)


def message(call):
    with pytest.raises(hyrlo.HyrloError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def small_data(path, horizon=3, size=2, n=20):
    np.savez(path, observations=np.random.default_rng(0).normal(size=(n, horizon + 1, size)).astype(np.float32))
    return str(path)


SMALL = [
    "--forward", "regression",
    "--samples", "40", "--offline-samples", "20", "--witness.features", "16", "--game.iterations", "5",
    "--game.learning-rate", "0.001",
    "--curve-episodes", "4", "--eval-episodes", "4",
]  # fmt: skip
