"""The Adroit hammer with binary reward: FOOBAR beside RLPD and SAC from scratch, and how well the roll-in matches its data.

The expert behind the data must be at hand (`hammer_expert.py`); at `smoke` scale random actions take its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hyrlo.backward.sac import MOTION as BACKWARD
from hyrlo.backward.sac import SCRATCH_MOTION as SCRATCH
from hyrlo.baselines.distil import PRESETS as DISTIL
from hyrlo.baselines.rlpd import PRESETS as RLPD
from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import Policy
from hyrlo.core.serialize import load_policy
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.distances import StateUnits, mmd2
from hyrlo.distances.two_sample import TestConfig, compare
from hyrlo.envs import make
from hyrlo.envs.hammer import NAME, HammerWorld
from hyrlo.experiments import plots
from hyrlo.experiments.hammer_expert import expert_states, expert_transitions, load_expert
from hyrlo.experiments.recipes import HELD_OUT, Scale, smoke
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, row_of, say, spread, write_csv
from hyrlo.foobar import FoobarConfig
from hyrlo.forward.model import MOTION as FORWARD
from hyrlo.runs.directory import roll_in_of
from hyrlo.runs.render import render_run, render_strip

SEEDS = {"smoke": 1, "quick": 1, "paper": 3}
HORIZON = {"smoke": 3, "quick": 50, "paper": 50}
EPISODES = {"smoke": 40, "quick": 2000, "paper": 2000}
CHECKED = {"smoke": 40, "quick": 500, "paper": 1000}
"""Episodes of the roll-in that the report compares with the data."""
WEAK = 16
"""Samples a step for a roll-in that is about as weak as the paper's."""
FEWER = (40, 24, WEAK, 8)
"""Samples a step, for the search for the fewest."""
SHARED = ("iterations", "collections", "episodes", "gamma", "reward_scale")
"""What RLPD takes from the backward pass in both of its rows: the number of steps and the units of values."""
NOT_OF_THE_METHOD = ("initial_value", "last_learning_rate", "entropy", "temperature", "average")
"""Settings that are part of neither method. `rlpd` has the published ones, `rlpd-shared` those of the backward pass."""
ROLL_INS = {"distil": "foobar", "weak": f"fail-{WEAK}"}
"""Which group a run takes its roll-in from."""
LABELS = {
    "foobar": "FOOBAR",
    "weak": "FOOBAR, weak roll-in",
    "rlpd": "RLPD",
    "rlpd-shared": "RLPD, shared settings",
    "sac": "SAC from scratch",
}


def player(scale: Scale, world: HammerWorld) -> Policy:
    return world.spec.uniform() if scale == "smoke" else load_expert()


def logs(world: HammerWorld, seed: int, scale: Scale) -> ObservationDataset:
    """States alone, as a user would have them."""
    return expert_states(world, player(scale, world), EPISODES[scale], seed)


def tuples(world: HammerWorld, seed: int, scale: Scale) -> TransitionDataset:
    """For RLPD, which needs actions and rewards: as many episodes as FOOBAR has states of."""
    return expert_transitions(world, player(scale, world), EPISODES[scale], seed)


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    groups = ["foobar", "distil", f"fail-{WEAK}", "weak"]
    if scale != "smoke":
        groups += ["rlpd", "rlpd-shared", "sac"]
    if scale == "paper":
        groups += [f"fail-{n}" for n in FEWER if n != WEAK]
    return [spec_of(group, seed, scale) for group in groups for seed in seeds]


