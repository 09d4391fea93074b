"""Which estimator suits a task with discrete actions: a measurement, before the forward pass.

A few episodes of uniform actions are looked at, at some steps, together with the offline states of these steps:

* Do actions change the next state in ways that its latent state does not show? Then states vary smoothly: a learned model.
* Else, are there several latent states? Then count what actions do to them.
* Else, latent states overlap so much that they cannot be told apart one by one: a regression.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.stats import f

from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.latents import discover
from hyrlo.core.ranges import Count, Options
from hyrlo.data.states import ObservationDataset
from hyrlo.forward.fail import ForwardConfig
from hyrlo.forward.latent import LatentConfig
from hyrlo.forward.model import ModelConfig
from hyrlo.forward.regression import RegressionConfig

STEPS = 5
"""Steps that are looked at."""
SIGNIFICANT, SHARE = 1e-6, 0.05
"""An action's effect counts if it is significant and explains this share of a dimension. False alarms are costly."""
CARRIES = 0.5
"""Squared correlation from which on a dimension of a state carries over to the next state."""


@dataclass(frozen=True)
class MeasuredConfig(Options):
    """Forward pass by the estimator that a measurement chooses."""

    expert: ClassVar[tuple[str, ...]] = ("model", "regression")
    offline_samples: ClassVar[int | None] = None
    """The chosen estimator decides."""
    episodes: Count = 200
    """Online episodes of the measurement."""
    latent: LatentConfig = field(default_factory=LatentConfig)
    """The settings of `--forward latent`, if it is chosen."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The settings of `--forward model`, if it is chosen."""
    regression: RegressionConfig = field(default_factory=RegressionConfig)
    """The settings of `--forward regression`, if it is chosen."""

    def closely(self) -> MeasuredConfig:
        return replace(self, latent=self.latent.closely())

    def resolved(self, model: TraceModel, data: ObservationDataset, key: PRNGKeyArray, run: Run) -> ForwardConfig:
        if model.spec.action_size:
            raise HyrloError("MeasuredConfig is for discrete actions; for action vectors use VectorModelConfig")
        phase = run.phase("choose", [0], (jnp.zeros(STEPS), jnp.zeros(STEPS)), model)
        for h in phase:
            measured = look(model, data, self, key)
            latents, effect = (jnp.asarray(np.pad(x, (0, STEPS - len(x))), jnp.float32) for x in measured)
            about = {"latents": float(max(measured.latents)), "unseen_effect": float(max(measured.effect))}
            phase.done(h, (latents, effect), model.spec.uniform(), **about)
        name, reason = verdict(*(np.asarray(x) for x in phase.state))
        run.choose("forward", name, reason)
        if name == "latent":  # twice as many as were seen, for the steps that were not looked at
            room = 2 ** int(np.ceil(np.log2(2 * max(float(phase.state[0].max()), 8))))
            return replace(self.latent, latents=min(self.latent.latents, room))
        return self.model if name == "model" else self.regression


class Measured(NamedTuple):
    """At each step that was looked at."""

    latents: Float[np.ndarray, " steps"]
    """Number of latent states of the next step."""
    effect: Float[np.ndarray, " steps"]
    """Share of the next state that actions explain and latent states do not show."""


def verdict(latents: Float[np.ndarray, " steps"], effect: Float[np.ndarray, " steps"]) -> tuple[str, str]:
    """The estimator and the reason, in words."""
    if effect.max() > SHARE:
        return (
            "model",
            f"actions move states smoothly: they explain {effect.max():.0%} of a dimension within latent states",
        )
    if latents.max() > 1:
        return "latent", f"up to {latents.max():.0f} latent states per step show all effects of actions"
    return "regression", "neither latent states nor smooth effects of actions can be seen"


