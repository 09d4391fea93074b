"""The ways to improve by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hyrlo.backward import cpi, psdp, sac
from hyrlo.core.variants import Choice

IMPROVE: dict[str, Mapping[str, Any]] = {"psdp": psdp.TRACE_PRESETS, "sac": sac.PRESETS}
VECTOR_IMPROVE: dict[str, Mapping[str, Any]] = {"sac": sac.PRESETS}
STATIONARY: dict[str, Mapping[str, Any]] = {"sac": sac.PRESETS, "cpi": cpi.PRESETS}
VECTOR_STATIONARY = VECTOR_IMPROVE


def select(choice: Choice) -> tuple[str, Mapping[str, Any]]:
    """The name of FOOBAR's backward pass and its presets."""
    variants = VECTOR_IMPROVE if choice.vectors else IMPROVE
    name = choice.variant("improve", variants)
    return name, variants[name]


def configure(choice: Choice) -> psdp.PsdpConfig | sac.RollInSacConfig:
    """The backward pass of FOOBAR."""
    return _pick(choice, VECTOR_IMPROVE if choice.vectors else IMPROVE)


def configure_cpi(choice: Choice) -> cpi.CpiConfig | sac.RollInSacConfig:
    """One stationary policy: SAC in practice, or Algorithm 5."""
    choice = replace(choice, default_improve="sac")
    return _pick(choice, VECTOR_STATIONARY if choice.vectors else STATIONARY)


def configure_sac(choice: Choice) -> sac.SacConfig:
    """SAC from scratch."""
    config = choice.pick(sac.SCRATCH_PRESETS, "sac")
    return sac.SCRATCH_MOTION if choice.motion else config


def _pick(choice: Choice, variants: Mapping[str, Mapping[str, Any]]) -> Any:
    name = choice.variant("improve", variants)
    config = choice.pick(variants[name], f"--improve {name}")
    return sac.MOTION if name == "sac" and choice.motion else config
