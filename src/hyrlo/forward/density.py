"""FAIL's estimator by importance weights for action vectors: the density ratio of two Gaussian policies.

    Ê_π[ φ(s′) ] = 1/n Σ_i π(a_i|s_i) / q(a_i|s_i) φ(s′_i),        q the policy that collected

The policy follows the gradient of the squared MMD. Collection and update alternate `rounds` times, so that q stays near π.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Gaussian, Policy, Stack
from hyrlo.core.ranges import Count
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits
from hyrlo.forward import gradient
from hyrlo.forward.fail import Estimator
from hyrlo.forward.goals import Goals, features_of
from hyrlo.forward.gradient import GaussianConfig, GradientConfig, Starts, policy_at


@dataclass(frozen=True)
class DensityConfig(GaussianConfig, GradientConfig):
    """Forward pass by importance weights, for action vectors."""

    samples: Count = 2000
    """Online episodes per round."""

    def estimator(self, spec: Spec, data: ObservationDataset, key: PRNGKeyArray) -> DensityEstimator:
        return DensityEstimator(spec, data, self, key)


PRESETS = {"paper": DensityConfig()}


class DensityEstimator(Estimator):
    """Density ratios, and policies by gradient descent. Its state is the forward policy."""

    def __init__(self, spec: Spec, data: ObservationDataset, config: DensityConfig, key: PRNGKeyArray):
        if not spec.action_size:
            raise HyrloError("DensityConfig is for action vectors; for discrete actions use ImportanceConfig")
        self.spec, self.config, self.samples = spec, config, config.samples
        units = StateUnits.of_steps(data.steps, spec.ends)
        self.rounds, keys = config.rounds, Keys(key)
        self.goal_maker = gradient.goal_maker(keys.features, data, spec, units, config)
        self.policies = gradient.initial_policies(keys.policy, data, spec, 1, units, config)
        self.seen: list[Starts] = []

    def start(self) -> Stack:
        return self.policies

    def forward(self, state: Stack) -> Stack:
        return state

    def begin(self, state: Stack, h: int) -> Stack:
        self.goals, self.seen = self.goal_maker.after(h, h + 1, 1), []
        return state if h == 0 else state.with_step(h, gradient.with_units_of(state[h - 1], state[h]))

    def exploring(self, state: Stack, h: int, r: int) -> Policy:
        return state

    def recorded(self, h: int, episodes: int) -> Int[np.ndarray, "horizon n"]:
        return gradient.steps_before(h + 1, self.spec.horizon, episodes)

    def update(self, key: PRNGKeyArray, state: Stack, online: Recorded, h: int) -> tuple[Stack, dict[str, float]]:
        config = self.config
        self.seen.append(Starts.of(online, h, state[h], self.spec))
        rows = config.rounds * config.samples
        starts = jax.tree.map(lambda *x: gradient.repeated_to(np.concatenate(x), rows), *self.seen)
        objective = DensityRatio(config.moments)
        policies, distances2 = gradient.descend(key, state.block(h, 1), starts, self.goals, objective, config)
        metrics = {"mmd": gradient.own_distance(distances2, self.goals, 1)}
        metrics["ess"] = float(effective_sample_size(density_ratio(policy_at(policies, 0), starts)))
        return state.with_block(h, policies), metrics


class DensityRatio(eqx.Module):
    """The next states that were seen, weighted by π(a|s) / q(a|s)."""

    moments: float = eqx.field(static=True)

    def distances2(self, key: PRNGKeyArray, policies: Policy, starts: Starts, goals: Goals) -> Float[Array, " 1"]:
        first = jax.tree.map(lambda x: x[0], goals)
        weights = density_ratio(policy_at(policies, 0), starts)
        seen = weights[:, None] * features_of(starts.next_states, first, self.moments)
        return jnp.sum((seen.mean(axis=0) - goals.means[0]) ** 2)[None]


def density_ratio(policy: Policy, starts: Starts) -> Float[Array, " n"]:
    """π(a|s) / q(a|s)."""
    assert isinstance(policy, Gaussian)
    return jnp.exp(jnp.clip(policy.log_density(starts.states, starts.actions) - starts.log_density, -20.0, 20.0))


def effective_sample_size(weights: Float[Array, " n"]) -> Float[Array, ""]:
    """As a share of the number of samples."""
    return weights.sum() ** 2 / jnp.maximum((weights**2).sum(), 1e-12) / len(weights)
