"""The ways to improve by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hyrlo.backward import cpi, plan, psdp, sac
from hyrlo.core.ranges import Options
from hyrlo.core.variants import Choice
from hyrlo.forward.fail import Estimator
from hyrlo.forward.latent import LatentEstimator
from hyrlo.forward.model import ModelEstimator

IMPROVE: dict[str, Mapping[str, Any]] = {
    "psdp": psdp.TRACE_PRESETS,
    "sac": sac.PRESETS,
    "plan": {"fast": plan.PlanConfig()},
}
VECTOR_IMPROVE: dict[str, Mapping[str, Any]] = {"sac": sac.PRESETS}
STATIONARY: dict[str, Mapping[str, Any]] = {"sac": sac.PRESETS, "cpi": cpi.PRESETS}
VECTOR_STATIONARY = VECTOR_IMPROVE


def select(choice: Choice) -> tuple[str, Mapping[str, Any]]:
    """The name of FOOBAR's backward pass and its presets."""
    variants = VECTOR_IMPROVE if choice.vectors else IMPROVE
    name = choice.variant("improve", variants)
    return name, variants[name]


@dataclass(frozen=True)
class SuitedConfig(Options):
    """Backward pass that suits the estimator of the forward pass."""

    expert: ClassVar[tuple[str, ...]] = ("psdp", "sac")
    plan: plan.PlanConfig = field(default_factory=plan.PlanConfig)
    """The settings of `--improve plan`: after `--forward latent`, which has counted what to plan with."""
    psdp: psdp.PsdpConfig = field(default_factory=lambda: psdp.TRACE_PRESETS["fast"])
    """The settings of `--improve psdp`: after `--forward regression` and `importance`."""
    sac: sac.RollInSacConfig = field(default_factory=lambda: sac.PRESETS["fast"])
    """The settings of `--improve sac`: after `--forward model`, where states vary smoothly."""

    def suited(self, estimator: Estimator) -> BackwardConfig:
        if isinstance(estimator, LatentEstimator):
            return self.plan
        return self.sac if isinstance(estimator, ModelEstimator) else self.psdp


@dataclass(frozen=True)
class SuitedSacConfig(Options):
    """SAC with the settings that suit the estimator of the forward pass."""

    expert: ClassVar[tuple[str, ...]] = ("latent",)
    smooth: sac.RollInSacConfig = field(default_factory=lambda: sac.PRESETS["fast"])
    """The settings where states vary smoothly."""
    latent: sac.RollInSacConfig = field(default_factory=lambda: sac.LATENT)
    """The settings after `--forward latent`."""

    def suited(self, estimator: Estimator) -> sac.RollInSacConfig:
        return self.latent if isinstance(estimator, LatentEstimator) else self.smooth


BackwardConfig = psdp.PsdpConfig | sac.RollInSacConfig | plan.PlanConfig


def configure(choice: Choice) -> BackwardConfig | SuitedConfig | SuitedSacConfig:
    """The backward pass of FOOBAR; what suits the forward pass, if a measurement chooses that."""
    if choice.open and choice.improve is None:
        return SuitedConfig()
    if choice.improve == "sac" and choice.preset is None and not choice.tuned:
        if choice.open:
            return SuitedSacConfig()
        if choice.forward == "latent":
            return sac.LATENT
    return _pick(choice, VECTOR_IMPROVE if choice.vectors else IMPROVE)


def configure_cpi(choice: Choice) -> cpi.CpiConfig | sac.RollInSacConfig:
    """One stationary policy: SAC in practice, or Algorithm 5."""
    return _pick(choice, VECTOR_STATIONARY if choice.vectors else STATIONARY)


def configure_sac(choice: Choice) -> sac.SacConfig:
    """SAC from scratch."""
    return choice.pick(sac.SCRATCH_PRESETS, "sac")


def _pick(choice: Choice, variants: Mapping[str, Mapping[str, Any]]) -> Any:
    name = choice.variant("improve", variants)
    return choice.pick(variants[name], f"--improve {name}")
