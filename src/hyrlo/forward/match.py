"""One step of FAIL: the policy whose next states look like the offline ones, by either of two estimators.

`importance` is the paper's: next states weighted by `A·π(a|s)`, a two-layer tanh policy. `regression` needs far fewer
samples: random features of the next state are regressed on a small latent state of s and the action, so that the mean
embedding under any policy is known without weights, and the policy acts on that latent state.
The witnesses are the kernel's unit ball (MMD) or, by choice, those of Equation 1 (witness.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.errors import HyrloError, check_positive
from hyrlo.core.networks import MLP
from hyrlo.core.policies import LatentSoftmax, Policy, Softmax
from hyrlo.core.regression import FitConfig, LatentRegression, Samples, fit_encoder
from hyrlo.distances import ExactMMD, ImportanceMMD, RegressedMMD, median_bandwidth, random_features
from hyrlo.forward.minmax import Discriminator, GameConfig, UnitBall, play
from hyrlo.forward.track import TrackConfig
from hyrlo.forward.witness import (
    Counts,
    ImportanceCounts,
    NetworkWitnesses,
    ValueClass,
    WitnessConfig,
    finite_witnesses,
    random_functions,
)


@dataclass(frozen=True)
class MatchConfig:
    """The forward pass: match the offline state distribution at every step."""

    offline_samples: int = 2000
    """Offline states used per step (all there are, if fewer)."""
    samples: int = 1000
    """Online episodes per step."""
    estimator: Literal["regression", "importance", "model"] = "regression"
    """`importance`: the paper's weights; `regression`: features regressed on (s, a), far fewer samples; `model`: a learned
    one-step model, for vector-valued actions and long horizons."""
    discriminator: Literal["mmd", "value", "value-network"] = "mmd"
    """`mmd`: the kernel's unit ball; the others are those of Equation 1, max_a f − f(·, a′), with f from a finite class of
    random functions (`value`) or a small network (`value-network`). Not for estimator `model`."""
    share_steps: int = 0
    """k: so many consecutive steps share a policy (`model` only). 0: as many as make 40 policies at most."""
    features: int = 256
    """Random Fourier features of the MMD witness; 0 for the exact kernel (`importance` only)."""
    hidden: int = 128
    """`importance`: width of the one-step policies' hidden layer."""
    game: GameConfig = field(default_factory=lambda: GameConfig(iterations=300, learning_rate=0.2, batch=10_000))
    fit: FitConfig = field(default_factory=FitConfig)
    """`regression`: how the latent state is fitted."""
    track: TrackConfig = field(default_factory=TrackConfig)
    """`model`, and `importance` for vector-valued actions."""
    witness: WitnessConfig = field(default_factory=WitnessConfig)
    """The witnesses of discriminators other than `mmd`."""

    def __post_init__(self) -> None:
        check_positive(self, "samples", "offline_samples", "hidden")
        if self.estimator == "importance" and self.game.learning_rate > 0.02:
            raise HyrloError(
                f"game learning_rate is {self.game.learning_rate}, meant for the regression estimator's table; "
                "estimator importance trains a network: start from --preset paper"
            )
        if self.share_steps < 0 or (self.share_steps > 1 and self.estimator != "model"):
            raise HyrloError(f"share_steps is {self.share_steps}; steps share a policy with estimator model only")
        if self.track.ahead > 1 and self.estimator != "model":
            raise HyrloError(
                f"track.ahead is {self.track.ahead}; it needs a model: set estimator to model, or this to 1"
            )
        if self.discriminator != "mmd" and self.estimator == "model":
            raise HyrloError(
                f"discriminator is {self.discriminator}, but estimator model follows the gradient of the MMD; "
                "use estimator regression or importance, or discriminator mmd"
            )
        if self.features == 0 and self.estimator == "regression":
            raise HyrloError("features is 0, the exact kernel, which needs estimator importance")
        if self.features % 2 or self.features < 0:
            raise HyrloError(f"features is {self.features}; give an even number, or 0")


def blank_policy(spec: Spec, config: MatchConfig) -> Policy:
    """The shape of a one-step policy."""
    key = jax.random.key(0)
    if config.estimator == "importance":
        return fresh_network(key, (spec.observation_size, config.hidden, spec.actions))
    encoder = jnp.zeros((spec.observation_size, config.fit.latents))
    return LatentSoftmax(encoder, fresh_network(key, (config.fit.latents, spec.actions)).network)


