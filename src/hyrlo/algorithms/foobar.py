"""FOOBAR: forward observation-matching, backward reinforcement learning.

π^f ← FAIL (Algorithm 3) on the offline states,        π^b ← PSDP-trace (Algorithm 2) with roll-in π^f
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
from jaxtyping import PRNGKeyArray

from hyrlo.access import TraceModel
from hyrlo.algorithms import fail as forward_pass
from hyrlo.algorithms import psdp as backward_pass
from hyrlo.algorithms.base import Run
from hyrlo.data import ObservationDataset
from hyrlo.policies import Policy


@dataclass(frozen=True)
class FoobarConfig:
    """Both passes."""

    forward: forward_pass.FailConfig = field(default_factory=forward_pass.FailConfig)
    backward: backward_pass.PsdpConfig = field(default_factory=backward_pass.PsdpConfig)


PRESETS = {
    name: FoobarConfig(forward_pass.PRESETS[name], backward_pass.PRESETS[name]) for name in ("paper", "fast", "lean")
}


def foobar(model: TraceModel, source: ObservationDataset, config: FoobarConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """The paper's main algorithm: match the states forwards, then improve backwards from where that leads."""
    forward_key, backward_key = jax.random.split(key)
    roll_in = forward_pass.fail(model, source, config.forward, forward_key, run)
    return backward_pass.psdp_trace(model, roll_in, config.backward, backward_key, run)
