"""SAC on latent states: after `--forward latent`, actor and critics see (z, h), each one-hot, in place of the observation.

What the forward pass has counted is in the replay buffer from the start: it has tried every action at every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from hyrlo.backward.off_policy import LearningSource, learn
from hyrlo.backward.sac import RollInSacConfig, SacBatch
from hyrlo.core.access import Ledger, Recorded, Rollout, Spec, Steps, TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.latents import Latents
from hyrlo.core.networks import LatentView
from hyrlo.core.policies import Policy, ThroughView
from hyrlo.forward.latent import Counted, LatentEstimator


@dataclass
class LatentModel:
    """A trace model that records what the view shows. Policies are given observations as they are."""

    model: TraceModel
    view: LatentView
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = self.model.ledger

    @property
    def spec(self) -> Spec:
        return replace(self.model.spec, observation_size=self.view.size, ends=False)

    def rollout(self, key: PRNGKeyArray, policy: Policy, episodes: int, *, stop: int | None = None) -> Rollout:
        return self.model.rollout(key, policy, episodes, stop=stop)

    def record(
        self, key: PRNGKeyArray, policy: Policy, episodes: int, steps: Steps, *, stop: int | None = None
    ) -> Recorded:
        if not isinstance(steps, tuple):
            raise TypeError("a view records steps that all episodes share; give a tuple")
        batch, at = self.model.record(key, policy, episodes, steps, stop=stop), jnp.asarray(steps)
        states, following = shown(self.view, batch.states, at), shown(self.view, batch.next_states, at + 1)
        return batch._replace(states=states, next_states=following)

    def evaluation(self) -> TraceModel:
        return self.model.evaluation()


@eqx.filter_jit
def shown(view: LatentView, states: Float[Array, "k n obs"], at: Array) -> Float[Array, "k n size"]:
    return jax.vmap(view)(jnp.asarray(states), at)


def transitions(view: LatentView, counted: Mapping[int, Counted], ends: bool) -> SacBatch:
    """What a forward pass has counted, by step; `ends` says whether the last step is terminal."""
    found = []
    for h, seen in counted.items():
        latent, action, reward, following = (jnp.asarray(x) for x in seen)
        ended = jnp.full(len(action), ends and h == len(counted) - 1)
        found.append(SacBatch(view.of_latents(latent, h), action, reward, view.of_latents(following, h + 1), ended))
    return jax.tree.map(lambda *x: jnp.concatenate(x), *found)


def view_of(latents: Sequence[Latents]) -> LatentView:
    """By the encoders of steps 0 … H."""
    most = max(each.count for each in latents)
    return LatentView(jnp.asarray(np.stack([each.padded(most) for each in latents])))


def cpi_trace_of_latents(
    model: TraceModel,
    source: Policy,
    estimator: LatentEstimator,
    config: RollInSacConfig,
    key: PRNGKeyArray,
    run: Run,
) -> Policy:
    """`off_policy.cpi_trace` through the view of a forward pass."""
    view = view_of(estimator.encoders)
    known = transitions(view, estimator.counted, config.ends_at_horizon)
    source_of = replace(LearningSource.of(source, config), known=known, see=lambda actor: ThroughView(actor, view))
    return learn(LatentModel(model, view), source_of, config, key, run, "backward")
