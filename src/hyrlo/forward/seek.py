"""A forward pass that goes where the data are and uniform actions are not: the exploring half of a mixed roll-in.

Matching the state distribution may drop rare states for good, when no policy can match all of it (inadmissible data).
Here each step is a Frank–Wolfe step on the coverage Ê_μ[ μ(s') / d(s') ] instead, where μ are the offline states of step
h + 1 and d those that follow uniform actions at h. Its gradient asks for states s' in proportion to (μ/d)²:

    π_h = argmax_a  Ê[ w(s')² | s_h, a ],      w = μ_{h+1} / d_{h+1},  by least squares (Kanamori et al. 2009)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Greedy, Stack, switch
from hyrlo.core.ranges import Count, InnerShare, Options, Positive
from hyrlo.core.regression import LatentProjection, create_q, fit_q
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits, compared_bandwidth, compared_features
from hyrlo.forward.fail import step_units


@dataclass(frozen=True)
class SeekConfig(Options):
    """The exploring forward pass."""

    expert: ClassVar[tuple[str, ...]] = ("features", "components", "ridge", "fit")
    share: InnerShare = 0.5
    """Share of the roll-ins of the backward pass that explore."""
    samples: Count = 2000
    """Online episodes per step."""
    features: Count = 256
    """Random Fourier features of the density ratio, of which the leading components are used."""
    components: Count = 8
    ridge: Positive = 1e-3
    fit: LatentProjection = field(default_factory=LatentProjection)


def seek(model: TraceModel, source: ObservationDataset, config: SeekConfig, key: PRNGKeyArray, run: Run) -> Stack:
    """The forward policy that reaches what the data have and uniform actions miss."""
    spec, of_all = model.spec, StateUnits.of_steps(source.steps, model.spec.ends)
    uniform = spec.uniform()
    unlearned = create_q(Keys(key).create, spec.observation_size, spec.actions, config.fit)
    phase = run.phase("explore", range(spec.horizon), Stack.repeat(Greedy(unlearned), spec.horizon), model)
    for h in phase:
        keys = Keys(key).at(h)
        roll_in = switch(phase.state, at=h, to=uniform)
        online = model.record(keys.rollout, roll_in, config.samples, h, stop=h + 1)
        offline = source.padded(h + 1)
        ratio = density_ratio(keys.ratio, online.next_states, *offline, step_units(of_all, offline), config)
        states = step_units(of_all, source.padded(h)).centred(online.states)
        q, report = fit_q(keys.fit, states, online.actions, ratio**2, spec.actions, config.fit)
        seeking = phase.state.with_step(h, Greedy(q))
        evaluate = switch(seeking, at=h + 1, to=uniform)
        phase.done(h, seeking, evaluate=evaluate, largest_ratio=float(ratio.max()), **report._asdict())
    return phase.state


@eqx.filter_jit
def density_ratio(
    key: PRNGKeyArray,
    online: Float[Array, "n obs"],
    offline: Float[Array, "m obs"],
    offline_weights: Float[Array, " m"],
    units: StateUnits,
    config: SeekConfig,
) -> Float[Array, " n"]:
    """μ/d at the online states: argmin_w Ê_d[w²] / 2 − Ê_μ[w] over the leading components of random features."""
    compared = units(online), units(offline)
    width = compared_bandwidth(*compared, None, offline_weights)
    frequencies = jax.random.normal(key, (compared[0].white.shape[1], config.features // 2))
    here, there = (compared_features(x, frequencies, width) for x in compared)
    centre = (here.mean(axis=0) + offline_weights @ there) / 2
    here, there = here - centre, there - centre
    pooled = here.T @ here / len(here) + (there * offline_weights[:, None]).T @ there
    directions = jnp.linalg.eigh(pooled)[1][:, -config.components :]
    here = jnp.concatenate([here @ directions, jnp.ones((len(here), 1))], axis=1)
    there = jnp.concatenate([there @ directions, jnp.ones((len(there), 1))], axis=1)
    second = here.T @ here / len(here) + config.ridge * jnp.eye(here.shape[1])
    return jnp.maximum(here @ jnp.linalg.solve(second, offline_weights @ there), 0.0)
