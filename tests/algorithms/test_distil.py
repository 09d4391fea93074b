"""One policy from a roll-in: its mean action, and where it ends up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyrlo.baselines.distil import DistilConfig, distil
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.policies import Policy
from hyrlo.runs.directory import MemoryRun
from tests.pointmass import PointMass

KEY = jax.random.key(0)
CONFIG = DistilConfig(episodes=400, hidden=32, updates=1500)


class Home(Policy):
    """Back to 0.6 with much noise, as a vector or as one of three actions."""

    discrete: bool = False

    def act(self, key, observations, h):
        wish = jnp.clip(1.2 - 2 * observations, -0.8, 0.8) + 0.4 * jax.random.normal(key, observations.shape)
        return (jnp.round(jnp.clip(wish[:, 0], -1, 1)) + 1).astype(int) if self.discrete else wish


@pytest.mark.parametrize("discrete", [False, True])
def test_it_does_without_noise_what_the_roll_in_does_on_average(discrete):
    model = JaxTraceModel(PointMass(discrete=discrete))
    policy = distil(model, Home(discrete), CONFIG, KEY, MemoryRun(curve_episodes=2))
    assert model.ledger.episodes == 400
    batch = model.evaluation().record(KEY, Home(discrete), 400, steps=(2,))
    states = batch.states[0]
    one, other = (policy.act(jax.random.key(i), states, 0) for i in range(2))
    np.testing.assert_array_equal(one, other)
    if discrete:
        wanted = np.round(np.clip(1.2 - 2 * states[:, 0], -0.8, 0.8)) + 1
        assert (np.asarray(one) == wanted).mean() > 0.8
    else:
        np.testing.assert_allclose(one, np.clip(1.2 - 2 * states, -0.8, 0.8), atol=0.25)
