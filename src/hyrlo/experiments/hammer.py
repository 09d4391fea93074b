"""The Adroit hammer with binary reward: FOOBAR beside RLPD and SAC from scratch, and how well the roll-in matches its data.

The expert behind the data must be at hand (`hammer_expert.py`); at `smoke` scale random actions take its place.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hyrlo import plots
from hyrlo.algorithms.distil import PRESETS as DISTIL
from hyrlo.algorithms.fail import PRESETS as FAIL
from hyrlo.algorithms.foobar import PRESETS as FOOBAR
from hyrlo.algorithms.rlpd import PRESETS as RLPD
from hyrlo.data import ObservationDataset
from hyrlo.diagnostics.two_sample import TestConfig, compare
from hyrlo.distances import mmd2
from hyrlo.envs import make
from hyrlo.envs.hammer import NAME, HammerWorld
from hyrlo.errors import HyrloError
from hyrlo.experiments.hammer_expert import expert_states, expert_transitions, load_expert
from hyrlo.experiments.recipes import Scale, smoke
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, row_of, say, spread, write_csv
from hyrlo.networks import whiten
from hyrlo.policies import Policy
from hyrlo.render import render_run, render_strip
from hyrlo.runs import roll_in_of
from hyrlo.serialize import load_policy
from hyrlo.transitions import TransitionDataset

TITLE = "The Adroit hammer: FOOBAR beside RLPD and SAC from scratch, roll-in against data, frames"
SEEDS = {"smoke": 1, "quick": 1, "paper": 3}
HORIZON = {"smoke": 3, "quick": 50, "paper": 50}
EPISODES = {"smoke": 40, "quick": 2000, "paper": 2000}
TUPLES = {"smoke": 20, "quick": 500, "paper": 500}
CHECKED = {"smoke": 40, "quick": 500, "paper": 1000}
"""Episodes of the roll-in that the report compares with the data."""
WEAK = 50
"""Samples of a collection for a roll-in that is about as weak as the paper's."""
FEWER = (400, 100, 25)
"""Samples of a collection, for the search for the fewest."""
LABELS = {"foobar": "FOOBAR", "weak": "FOOBAR, weak roll-in", "rlpd": "RLPD", "sac": "SAC from scratch"}


def player(scale: Scale, world: HammerWorld) -> Policy:
    return world.spec.uniform() if scale == "smoke" else load_expert()


def logs(world: HammerWorld, seed: int, scale: Scale) -> ObservationDataset:
    """States alone, as a user would have them."""
    return expert_states(world, player(scale, world), EPISODES[scale], seed)


def tuples(world: HammerWorld, seed: int, scale: Scale) -> TransitionDataset:
    """For RLPD, which needs actions and rewards."""
    return expert_transitions(world, player(scale, world), TUPLES[scale], seed)


def runs(scale: Scale, seeds: int) -> list[RunSpec]:
    groups = ["foobar", "distil"]
    if scale != "smoke":
        groups += ["weak", "rlpd", "sac"]
    if scale == "paper":
        groups += [f"fail-{n}" for n in FEWER]
    return [spec_of(group, seed, scale) for group in groups for seed in range(seeds)]


def spec_of(group: str, seed: int, scale: Scale) -> RunSpec:
    """RLPD has as many steps as the backward pass. SAC from scratch has more than both passes, and fewer updates a step."""
    foobar = FOOBAR["robot"]
    scratch = replace(foobar.sac, iterations=6 * foobar.sac.iterations, utd=0.05)
    shared = {f: getattr(foobar.sac, f) for f in ("iterations", "collections", "episodes", "gamma", "reward_scale")}
    configs: dict[str, tuple[str, Any]] = {
        "foobar": ("foobar", foobar),
        "weak": ("foobar", replace(foobar, forward=replace(foobar.forward, samples=WEAK))),
        "distil": ("distil", DISTIL["fast"]),
        "rlpd": ("rlpd", replace(RLPD["fast"], **shared)),
        "sac": ("sac", scratch),
        **{f"fail-{n}": ("fail", replace(FAIL["robot"], samples=n)) for n in FEWER},
    }
    algo, config = configs[group]
    source = {"rlpd": tuples, "sac": None, "distil": None}.get(group, logs)
    return RunSpec(
        f"{group}-hammer", algo, NAME, HORIZON[scale], smoke(config) if scale == "smoke" else config, seed,
        curve_episodes=4 if scale == "smoke" else 32, eval_episodes=10 if scale == "smoke" else 256,
        source=(source, {"scale": scale}) if source else None,
        roll_in="foobar-hammer" if group == "distil" else None,
    )  # fmt: skip


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """Roll-ins are played once more and compared with states of the expert that they have not seen."""
    groups = {name.removesuffix("-hammer"): members for name, members in by_group(runs).items()}
    curves = {LABELS[name]: [run.metrics for run in members] for name, members in groups.items() if name in LABELS}
    level = success_of(player(scale, hammer(HORIZON[scale])), scale)
    plots.successes(out / "success.png", curves, level, f"{NAME}, H = {HORIZON[scale]}")
    steps, forward = [], {}
    for name, members in groups.items():
        for run in members:
            if name in ("foobar", "weak") or name.startswith("fail-"):
                closer = compared(run, scale, tests=name in ("foobar", "weak"))
                forward[name, run.spec.seed] = closer[-1]["success_by_now"]
                steps += [{"group": name, "seed": run.spec.seed, **row} for row in closer]
    if steps:
        write_csv(out / "steps.csv", steps)
        plots.match_per_step(out / "match.png", steps)
    rows = [
        {**row_of(run), "forward_success": forward.get((name, run.spec.seed), ""), **minutes(run)}
        for name, members in groups.items()
        for run in members
    ]
    write_csv(out / "hammer.csv", rows)
    pictures(groups, out)
    return table(groups, forward, scale, level)


