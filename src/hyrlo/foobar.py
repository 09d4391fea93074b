"""FOOBAR: forward observation-matching, backward reinforcement learning.

π^f ← FAIL (Algorithm 3) on the offline states,        π^b ← PSDP-trace (Algorithm 2) or CPI-trace with roll-in π^f

With `explore.share` ε > 0 a share ε of the roll-ins follows a second forward policy that seeks what the data have and π^f
may have dropped. The roll-in then covers at least (1 − ε) of what π^f covers, whatever the second policy does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from hyrlo.backward import psdp as backward_pass
from hyrlo.backward import sac as stationary_pass
from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import Mixture, Policy
from hyrlo.data.states import ObservationDataset
from hyrlo.forward import fail as forward_pass
from hyrlo.forward import seek as exploring_pass


@dataclass(frozen=True)
class FoobarConfig:
    """Both passes, and an exploring one that is off by default; `backward` is psdp's, `sac` its stationary alternative."""

    forward: forward_pass.FailConfig = field(default_factory=forward_pass.FailConfig)
    backward: backward_pass.PsdpConfig = field(default_factory=backward_pass.PsdpConfig)
    explore: exploring_pass.SeekConfig = field(default_factory=exploring_pass.SeekConfig)
    improve: Literal["psdp", "sac"] = "psdp"
    """How to improve backwards: `psdp`, a policy for every step; `sac`, one stationary policy (CPI-trace in practice)."""
    sac: stationary_pass.SacConfig = field(default_factory=stationary_pass.SacConfig)
    share_steps: int | None = None
    """k: so many consecutive steps share a policy, in both passes (`sac` has one for all steps)."""

    def __post_init__(self) -> None:
        if self.share_steps is not None:
            object.__setattr__(self, "forward", replace(self.forward, share_steps=self.share_steps))
            object.__setattr__(self, "backward", replace(self.backward, share_steps=self.share_steps))


PRESETS = {
    name: FoobarConfig(forward_pass.PRESETS[name], backward=backward_pass.PRESETS[name])
    for name in ("paper", "fast", "lean")
}
PRESETS["model"] = FoobarConfig(forward_pass.PRESETS["model"], improve="sac")
PRESETS["robot"] = FoobarConfig(forward_pass.PRESETS["robot"], improve="sac", sac=stationary_pass.PRESETS["robot"])


def foobar(model: TraceModel, source: ObservationDataset, config: FoobarConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """The paper's main algorithm: match the states forwards, then improve backwards from where that leads."""
    if config.explore.share and model.spec.action_size:
        raise HyrloError(
            "the exploring pass tries every action, so actions must be discrete; leave out --explore.share"
        )
    if config.improve == "psdp":
        backward_pass.check_discrete(model.spec)
    forward_key, backward_key = jax.random.split(key)
    roll_in: Policy = forward_pass.fail(model, source, config.forward, forward_key, run)
    if config.explore.share:
        seeking = exploring_pass.seek(model, source, config.explore, jax.random.fold_in(key, 1), run)
        roll_in = Mixture(roll_in, seeking, jnp.asarray(config.explore.share))
    run.keep_policy("roll_in", roll_in)
    if config.improve == "sac":
        return stationary_pass.cpi_trace(model, roll_in, config.sac, backward_key, run)
    return backward_pass.psdp_trace(model, roll_in, config.backward, backward_key, run)
