"""Algorithm 3, FAIL: learn, step by step, a forward policy whose states look like the offline states.

For h = 0 … H−1: roll in π_0 … π_{h−1}, act uniformly at h, and let π_h be the solution of the min-max game (Algorithm 4)
between the states that follow and the offline states of step h + 1:

    π_h = argmin_π max_{g ∈ G}  Ê_on[ A·π(a_h|s_h) g(s_{h+1}) ] − Ê_{D_{h+1}}[ g ]
"""

from __future__ import annotations

import jax
from jax.random import fold_in
from jaxtyping import PRNGKeyArray

from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import Stack, switch
from hyrlo.data.states import ObservationDataset
from hyrlo.forward.match import MatchConfig, blank_policy, match
from hyrlo.forward.minmax import GameConfig
from hyrlo.forward.track import ROBOT, track
from hyrlo.forward.witness import ValueClass

FailConfig = MatchConfig
PRESETS = {
    "paper": FailConfig(samples=2000, estimator="importance", features=512, game=GameConfig()),
    "fast": FailConfig(samples=1000),
    "lean": FailConfig(samples=600),
    "model": FailConfig(samples=100, estimator="model"),
    "robot": FailConfig(samples=600, estimator="model", share_steps=1, track=ROBOT),
}


def fail(
    model: TraceModel,
    source: ObservationDataset,
    config: FailConfig,
    key: PRNGKeyArray,
    run: Run,
    functions: ValueClass | None = None,
) -> Stack:
    """Algorithm 3: the forward policy π^f. `functions` is a finite class F for discriminator `value`."""
    spec = model.spec
    if functions is not None and config.discriminator != "value":
        raise HyrloError(f"a class of value functions is for discriminator value, not {config.discriminator}")
    if config.discriminator != "mmd" and spec.action_size:
        raise HyrloError(f"discriminator {config.discriminator} is for discrete actions; leave it at mmd")
    if config.estimator == "model" or spec.action_size:
        if config.estimator == "regression":
            raise HyrloError(
                "estimator regression is for discrete actions; use --preset model, or set estimator to importance"
            )
        return track(model, source, config.track, config.estimator, config.samples, config.share_steps, key, run)
    uniform, measure = spec.uniform(), "mmd" if config.discriminator == "mmd" else "ipm"
    empty = Stack.repeat(blank_policy(spec, config), spec.horizon)
    phase = run.phase("forward", range(spec.horizon), empty, model)
    for h in phase:
        rollout_key, match_key = jax.random.split(fold_in(key, h))
        roll_in = switch(phase.state, at=h, to=uniform)  # π_0 … π_{h−1}, then uniform
        online = model.record(rollout_key, roll_in, config.samples, h, stop=h + 1)
        policy, distance = match(match_key, online, *source.padded(h + 1), spec, config, h, functions)
        forward = phase.state.with_step(h, policy)
        phase.done(h, forward, evaluate=switch(forward, at=h + 1, to=uniform), **{measure: distance})
    return phase.state