@eqx.filter_jit
def fresh_network(key: PRNGKeyArray, sizes: tuple[int, ...]) -> Softmax:
    """A tanh network that starts out nearly uniform."""
    return Softmax(MLP.create(key, sizes, last_scale=0.01))


def match(
    key: PRNGKeyArray,
    online: Recorded,
    offline: Float[Array, "m obs"],
    offline_weights: Float[Array, " m"],
    spec: Spec,
    config: MatchConfig,
    h: int,
    functions: ValueClass | None = None,
) -> tuple[Policy, float]:
    """The policy of step h, and its estimated distance to the offline states of step h + 1."""
    policy_key, feature_key, fit_key, game_key = jax.random.split(key, 4)
    following = (online.next_states, offline, offline_weights)
    game = config.game if config.discriminator == "mmd" else replace(config.game, memory=config.witness.memory)

    def of_values(counts: Counts) -> Discriminator:
        """Equation 1."""
        if config.discriminator == "value-network":
            return network_witnesses(feature_key, counts, *following, spec.actions, config.witness)
        chosen = functions or random_functions(feature_key, *following[:2], spec.actions, config.witness)
        return finite_witnesses(counts, chosen, *following, h + 1)

    if config.estimator == "importance":
        network = fresh_network(policy_key, (spec.observation_size, config.hidden, spec.actions))
        witnesses: Discriminator
        if config.discriminator != "mmd":
            witnesses = of_values(ImportanceCounts(online.actions))
        elif config.features:
            features, mean = next_features(feature_key, online.next_states, offline, offline_weights, config)
            witnesses = UnitBall(ImportanceMMD(features, mean, online.actions))
        else:
            witnesses = UnitBall(exact_mmd(online.next_states, online.actions, offline, offline_weights))
        policy, distance = play(game_key, network, online.states, witnesses, game)
        return policy, float(distance)

    features, mean = next_features(feature_key, online.next_states, offline, offline_weights, config)
    actions = jax.nn.one_hot(online.actions, spec.actions)
    kinds = principal_components(features, config.fit.latents - 1)
    encoder, _ = fit_encoder(fit_key, Samples(online.states, actions, kinds), config.fit)
    if config.discriminator != "mmd":  # regressed on itself, every next state gets its count under a policy
        features, mean = jnp.eye(len(actions)), jnp.zeros(len(actions))
    regressed = regressed_mmd(encoder, Samples(online.states, actions, features), mean, config.fit)
    witnesses = UnitBall(regressed) if config.discriminator == "mmd" else of_values(regressed)
    table = fresh_network(policy_key, (config.fit.latents, spec.actions))
    on_latents, distance = play(game_key, table, regressed.latents, witnesses, game)
    return LatentSoftmax(encoder, on_latents.network), float(distance)


exact_mmd = eqx.filter_jit(ExactMMD.create)
network_witnesses = eqx.filter_jit(NetworkWitnesses.create)


@eqx.filter_jit
def next_features(
    key: PRNGKeyArray,
    online: Float[Array, "n obs"],
    offline: Float[Array, "m obs"],
    offline_weights: Float[Array, " m"],
    config: MatchConfig,
) -> tuple[Float[Array, "n f"], Float[Array, " f"]]:
    """Random features of the online next states, and the mean of the offline ones."""
    width = median_bandwidth(online, offline)
    frequencies = jax.random.normal(key, (online.shape[1], config.features // 2))
    mean = offline_weights @ random_features(offline, frequencies, width)
    return random_features(online, frequencies, width), mean


@eqx.filter_jit
def principal_components(features: Float[Array, "n f"], most: int) -> Float[Array, "n c"]:
    """K kinds of states differ in K − 1 directions; the rest of the features is mostly observation noise."""
    centred = features - features.mean(axis=0)
    return centred @ jnp.linalg.eigh(centred.T @ centred)[1][:, -most:]


@eqx.filter_jit
def regressed_mmd(
    encoder: Float[Array, "obs latents"], samples: Samples, offline_mean: Float[Array, " f"], config: FitConfig
) -> RegressedMMD:
    regression = LatentRegression.project(encoder, samples, config)
    return RegressedMMD(regression.latents(samples.states), regression.head, regression.mean - offline_mean)
