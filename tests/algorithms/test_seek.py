"""The exploring roll-in: its density ratio, the mixture, and the locks it is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.policies import Mixture
from hyrlo.distances import StateUnits
from hyrlo.forward.seek import SeekConfig, density_ratio, seek
from hyrlo.runs.directory import MemoryRun
from tests.locks import always


def test_a_mixture_gives_its_share_of_the_episodes_to_the_second_policy():
    mixture = Mixture(always(0), always(1), jnp.asarray(0.25))
    actions = np.asarray(mixture.act(jax.random.key(0), jnp.zeros((4000, 2)), 0))
    for part in (actions, actions[:2000], actions[-800:]):
        assert part.mean() == pytest.approx(0.25, abs=0.01)
    again = mixture.act(jax.random.key(1), jnp.zeros((4000, 2)), 1)
    np.testing.assert_array_equal(actions, again)  # an episode keeps its policy


def test_density_ratio_of_clusters_is_the_ratio_of_their_shares():
    rng = np.random.default_rng(0)
    centres = np.eye(3) * 4

    def clusters(shares, n=4000):
        kind = rng.choice(3, size=n, p=shares)
        return kind, jnp.asarray(centres[kind] + 0.2 * rng.standard_normal((n, 3)), jnp.float32)

    kind, online = clusters([0.02, 0.18, 0.8])
    _, offline = clusters([0.2, 0.1, 0.7])
    units = StateUnits.of(offline, ends=False)
    ratio = np.asarray(density_ratio(jax.random.key(0), online, offline, jnp.full(4000, 1 / 4000), units, SeekConfig()))
    means = [ratio[kind == k].mean() for k in range(3)]
    np.testing.assert_allclose(means, [10, 0.1 / 0.18, 0.7 / 0.8], rtol=0.25)


@pytest.mark.learning
@pytest.mark.parametrize(("name", "wanted"), [("lock-adversarial", 0.035), ("lock-benign", 0.9), ("lock", 0.9)])
def test_seeking_reaches_what_the_data_have(name, wanted):
    world = hyrlo.make(name, horizon=5)
    policy = seek(JaxTraceModel(world.env), world.behaviour_data(0), SeekConfig(), jax.random.key(0), MemoryRun())
    result = hyrlo.evaluate(world.trace_model(), policy, jax.random.key(1), 2000)
    assert result.success_rate >= wanted  # optimal: 0.1 on the adversarial lock, else 1; uniform: 0.1^5


def test_without_a_share_there_is_no_exploring_pass():
    assert not hasattr(hyrlo.config("foobar"), "exploration")
    assert hyrlo.config("foobar", explore=0.2).exploration.share == 0.2
    with pytest.raises(hyrlo.HyrloError, match=r"--explore is 1\.0; give a number between 0 and 1"):
        hyrlo.config("foobar", explore=1.0)
