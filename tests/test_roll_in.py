"""Roll-ins that cannot act in the world, or not for all of its steps, are refused before anything is played."""

import jax
import jax.numpy as jnp
import pytest

import hyrlo
from hyrlo.core.errors import HyrloError
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Gaussian, Mixture, Softmax, Stack, Uniform, known_steps, switch

STATES = 8  # of the lock with three steps


def network(inputs=STATES):
    return MLP.create(jax.random.key(0), (inputs, 10))


def stack(steps, every=1):
    return Stack.repeat(Softmax(network()), steps, every)


@pytest.mark.parametrize(
    ("roll_in", "said"),
    [
        (Softmax(network(5)), "other states or actions than those of lock"),
        (Gaussian(network(), jnp.zeros(10)), "other states or actions than those of lock"),
        (stack(2), "has policies for 2 steps"),
        (Mixture(stack(3), stack(2), jnp.asarray(0.5)), "has policies for 2 steps"),
    ],
)
def test_a_roll_in_that_does_not_fit_is_refused(roll_in, said):
    with pytest.raises(HyrloError, match=said):
        hyrlo.train("psdp-trace", hyrlo.make("lock", horizon=3), roll_in=roll_in)


def test_the_shortest_stack_says_for_how_many_steps_there_is_a_policy():
    assert known_steps(Uniform(10)) is None
    assert known_steps(Stack(Uniform(10))) is None
    assert known_steps(stack(6, every=3)) == 6
    assert known_steps(switch(stack(5), at=jnp.arange(4), to=Mixture(Uniform(10), stack(4), jnp.asarray(0.1)))) == 4