def spec_of(group: str, seed: int, scale: Scale) -> RunSpec:
    """RLPD has as many steps as the backward pass, SAC from scratch more than both passes; both have about as many updates
    as the backward pass, which learns from the six tenths of its steps that come after the switch."""
    scratch = replace(SCRATCH, collections=3 * SCRATCH.collections, utd=0.1)
    rlpd = replace(RLPD["fast"], utd=0.3, **{name: getattr(BACKWARD, name) for name in SHARED})
    shared = replace(rlpd, **{name: getattr(BACKWARD, name) for name in NOT_OF_THE_METHOD})
    configs: dict[str, tuple[str, Any]] = {
        "foobar": ("foobar", FoobarConfig(FORWARD, BACKWARD)),
        "weak": ("cpi", BACKWARD),
        "distil": ("distil", DISTIL["fast"]),
        "rlpd": ("rlpd", rlpd),
        "rlpd-shared": ("rlpd", shared),
        "sac": ("sac", scratch),
        **{f"fail-{n}": ("fail", replace(FORWARD, samples=n)) for n in FEWER},
    }
    algo, config = configs[group]
    source = None if group == "sac" or group in ROLL_INS else tuples if algo == "rlpd" else logs
    return RunSpec(
        f"{group}-hammer", algo, NAME, HORIZON[scale], smoke(config) if scale == "smoke" else config, seed,
        curve_episodes=4 if scale == "smoke" else 32, eval_episodes=10 if scale == "smoke" else 256,
        source=(source, {"scale": scale}) if source else None,
        roll_in=f"{ROLL_INS[group]}-hammer" if group in ROLL_INS else None,
    )  # fmt: skip


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """Roll-ins are played once more and compared with states of the expert that they have not seen."""
    groups = {name.removesuffix("-hammer"): members for name, members in by_group(runs).items()}
    for name, first in ROLL_INS.items():
        groups[name] = [both for run in groups.get(name, []) for both in after(groups.get(first, []), run)]
    groups = {name: members for name, members in groups.items() if members}
    curves = {LABELS[name]: [run.metrics for run in members] for name, members in groups.items() if name in LABELS}
    data = played(player(scale, hammer(HORIZON[scale])), scale)
    plots.successes(out / "success.png", curves, data[0], f"{NAME}, H = {HORIZON[scale]}")
    steps, forward = [], {}
    reference = Reference.create(scale)
    for name, members in groups.items():
        for run in members:
            if name == "foobar" or name.startswith("fail-"):
                closer = compared(run, reference, scale, tests=name in ("foobar", f"fail-{WEAK}"))
                forward[run.path] = closer[-1]["success_by_now"]
                steps += [{"group": name, "seed": run.spec.seed, **row} for row in closer]
    if steps:
        write_csv(out / "steps.csv", steps)
        plots.match_per_step(out / "match.png", [row | {"group": samples(row["group"], scale)} for row in steps])
    rows = [
        {**row_of(run), "forward_success": forward.get(run.path, ""), **minutes(run)}
        for members in groups.values()
        for run in members
    ]
    write_csv(out / "hammer.csv", rows)
    pictures(groups, out)
    return table(groups, forward, scale, data)


def after(forward: list[Finished], backward: Finished) -> list[Finished]:
    """A run that began from the roll-in of another, with that one's forward pass in front; none without it."""
    for first in forward:
        if first.spec.seed == backward.spec.seed:
            passed = [line for line in first.metrics if line["phase"] == "forward"]
            cost = {**passed[-1], "wall_seconds": passed[-1]["seconds"]}
            keys = ["episodes", "steps", "seconds", "wall_seconds"]
            result, *lines = (
                line | {key: line[key] + cost[key] for key in keys if key in line}
                for line in (backward.result, *backward.metrics)
            )
            return [replace(backward, result=result, metrics=passed + lines, path=first.path)]
    return []


def samples(group: str, scale: Scale) -> str:
    """How many the forward pass has, a step."""
    config = spec_of(group, 0, scale).config
    forward = getattr(config, "forward", config)
    label = f"{forward.rounds * forward.samples:,} samples a step"
    return f"{label} ({group})" if scale == "smoke" else label  # where all have the same size


def hammer(horizon: int) -> HammerWorld:
    world = make(NAME, horizon)
    assert isinstance(world, HammerWorld)
    return world


def played(policy: Policy, scale: Scale) -> tuple[float, float]:
    """Success and mean return."""
    batch = hammer(HORIZON[scale]).trace_model().rollout(jax.random.key(3), policy, CHECKED[scale])
    assert batch.success is not None
    return float(jnp.mean(batch.success)), float(jnp.mean(batch.returns))


def minutes(run: Finished) -> dict[str, Any]:
    """Of both passes, and steps of the first."""
    first = [line for line in run.metrics if line["phase"] == "forward"]
    return {"forward_steps": first[-1]["steps"] if first else "", "minutes": round(run.result["wall_seconds"] / 60, 1)}