def hammer(horizon: int) -> HammerWorld:
    world = make(NAME, horizon)
    assert isinstance(world, HammerWorld)
    return world


def success_of(policy: Policy, scale: Scale) -> float:
    success = hammer(HORIZON[scale]).trace_model().rollout(jax.random.key(3), policy, CHECKED[scale]).success
    assert success is not None
    return float(jnp.mean(success))


def minutes(run: Finished) -> dict[str, Any]:
    """Of both passes, and steps of the first."""
    first = [line for line in run.metrics if line["phase"] == "forward"]
    return {"forward_steps": first[-1]["steps"] if first else "", "minutes": round(run.result["wall_seconds"] / 60, 1)}


def compared(run: Finished, scale: Scale, tests: bool) -> list[dict[str, Any]]:
    """A row a step: squared MMD to unseen states of the expert, that of the expert to itself, and with `tests` the
    Jensen–Shannon divergence by a classifier (natural logarithm) of both."""
    horizon, n = run.spec.horizon, CHECKED[scale]
    world = hammer(horizon)
    expert = player(scale, world)
    unseen, more = (
        [np.asarray(x) for x in expert_states(world, expert, n, seed).steps[1:]]
        for seed in (1000, 2000 + run.spec.seed)
    )
    batch = world.trace_model().rollout(
        jax.random.key(1), roll_in_of(run.path), n, record=tuple(range(horizon)), next_states=True
    )
    assert batch.next_states is not None
    assert batch.rewards is not None
    reached = [np.asarray(x) for x in batch.next_states]
    by_now = np.maximum.accumulate(np.asarray(batch.rewards) > 0, axis=0).mean(axis=1)
    scale_of_all = np.concatenate(unseen).std(axis=0)
    rows = []
    for h in range(horizon):
        spread_here = jnp.asarray(np.maximum(np.maximum(unseen[h].std(axis=0), 0.1 * scale_of_all), 1e-6))
        white = [
            whiten(jnp.asarray(x[h]), jnp.asarray(unseen[h].mean(axis=0)), spread_here) for x in (reached, more, unseen)
        ]
        rows.append(
            {
                "step": h + 1, "mmd2": round(float(mmd2(white[0], white[2])), 6),
                "floor": round(float(mmd2(white[1], white[2])), 6), "success_by_now": float(by_now[h]),
            }
        )  # fmt: skip
    config = TestConfig(permutations=9, updates=10, resamples=10) if scale == "smoke" else TestConfig(permutations=19)
    for name, states in (("js", reached), ("js_floor", more)) if tests else ():
        for row, effect in zip(rows, compare(states, unseen, config).effects, strict=True):
            row[name] = round(effect.js, 5)
    return [{"js": "", "js_floor": "", **row} for row in rows]


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


def table(groups: dict[str, list[Finished]], forward: dict[tuple[str, int], float], scale: Scale, level: float) -> str:
    rows = []
    for name, members in groups.items():
        matched = [forward[name, run.spec.seed] for run in members if (name, run.spec.seed) in forward]
        final = [] if name.startswith("fail-") else [run.result["success_rate"] for run in members]
        rows.append(
            [
                LABELS.get(name, name), str(len(members)), spread(matched) if matched else "",
                spread(final) if final else "", f"{min(final):.3f}" if final else "",
                spread([run.result["steps"] for run in members]), spread([minutes(run)["minutes"] for run in members]),
            ]
        )  # fmt: skip
    rows.append(["data", "", "", f"{level:.3f}", "", "", ""])
    if scale != "smoke":
        rows.append(["expert without noise", "", "", f"{success_of(load_expert(noise=False), scale):.3f}", "", "", ""])
    header = ["", "seeds", "success of the roll-in", "success", "worst seed", "environment steps", "minutes"]
    return markdown(header, rows)
