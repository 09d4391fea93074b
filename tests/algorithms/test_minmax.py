"""The min-max game and the distances that FAIL reports: the best iterate, and the MMD by its definition."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.spatial.distance import pdist

from hyrlo.core.access import Spec
from hyrlo.data.states import ObservationDataset
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.minmax import GameConfig, UnitBall, play, softmax_network
from hyrlo.forward.regression import RegressionConfig
from hyrlo.forward.witness import ExactMmd, Mmd
from tests.batches import recorded

KEY = jax.random.key(0)


class FirstAction(eqx.Module):
    """Sees how often a policy takes action 0; the offline states want 0.9 of it."""

    def embed(self, policy, batch):
        return policy[:, :1].mean(axis=0) - 0.9

    def inner(self, witness, embedding):
        return witness @ embedding


STATES = jnp.ones((4, 1))


def gap(policy):
    return float(jax.nn.softmax(policy.logits(STATES))[0, 0]) - 0.9


def iterates(policy, config, memory):
    """The game by hand, and how far every policy of it is from what is wanted."""
    optimiser, witness, gaps = optax.adam(config.learning_rate), 0.0, []
    state = optimiser.init(policy)
    for t in range(config.iterations):
        keep = min(memory, t / (t + 1))
        witness = keep * witness + (1 - keep) * gap(policy)
        slope = jax.grad(lambda p, g=witness: g * jax.nn.softmax(p.logits(STATES))[0, 0])(policy)
        updates, state = optimiser.update(slope, state)
        policy = optax.apply_updates(policy, updates)
        gaps.append(abs(gap(policy)))
    return gaps


@pytest.mark.parametrize("memory", [0.0, 0.5, 1.0])
def test_the_best_iterate_is_returned_not_the_last(memory):
    """With a large learning rate the policy passes its goal, and the last iterate is far from it."""
    config, start = GameConfig(iterations=12, learning_rate=0.3), softmax_network(KEY, (1, 2))
    gaps = iterates(start, config, memory)
    assert gaps[-1] > 5 * min(gaps)
    policy, distance = play(KEY, start, STATES, UnitBall(FirstAction()), config, memory)
    assert float(distance) == pytest.approx(min(gaps), abs=1e-4)
    assert abs(gap(policy)) == pytest.approx(min(gaps), abs=1e-4)


GAME = GameConfig(iterations=1)


@pytest.mark.parametrize(
    "config",
    [
        ImportanceConfig(game=GAME, witness=Mmd(features=8192)),
        ImportanceConfig(game=GAME, witness=ExactMmd()),
        RegressionConfig(game=GAME, witness=Mmd(features=512)),  # it decomposes a matrix of this size
    ],
    ids=["importance", "exact", "regression"],
)
def test_the_distance_is_the_mmd_with_the_median_distance_as_bandwidth(config):
    """One action, so that no policy changes the next states. They lie on a line, where their units do not matter."""
    rng = np.random.default_rng(0)
    online, offline = rng.normal(size=(150, 1)) + 1.0, rng.normal(size=(100, 1))
    offline = (offline - offline.mean()) / offline.std()
    pool, sign = np.concatenate([online, offline]), np.repeat([1 / 150, -1 / 100], [150, 100])
    kernel = np.exp(-((pool - pool.T) ** 2) / (2 * np.median(pdist(pool)) ** 2))
    online, offline = (x.repeat(2, axis=1).astype(np.float32) for x in (online, offline))
    estimator = config.estimator(Spec(1, 2, 1), ObservationDataset((offline, offline)), KEY)
    batch = recorded(jax.random.normal(KEY, (150, 2)), jnp.zeros(150, int), jnp.asarray(online))
    _, metrics = estimator.update(KEY, estimator.start(), batch, 0)
    assert metrics["mmd"] == pytest.approx(np.sqrt(sign @ kernel @ sign), rel=0.08)
