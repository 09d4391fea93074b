"""FAIL's estimator by regression: far fewer samples than importance weights, for discrete actions.

Random features of the next state are regressed on (latent state of s, action), so that the mean embedding under any policy
is known without importance weights:

    Ê_π[ φ(s′) ] = 1/n Σ_i Σ_a π(a|z_i) Ê[ φ(s′) | z_i, a ],        z = softmax(E s + c)

The policy is a table over the latent state, found in the min-max game of Algorithm 4 (minmax.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.policies import LatentSoftmax
from hyrlo.core.ranges import TwoOrMore
from hyrlo.core.regression import LatentProjection, LatentRegression, RegressionData, fit_encoder
from hyrlo.data.states import ObservationDataset, Padded
from hyrlo.distances import RegressedMMD
from hyrlo.forward.fail import ForwardConfig, OneStepEstimator
from hyrlo.forward.minmax import Discriminator, GameConfig, UnitBall, play, softmax_network
from hyrlo.forward.witness import Mmd, SampleWitness, next_features, value_discriminator


@dataclass(frozen=True)
class RegressionConfig(ForwardConfig):
    """Forward pass by regression on a latent state."""

    latents: TwoOrMore = 3
    """Number of latent states."""
    game: GameConfig = field(default_factory=lambda: GameConfig(iterations=300, learning_rate=0.2))
    witness: SampleWitness = field(default_factory=lambda: Mmd(memory=0.0))
    """Every round sees all samples, so the last witness is exact and there is no noise to average out."""

    def estimator(self, spec: Spec, data: ObservationDataset, key: PRNGKeyArray) -> RegressionEstimator:
        return RegressionEstimator(spec, data, self)


PRESETS = {"fast": RegressionConfig(samples=1000), "lean": RegressionConfig(samples=600)}


class RegressionEstimator(OneStepEstimator):
    """A latent state that predicts the next state, and the min-max game on it."""

    def __init__(self, spec: Spec, data: ObservationDataset, config: RegressionConfig):
        super().__init__(spec, data, config.samples)
        self.config, self.fit = config, LatentProjection(latents=config.latents)
        self.table_sizes = (config.latents, spec.actions)

    def initial_policy(self) -> LatentSoftmax:
        table = softmax_network(jax.random.key(0), self.table_sizes).network
        return LatentSoftmax(jnp.zeros((self.spec.observation_size + 1, self.config.latents)), table)

    def solve(self, key: PRNGKeyArray, online: Recorded, offline: Padded, h: int) -> tuple[LatentSoftmax, float, str]:
        policy_key, feature_key, fit_key, game_key = jax.random.split(key, 4)
        config, following = self.config, (online.next_states, *offline, self.units_at(h + 1))
        states = self.units_at(h).centred(online.states)
        mmd = config.witness if isinstance(config.witness, Mmd) else Mmd()
        by_values = mmd is not config.witness
        features, mean = next_features(feature_key, *following, mmd.features)
        actions = jax.nn.one_hot(online.actions, self.spec.actions)
        kinds = principal_components(features, config.latents - 1)
        encoder, _ = fit_encoder(fit_key, RegressionData(states, actions, kinds), self.fit)
        if by_values:  # regressed on itself, every next state gets its count under a policy
            features, mean = jnp.eye(len(actions)), jnp.zeros(len(actions))
        regressed = regressed_mmd(encoder, RegressionData(states, actions, features), mean, self.fit)
        discriminator: Discriminator = UnitBall(regressed)
        if by_values:
            discriminator = value_discriminator(
                feature_key, regressed, config.witness, *following, self.spec.actions, h + 1
            )
        table, distance = play(
            game_key, softmax_network(policy_key, self.table_sizes), regressed.latents, discriminator,
            config.game, config.witness.memory,
        )  # fmt: skip
        return LatentSoftmax(encoder, table.network), float(distance), config.witness.measure


@eqx.filter_jit
def principal_components(features: Float[Array, "n f"], most: int) -> Float[Array, "n c"]:
    """The leading components: K kinds of states differ in K − 1 directions, the rest is mostly observation noise."""
    centred = features - features.mean(axis=0)
    return centred @ jnp.linalg.eigh(centred.T @ centred)[1][:, -most:]


@eqx.filter_jit
def regressed_mmd(
    encoder: Float[Array, "obs+1 latents"],
    samples: RegressionData,
    offline_mean: Float[Array, " f"],
    config: LatentProjection,
) -> RegressedMMD:
    regression = LatentRegression.project(encoder, samples, config)
    return RegressedMMD(regression.latents(samples.states), regression.head, regression.mean - offline_mean)
