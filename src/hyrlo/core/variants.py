"""Which variant of an algorithm to run: a preset is a budget; the variant follows from the world or from the user's choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hyrlo.core.errors import HyrloError
from hyrlo.core.names import nearest

Config = TypeVar("Config")

PRESETS = {
    "paper": "the sizes of the paper's tables",
    "fast": "a fixed budget that takes little time",
    "lean": "a fixed budget of few episodes, chosen on the lock",
}
"""The budgets that `--preset` takes."""
DEFAULT = "fast"


@dataclass(frozen=True)
class Choice:
    """What decides the variant: what the user asks for (None: nothing) and what the world says of itself."""

    preset: str | None = None
    forward: str | None = None
    """Estimator of the forward pass."""
    improve: str | None = None
    """Algorithm of the backward pass."""
    discriminator: str | None = None
    explore: float | None = None
    """Share of the roll-ins that explore."""
    vectors: bool = False
    """Whether actions are vectors."""
    tuned: bool = False
    """Whether options are set that only a fixed variant has, such as the samples of the forward pass."""

    @property
    def open(self) -> bool:
        """Whether nothing is asked for that decides the estimator of the forward pass, so that a measurement does."""
        return not (
            self.vectors or self.tuned or self.preset or self.forward or self.discriminator or self.explore is not None
        )

    def pick(self, presets: Mapping[str, Config], what: str) -> Config:
        """The preset's config; the default preset, or the only one, where none is asked for."""
        if self.preset is None:
            return presets[DEFAULT] if DEFAULT in presets else next(iter(presets.values()))
        check_preset(self.preset)
        if self.preset not in presets:
            raise HyrloError(f"{what} has no preset {self.preset}; give {' or '.join(presets)}")
        return presets[self.preset]

    def variant(self, option: str, variants: Mapping[str, Mapping[str, Any]]) -> str:
        """The name of the variant: what `option` asks for, else the first; for preset `paper`, the paper's."""
        asked: str | None = getattr(self, option)
        if asked is not None:
            if asked not in variants:
                raise HyrloError(f"--{option}: {asked!r} is not possible here; give {' or '.join(variants)}")
            return asked
        papers = [name for name, presets in variants.items() if "paper" in presets]
        return papers[0] if self.preset == "paper" and papers else next(iter(variants))

    def suited_to(self, forward: str) -> Choice:
        """With the backward pass that suits an estimator of the forward pass, where none is asked for."""
        suited = {"latent": "plan", "model": "sac"}.get(forward)
        return self if self.improve or suited is None or self.tuned else replace(self, improve=suited)

    def for_presets(self, presets: Mapping[str, Any]) -> Choice:
        """The same without the preset, if these do not have it."""
        return self if self.preset in presets else replace(self, preset=None)


def check_preset(preset: str) -> None:
    if preset in ("model", "robot"):
        raise HyrloError(
            f"preset {preset} was removed in 0.2: presets are budgets ({', '.join(PRESETS)}); choose the variant with "
            "--forward and --improve; for robots the default suits"
        )
    if preset not in PRESETS:
        raise HyrloError(f"unknown preset {preset!r}{nearest(preset, PRESETS)}; give {', '.join(PRESETS)}")


def from_presets(presets: Mapping[str, Any], name: str) -> Callable[[Choice], Any]:
    """How an algorithm without variants is configured."""
    return lambda choice: choice.pick(presets, name)


def has_option(config: Any, path: str) -> bool:
    """Whether a config has a field of this dotted name."""
    name, _, rest = path.partition(".")
    if not dataclasses.is_dataclass(config) or name not in {field.name for field in dataclasses.fields(config)}:
        return False
    return not rest or has_option(getattr(config, name), rest)


def with_options(config: Config, options: Mapping[str, Any]) -> Config:
    """The config with some fields replaced, nested ones by dotted names: `{"forward.samples": 800}`."""
    for path, value in options.items():
        config = _with_option(config, path.split("."), value, path)
    return config


def _with_option(config: Any, names: list[str], value: Any, path: str) -> Any:
    known = [field.name for field in dataclasses.fields(config)] if dataclasses.is_dataclass(config) else []
    if names[0] not in known:
        raise HyrloError(f"{type(config).__name__} has no option {path}{nearest(names[0], known)}")
    inner = _with_option(getattr(config, names[0]), names[1:], value, path) if names[1:] else value
    return replace(config, **{names[0]: inner})
