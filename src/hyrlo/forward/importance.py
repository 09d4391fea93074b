"""FAIL's estimator as in the paper: online next states weighted by importance, for discrete actions.

    Ê_π[ g ] = 1/n Σ_i A·π(a_i|s_i) g(s′_i),        a_i uniform

The policy is a network with one hidden tanh layer, found in the min-max game of Algorithm 4 (minmax.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.policies import Softmax
from hyrlo.core.ranges import Count
from hyrlo.data.states import ObservationDataset, Padded
from hyrlo.distances import ExactMMD, ImportanceMMD, StateUnits
from hyrlo.forward.fail import ForwardConfig, OneStepEstimator
from hyrlo.forward.minmax import Discriminator, GameConfig, UnitBall, play, softmax_network
from hyrlo.forward.witness import ExactMmd, ImportanceCounts, Mmd, WitnessConfig, next_features, value_discriminator


@dataclass(frozen=True)
class ImportanceConfig(ForwardConfig):
    """Forward pass by importance weights, as in the paper."""

    samples: Count = 2000
    """Online episodes per step."""
    hidden: Count = 128
    """Width of the policies' hidden layer."""
    batch: Count = 256
    """Online samples per round of the game."""
    game: GameConfig = field(default_factory=GameConfig)
    witness: WitnessConfig = field(default_factory=lambda: Mmd(features=512))

    def estimator(self, spec: Spec, data: ObservationDataset, key: PRNGKeyArray) -> ImportanceEstimator:
        return ImportanceEstimator(spec, data, self)


PRESETS = {"paper": ImportanceConfig()}


class ImportanceEstimator(OneStepEstimator):
    """Importance weights and the min-max game."""

    def __init__(self, spec: Spec, data: ObservationDataset, config: ImportanceConfig):
        super().__init__(spec, data, config.samples)
        self.config = config
        self.sizes = (spec.observation_size, config.hidden, spec.actions)

    def initial_policy(self) -> Softmax:
        return softmax_network(jax.random.key(0), self.sizes)

    def solve(self, key: PRNGKeyArray, online: Recorded, offline: Padded, h: int) -> tuple[Softmax, float, str]:
        policy_key, feature_key, _, game_key = jax.random.split(key, 4)
        config, units = self.config, self.units_at(h + 1)
        following = online.next_states, *offline, units
        discriminator: Discriminator
        match config.witness:
            case Mmd(features=features):
                embedded, mean = next_features(feature_key, *following, features)
                discriminator = UnitBall(ImportanceMMD(embedded, mean, online.actions))
            case ExactMmd():
                discriminator = UnitBall(exact_mmd(*following, online.actions))
            case values:
                counts = ImportanceCounts(online.actions)
                discriminator = value_discriminator(feature_key, counts, values, *following, self.spec.actions, h + 1)
        policy, distance = play(
            game_key, softmax_network(policy_key, self.sizes), online.states, discriminator,
            config.game, config.witness.memory, config.batch,
        )  # fmt: skip
        return policy, float(distance), config.witness.measure


@eqx.filter_jit
def exact_mmd(
    online: Float[Array, "n obs"],
    offline: Float[Array, "m obs"],
    offline_weights: Float[Array, " m"],
    units: StateUnits,
    actions: Int[Array, " n"],
) -> ExactMMD:
    return ExactMMD.create(units(online), actions, units(offline), offline_weights)
