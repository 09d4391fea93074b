"""FOOBAR: forward observation-matching, backward reinforcement learning.

π^f ← FAIL (Algorithm 3) on the offline states,        π^b ← PSDP-trace (Algorithm 2) or CPI-trace with roll-in π^f

`ExploringFoobarConfig` adds a second forward policy that seeks what the data have and π^f may have dropped: a share ε of the
roll-ins follows it. The roll-in then covers at least (1 − ε) of what π^f covers, whatever the second policy does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from hyrlo.backward import off_policy, plan, psdp, sac
from hyrlo.backward import variants as backward_variants
from hyrlo.backward.latent_sac import cpi_trace_of_latents
from hyrlo.backward.variants import BackwardConfig, SuitedConfig, SuitedSacConfig
from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Mixture, Policy
from hyrlo.core.ranges import CountOrZero, InnerShare, Options, check_value
from hyrlo.core.variants import Choice, check_preset
from hyrlo.data.states import ObservationDataset
from hyrlo.forward import variants as forward_variants
from hyrlo.forward.choose import MeasuredConfig
from hyrlo.forward.fail import ForwardConfig, forward_pass
from hyrlo.forward.latent import LatentConfig, LatentEstimator
from hyrlo.forward.model import ModelConfig
from hyrlo.forward.seek import SeekConfig, seek

STEPS, MOST_HORIZON = 6000, 100
"""Environment steps for each step of the horizon, of which no more than these count."""
FORWARD_SHARE = 1 / 6
"""Of the budget. The backward pass needs no better roll-in; steps that stay lost are its business."""


@dataclass(frozen=True)
class FoobarConfig(Options):
    """Both passes."""

    forward: ForwardConfig | MeasuredConfig = field(default_factory=MeasuredConfig)
    backward: BackwardConfig | SuitedConfig | SuitedSacConfig = field(default_factory=SuitedConfig)
    budget: CountOrZero = 0
    """Environment steps of both passes together, where these have no sizes of their own (default: 6,000 for each of the first
    100 steps of the horizon). The backward pass has what the forward pass leaves. Passes that count until they know enough
    do not use it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.backward, plan.PlanConfig) and not isinstance(self.forward, LatentConfig):
            raise HyrloError(
                "--improve plan: plans with what --forward latent has counted, but the forward pass is another; "
                "add --forward latent, or give --improve psdp or sac"
            )


@dataclass(frozen=True)
class ExploringFoobarConfig(FoobarConfig):
    """Both passes, and an exploring forward pass."""

    exploration: SeekConfig = field(default_factory=SeekConfig)


def configure(choice: Choice) -> FoobarConfig:
    """Both passes with the preset; a pass that does not have it keeps its own default."""
    if choice.improve == "plan" and choice.forward is None:
        choice = replace(choice, forward="latent")
    if choice.open:
        return FoobarConfig(forward_variants.configure_roll_in(choice), backward_variants.configure(choice))
    estimator, of_forward = forward_variants.select(choice)
    choice = choice.suited_to(estimator)
    improver, of_backward = backward_variants.select(choice)
    if choice.preset is not None:
        check_preset(choice.preset)
        if choice.preset not in {*of_forward, *of_backward}:
            raise HyrloError(
                f"neither --forward {estimator} nor --improve {improver} has preset {choice.preset}; "
                f"give {' or '.join({**of_forward, **of_backward})}, or another variant"
            )
    forward = forward_variants.configure_roll_in(choice.for_presets(of_forward))
    backward = backward_variants.configure(choice.for_presets(of_backward))
    if choice.explore is None:
        return FoobarConfig(forward, backward)
    if choice.vectors:
        raise HyrloError("--explore: the exploring pass tries every action, so actions must be discrete; leave it out")
    check_value("--explore", choice.explore, InnerShare)
    return ExploringFoobarConfig(forward, backward, exploration=SeekConfig(share=choice.explore))


def foobar(model: TraceModel, source: ObservationDataset, config: FoobarConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """The paper's main algorithm: match the states forwards, then improve backwards from where that leads."""
    keys = Keys(key)
    check_budget(config, model.spec.horizon)
    budget = config.budget or STEPS * min(model.spec.horizon, MOST_HORIZON)
    roll_in: Policy
    roll_in, estimator, reach = forward_pass(
        model, source, with_steps(config.forward, int(FORWARD_SHARE * budget)), keys.forward, run
    )
    backward = config.backward
    if isinstance(backward, SuitedConfig | SuitedSacConfig):
        backward = backward.suited(estimator)
        if isinstance(backward, sac.RollInSacConfig) and isinstance(estimator, LatentEstimator):
            run.choose("backward", "sac", "asked for; on the latent states found. plan needs fewer episodes")
    if isinstance(config, ExploringFoobarConfig):
        seeking = seek(model, source, config.exploration, keys.explore, run)
        roll_in = Mixture(roll_in, seeking, jnp.asarray(config.exploration.share))
    run.keep_policy("roll_in", roll_in)
    if isinstance(backward, plan.PlanConfig):
        assert isinstance(estimator, LatentEstimator), "configure has checked this"
        return plan.plan_and_check(model, roll_in, estimator, backward, keys.backward, run)
    if isinstance(backward, psdp.PsdpConfig):
        return psdp.psdp_trace(model, roll_in, backward, keys.backward, run)
    if isinstance(estimator, LatentEstimator):
        return cpi_trace_of_latents(model, roll_in, estimator, backward, keys.backward, run)
    left = budget - model.ledger.steps - backward.race_episodes * model.spec.horizon
    return off_policy.cpi_trace(model, roll_in, with_steps(backward, max(left, 1)), keys.backward, run, reach)


def check_budget(config: FoobarConfig, horizon: int) -> None:
    """Reject a budget that the least number of collections would exceed."""
    if not config.budget or not isinstance(config.backward, sac.RollInSacConfig):
        return
    backward = config.backward
    collections = (backward.clone or backward.random_collections) + backward.iterations  # one a point of the curve
    least = int((collections * backward.episodes + backward.race_episodes) * horizon / (1 - FORWARD_SHARE)) + 1
    if config.budget < least:
        raise HyrloError(
            f"--budget is {config.budget:,}, but both passes need at least {least:,} steps; give more, or fewer "
            "--backward.iterations and --backward.episodes"
        )


def with_steps(config: Any, steps: int) -> Any:
    """With this number of steps, if it has none of its own."""
    if isinstance(config, MeasuredConfig):
        return replace(config, model=with_steps(config.model, steps))
    if isinstance(config, ModelConfig) and not (config.samples or config.steps):
        return replace(config, steps=steps)
    if isinstance(config, sac.RollInSacConfig) and not config.steps:
        return replace(config, steps=steps)
    return config
