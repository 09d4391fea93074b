"""RLPD (Ball et al. 2023): SAC that learns from offline tuples as well, half of every batch from each.

It adds to SAC: more critics with layer norm, targets that are the minimum of a random pair of them, their mean for the actor,
and more updates per step. It is a baseline: it sees actions and rewards, which state-only logs do not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from hyrlo.backward.off_policy import LearningSource, learn
from hyrlo.backward.sac import Replay, SacBatch, SacConfig
from hyrlo.core.access import Spec, TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.policies import Policy
from hyrlo.core.ranges import Count, CountOrZero, Finite, Positive, Share, ShareBelowOne
from hyrlo.core.replay import ReplayBuffer
from hyrlo.core.variants import from_presets
from hyrlo.data.transitions import TransitionDataset, Transitions


@dataclass(frozen=True)
class RlpdConfig(SacConfig):
    """SAC with the published values: 20 updates of the critics and one of the actor per environment step."""

    offline_samples: Count = 2000
    """Offline tuples used per step (all there are, if fewer)."""
    utd: Positive = 20.0
    actor_every: Count = 20
    num_qs: Count = 10
    num_min_qs: CountOrZero = 2
    actor_value: Literal["min", "mean"] = "mean"
    hidden: Count = 256
    layers: Count = 3
    learning_rate: Positive = 3e-4
    last_learning_rate: Share = 1.0
    entropy: Finite | None = -0.5
    temperature: Positive = 1.0
    average: ShareBelowOne = 0.0


PRESETS = {
    "paper": RlpdConfig(gamma=0.99, raw_rewards=True),
    "fast": RlpdConfig(utd=0.5, actor_every=2, num_qs=4, hidden=128, layers=2),
}
configure = from_presets(PRESETS, "rlpd")


def rlpd(model: TraceModel, source: TransitionDataset, config: RlpdConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """From scratch, with offline tuples beside its own."""
    return learn(model, LearningSource(offline=offline_replay(source, model.spec, config)), config, key, run, "online")


def offline_replay(source: TransitionDataset, spec: Spec, config: SacConfig) -> Replay:
    """The transitions of all steps, with ends as they are online: none after an end, and the horizon is a time limit."""
    batch = Transitions(*(np.concatenate(column) for column in zip(*source.steps, strict=True)))
    if config.ends_at_horizon:
        batch.terminals[-len(source.steps[-1].terminals) :] = True
    running = batch.states[:, -1] == 0 if spec.ends else np.ones(len(batch.states), bool)
    return ReplayBuffer(SacBatch(*(jnp.asarray(column[running]) for column in batch)), jnp.asarray(running.sum()))