class Reference(NamedTuple):
    """States of the expert that no run has seen, and how far more of them are from these, by step."""

    states: list[np.ndarray]
    mmd2: list[float]
    js: list[float]

    @classmethod
    def create(cls, scale: Scale) -> Reference:
        world = hammer(HORIZON[scale])
        states, more = (
            [np.asarray(x) for x in expert_states(world, player(scale, world), CHECKED[scale], seed).steps[1:]]
            for seed in HELD_OUT
        )
        return cls(states, distances2(more, states), divergences(more, states, scale))


def distances2(found: list[np.ndarray], wanted: list[np.ndarray]) -> list[float]:
    """Squared MMD by step, in units of the spread there."""
    everywhere, by_step = StateUnits.of_steps(wanted, ends=False), []
    for x, y in zip(found, wanted, strict=True):
        units = everywhere.of_step(jnp.asarray(y), jnp.ones(len(y)))
        by_step.append(round(float(mmd2(*(units(jnp.asarray(states)).white for states in (x, y)))), 6))
    return by_step


def divergences(found: list[np.ndarray], wanted: list[np.ndarray], scale: Scale) -> list[float]:
    """Jensen–Shannon divergence by step, by a classifier, with natural logarithms."""
    config = TestConfig(permutations=9, resamples=2, updates=10 if scale == "smoke" else TestConfig.updates)
    return [round(effect.js, 5) for effect in compare(found, wanted, config).effects]


def compared(run: Finished, reference: Reference, scale: Scale, tests: bool) -> list[dict[str, Any]]:
    """A row a step: how far the states of the roll-in are from those of the expert, and the share that has succeeded."""
    horizon, n = run.spec.horizon, CHECKED[scale]
    every = tuple(range(horizon))
    batch = hammer(horizon).trace_model().record(jax.random.key(1), roll_in_of(run.path), n, every)
    reached = [np.asarray(x) for x in batch.next_states]
    by_now = np.maximum.accumulate(np.asarray(batch.rewards) > 0, axis=0).mean(axis=1)
    columns = {
        "js": divergences(reached, reference.states, scale) if tests else [""] * horizon, "js_floor": reference.js,
        "step": [h + 1 for h in every], "mmd2": distances2(reached, reference.states), "floor": reference.mmd2,
        "success_by_now": [float(x) for x in by_now],
    }  # fmt: skip
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def pictures(groups: dict[str, list[Finished]], out: Path) -> None:
    """A roll-in that fails, if there is one, and the final policy, as strips; the latter as a GIF too."""
    if not groups.get("foobar"):
        return
    run = groups["foobar"][0]
    world = hammer(run.spec.horizon)
    shown = tuple(range(0, run.spec.horizon + 1, max(1, run.spec.horizon // 5)))
    try:
        weak = groups.get("weak", groups["foobar"])[0]
        for seed in range(20):  # until one fails
            failed = render_strip(world, roll_in_of(weak.path), out / "forward-failure.png", seed, shown)
            if failed.episode_return <= -run.spec.horizon:
                break
        else:
            failed.file.unlink()
        render_strip(world, load_policy(run.path), out / "final.png", 0, shown)
        render_run(run.path, out / "final.gif")
    except HyrloError as error:
        say(f"no pictures: {error}")


def table(
    groups: dict[str, list[Finished]], forward: dict[Path, float], scale: Scale, data: tuple[float, float]
) -> str:
    rows = []
    for name, members in groups.items():
        matched = [forward[run.path] for run in members if run.path in forward]
        alone = name.startswith("fail-")
        rows.append(
            [
                f"forward, {samples(name, scale)}" if alone else LABELS.get(name, name), str(len(members)),
                *with_worst(matched),
                *with_worst([] if alone else [run.result["success_rate"] for run in members]),
                spread([run.result["return_mean"] for run in members]),
                spread([run.result["steps"] for run in members]), spread([minutes(run)["minutes"] for run in members]),
            ]
        )  # fmt: skip
    others = {"random actions in place of data" if scale == "smoke" else "data": data}
    if scale != "smoke":
        others["expert without noise"] = played(load_expert(noise=False), scale)
    rows += [[name, "", "", "", f"{of[0]:.3f}", "", f"{of[1]:.1f}", "", ""] for name, of in others.items()]
    header = [
        "", "seeds", "success of the roll-in", "worst seed", "success", "worst seed", "return", "environment steps",
        "minutes",
    ]  # fmt: skip
    return markdown(header, rows)


def with_worst(values: list[float]) -> list[str]:
    return [spread(values), f"{min(values):.3g}"] if values else ["", ""]
