"""Finished runs: load them and evaluate their policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyrlo.core.access import Evaluation, evaluate
from hyrlo.core.errors import HyrloError, RunError, check_seed
from hyrlo.core.keys import Keys
from hyrlo.core.policies import Policy
from hyrlo.core.ranges import Count, check_value, shown
from hyrlo.core.serialize import load_policy
from hyrlo.envs import World
from hyrlo.runs.cache import enable_compilation_cache
from hyrlo.runs.contents import read_result
from hyrlo.runs.directory import read_config
from hyrlo.runs.fit import misfit, other_horizon
from hyrlo.runs.trust import world_of_run


def load_run(path: str | Path, world: World | None = None, trust: bool = False) -> tuple[World, Policy, dict[str, Any]]:
    """The world, the policy and the config of a finished run, which fit together.

    Give the `world` if it was made from an object; then nothing is imported. With `trust`, modules that the run's
    `config.json` names are imported: only for runs of people whose code you would run.
    """
    policy, settings = load_finished(Path(path))
    world = world or world_of_run(Path(path) / "config.json", settings, trust)
    check_fits(Path(path), policy, settings, world)
    return world, policy, settings


def load_finished(path: Path) -> tuple[Policy, dict[str, Any]]:
    """The policy and the config of a finished run, which agree on the horizon; no environment is made."""
    settings = read_config(path)
    if not (path / "policy.json").exists():
        raise HyrloError(f"{path}: the run has not finished, so it has no policy yet; continue it with --resume")
    policy = load_policy(path)
    made_for = other_horizon(policy, settings["horizon"])
    result = read_result(path) if ended(path) else settings
    for name in ("algo", "env", "seed", "horizon"):
        if result[name] != settings[name]:
            raise RunError(
                f"{path / 'config.json'}: {name} is {shown(settings[name])}, but {shown(result[name])} in result.json; "
                "restore the file"
            )
    if made_for is not None:
        raise RunError(
            f"{path / 'config.json'}: horizon is {settings['horizon']}, but the policy is for {made_for} steps; "
            "restore the file"
        )
    return policy, settings


def check_fits(path: Path, policy: Policy, settings: Mapping[str, Any], world: World) -> None:
    """Reject a run whose policy and config are not for this world."""
    there, here = settings.get("actions", world.spec.actions), world.spec.actions
    if there != here:
        raise RunError(
            f"{path / 'config.json'}: actions is {there}, but {world.name} has {here} (with its env_options); give the "
            "environment of the run, or restore the file"
        )
    if problem := misfit(policy, world.spec, world.name):
        raise RunError(f"{path}: {problem}")


def ended(path: Path) -> bool:
    return (path / "result.json").exists()


def evaluate_run(
    path: str | Path, episodes: int = 1000, seed: int = 0, world: World | None = None, trust: bool = False
) -> Evaluation:
    """Evaluate a run's policy on fresh episodes; `world` and `trust` as for `load_run`."""
    check_value("episodes", episodes, Count)
    check_seed(seed, "seed")
    enable_compilation_cache()
    world, policy, _ = load_run(path, world, trust)
    return evaluate(world.trace_model(), policy, Keys.of_seed(seed).fresh_evaluation, episodes)