def look(model: TraceModel, data: ObservationDataset, config: MeasuredConfig, key: PRNGKeyArray) -> Measured:
    """Uniform actions, at a few steps."""
    horizon, keys = model.spec.horizon, Keys(key)
    steps = tuple(np.unique(np.linspace(0, horizon - 1, min(STEPS, horizon)).astype(int)).tolist())
    online = model.record(keys.rollout, model.spec.uniform(), config.episodes, steps, stop=steps[-1] + 1)
    seed = int(jax.random.bits(keys.latents)) >> 1
    latents: list[float] = []
    effects: list[float] = []
    for k, h in enumerate(steps):
        going = np.asarray(online.states[k, :, -1] < 0.5) if model.spec.ends else np.ones(config.episodes, bool)
        states, following = np.asarray(online.states[k])[going], np.asarray(online.next_states[k])[going]
        if len(states) < 2 * model.spec.actions:
            continue
        before, after = (
            discover((data.at(at), x), config.latent.latents, seed) for at, x in ((h, states), (h + 1, following))
        )
        latents.append(float(after.count))
        here, both = before.label(states), before.label(states) * after.count + after.label(following)
        actions = np.asarray(online.actions[k])[going]
        unseen = unseen_effect(states, actions, following, both)
        effects.append(max(unseen, carried_effect(states, actions, following, here, both)))
    return Measured(np.asarray(latents or [0.0]), np.asarray(effects or [0.0]))


def unseen_effect(
    states: Float[np.ndarray, "n obs"],
    actions: Int[np.ndarray, " n"],
    following: Float[np.ndarray, "n obs"],
    groups: Int[np.ndarray, " n"],
) -> float:
    """The largest share of a dimension of the next state that actions explain within groups."""
    return float(np.max(action_effects(states, actions, following, groups)))


def carried_effect(
    states: Float[np.ndarray, "n obs"],
    actions: Int[np.ndarray, " n"],
    following: Float[np.ndarray, "n obs"],
    before: Int[np.ndarray, " n"],
    both: Int[np.ndarray, " n"],
) -> float:
    """The same of dimensions that carry over from state to next state within latent states of both.

    Where all states begin close together, actions alone may separate the next ones. Noise does not carry over.
    """
    here, there = (within(x, both) for x in (states, following))
    spreads = np.sum(here**2, axis=0) * np.sum(there**2, axis=0)
    carries = np.sum(here * there, axis=0) ** 2 > CARRIES * np.maximum(spreads, 1e-30)
    return float(np.max(action_effects(states, actions, following, before) * carries))


def action_effects(
    states: Float[np.ndarray, "n obs"],
    actions: Int[np.ndarray, " n"],
    following: Float[np.ndarray, "n obs"],
    groups: Int[np.ndarray, " n"],
) -> Float[np.ndarray, " obs"]:
    """The share of each dimension of the next state that actions explain within groups; 0 if it is not significant.

    What the state itself explains, linearly, is taken out first: it may hide an action's effect, and is not due to it.
    """
    inputs, outputs = (within(x, groups) for x in (states, following))
    inputs = inputs / np.where(inputs.std(axis=0) > 0, inputs.std(axis=0), 1.0)
    if inputs.shape[1] > len(inputs) // 4:  # few enough directions to leave degrees of freedom
        inputs = inputs @ np.linalg.svd(inputs, full_matrices=False)[2][: len(inputs) // 4].T
    gram = inputs.T @ inputs + 1e-3 * len(inputs) * np.eye(inputs.shape[1])
    rest = outputs - inputs @ np.linalg.solve(gram, inputs.T @ outputs)
    scale = np.maximum(following.std(axis=0), 1e-9)
    rest = np.where(rest.std(axis=0) > 1e-5 * scale, rest, 0.0)
    taken = actions[:, None] == np.unique(actions)
    sums = taken.T.astype(float) @ rest
    explained = np.sum(sums**2 / taken.sum(axis=0)[:, None], axis=0)
    share = explained / np.maximum(np.sum(rest**2, axis=0), 1e-30)
    effects = taken.shape[1] - 1
    noise = len(rest) - len(np.unique(groups)) - np.linalg.matrix_rank(inputs) - effects  # degrees of freedom
    if effects < 1 or noise < 1:
        return np.zeros(rest.shape[1])
    ratio = f.isf(SIGNIFICANT / rest.shape[1], effects, noise) * effects / noise
    return np.where(share > ratio / (1 + ratio), share, 0.0)


def within(values: Float[np.ndarray, "n d"], groups: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
    """What is left of the values once the mean of their group is taken out."""
    _, group = np.unique(groups, return_inverse=True)
    means = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(means, group, values)
    return values - (means / np.bincount(group)[:, None])[group]
