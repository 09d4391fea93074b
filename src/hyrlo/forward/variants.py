"""The estimators of the forward pass by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from hyrlo.core.errors import HyrloError
from hyrlo.core.names import nearest
from hyrlo.core.variants import Choice
from hyrlo.forward import density, importance, model, regression
from hyrlo.forward.choose import MeasuredConfig
from hyrlo.forward.fail import ForwardConfig
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.latent import LatentConfig
from hyrlo.forward.witness import DISCRIMINATORS, ExactMmd

ESTIMATORS: dict[str, Mapping[str, ForwardConfig]] = {
    "regression": regression.PRESETS,
    "importance": importance.PRESETS,
    "model": model.PRESETS,
    "latent": {"fast": LatentConfig()},
}
VECTOR_ESTIMATORS: dict[str, Mapping[str, ForwardConfig]] = {
    "model": model.VECTOR_PRESETS,
    "importance": density.PRESETS,
}


def select(choice: Choice) -> tuple[str, Mapping[str, ForwardConfig]]:
    """The estimator's name and its presets."""
    estimators = VECTOR_ESTIMATORS if choice.vectors else ESTIMATORS
    name = choice.variant("forward", estimators)
    return name, estimators[name]


def configure(choice: Choice) -> ForwardConfig | MeasuredConfig:
    """The config of FAIL by itself."""
    return configure_roll_in(choice).closely()


def configure_roll_in(choice: Choice) -> ForwardConfig | MeasuredConfig:
    """The config of a forward pass: estimator, budget and discriminator; a measurement, if none of them is asked for."""
    if choice.open:
        return MeasuredConfig()
    name, presets = select(choice)
    config = choice.pick(presets, f"--forward {name}")
    return config if choice.discriminator is None else with_discriminator(config, choice.discriminator, name)


def with_discriminator(config: ForwardConfig, discriminator: str, name: str) -> ForwardConfig:
    if discriminator not in DISCRIMINATORS:
        raise HyrloError(
            f"unknown discriminator {discriminator!r}{nearest(discriminator, DISCRIMINATORS)}; "
            f"give {', '.join(DISCRIMINATORS)}"
        )
    if "witness" not in [field.name for field in fields(config)]:
        raise HyrloError(f"--discriminator: --forward {name} descends the MMD itself; leave out --discriminator")
    chosen = DISCRIMINATORS[discriminator]
    if chosen is ExactMmd and not isinstance(config, ImportanceConfig):
        raise HyrloError("--discriminator exact: needs importance weights; add --forward importance")
    same = type(config.witness) is chosen  # type: ignore[attr-defined]
    return config if same else replace(config, witness=chosen())  # type: ignore[call-arg]
