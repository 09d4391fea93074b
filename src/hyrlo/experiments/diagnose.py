"""Does `hyrlo diagnose` flag inadmissible data, and only those? The three locks, against what is exactly reachable.

Which steps no policy can match follows from the locks' definition (`exact_reach`); the margins of the flags were fixed
on other seeds than these.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from hyrlo.core.serialize import load_policy
from hyrlo.diagnostics.admissibility import DiagnoseConfig, ranges, reach
from hyrlo.distances.two_sample import TestConfig
from hyrlo.envs import World, make
from hyrlo.envs.lock import BAD, OPENING, SLIP, Lock, behaviour_occupancy, inadmissible_occupancy
from hyrlo.envs.lock_world import INADMISSIBLE
from hyrlo.experiments.recipes import Scale, smoke
from hyrlo.experiments.runner import Finished, RunSpec, by_group, markdown, write_csv
from hyrlo.forward.importance import PRESETS

HORIZON = {"smoke": 3, "quick": 10, "paper": 10}
SEEDS = {"smoke": 1, "quick": 3, "paper": 10}
ENVIRONMENTS = ("lock", "lock-benign", "lock-adversarial")
CLEAR = 0.03
"""By how much the exact mismatch has to exceed a margin before not flagging it counts as an error."""


class Reach(NamedTuple):
    """What no policy can do better, step by step (TV of latent states)."""

    alone: Float[np.ndarray, " steps"]
    """Least TV at a step, if a policy cares for that step only."""
    followed: Float[np.ndarray, " steps"]
    """Least TV at a step after every earlier one was matched as well as possible, in their order: a perfect forward pass."""
    occupancy: Float[np.ndarray, "steps 3"]
    """Of that forward pass."""
    together: float
    """Least possible largest TV over the steps, by one policy: 0 if and only if the data are admissible."""


def dynamics(lock: Lock) -> Float[np.ndarray, "horizon 3 2 3"]:
    """P(s' | s, a) for a correct and a wrong action: all wrong ones are alike."""
    table = np.zeros((lock.horizon, 3, 2, 3))
    table[..., BAD] = 1
    table[:, :BAD, 0] = 0.5, 0.5, 0
    if lock.adversarial:
        table[0, :BAD] = (OPENING, 1 - OPENING, 0), (0, SLIP, 1 - SLIP)
        table[1, 1] = 0, 0, 1
    return table


def data_occupancy(world: World) -> Float[np.ndarray, "steps 3"]:
    lock: Lock = world.env
    return inadmissible_occupancy(lock) if world.name in INADMISSIBLE else behaviour_occupancy(lock, 1 / lock.horizon)


def exact_reach(world: World) -> Reach:
    """Linear programs over occupancies d_h(s, a): they flow from step to step, and |d_h − μ_h| is linear in slacks."""
    tables, wanted = dynamics(world.env), data_occupancy(world)
    horizon = len(tables)
    alone = [0.0] + [
        _program(tables[:h], wanted[: h + 1], weights=[0.0] * (h - 1) + [1.0])[0] for h in range(1, horizon + 1)
    ]
    together = _program(tables, wanted, weights=None)[0]
    occupancy = [wanted[0]]
    for h in range(horizon):
        _, following = _program(tables[h : h + 1], np.stack([occupancy[-1], wanted[h + 1]]), weights=[1.0])
        occupancy.append(following)
    followed = np.abs(np.stack(occupancy) - wanted).sum(axis=1) / 2
    return Reach(np.array(alone), followed, np.stack(occupancy), together)


def _program(
    tables: Float[np.ndarray, "h 3 2 3"], wanted: Float[np.ndarray, "steps 3"], weights: list[float] | None
) -> tuple[float, Float[np.ndarray, " 3"]]:
    """min Σ_h weights_h TV_h, or min max_h TV_h; starts at `wanted[0]`. Also where the last step leads.

    Variables: d_h(s, a), then slacks e_h(s') ≥ |d_{h+1}(s') − μ_{h+1}(s')|, then the largest TV.
    """
    steps, states, actions, _ = tables.shape
    flows, slacks = steps * states * actions, steps * states
    size = flows + slacks + 1
    equal, right = np.zeros((steps * states, size)), np.zeros(steps * states)
    below, bounds = np.zeros((2 * slacks + steps, size)), np.zeros(2 * slacks + steps)
    following = np.zeros((steps, states, size))
    for h in range(steps):
        mine = slice(h * states * actions, (h + 1) * states * actions)
        following[h][:, mine] = tables[h].reshape(-1, states).T
        rows = slice(h * states, (h + 1) * states)
        equal[rows, mine] = np.kron(np.eye(states), np.ones(actions))
        equal[rows] -= following[h - 1] if h else 0
        right[rows] = 0 if h else wanted[0]
        for sign, block in ((1, 0), (-1, slacks)):
            mark = slice(block + h * states, block + (h + 1) * states)
            below[mark] = sign * following[h]
            below[mark, flows + h * states : flows + (h + 1) * states] = -np.eye(states)
            bounds[mark] = sign * wanted[h + 1]
        below[2 * slacks + h, flows + h * states : flows + (h + 1) * states] = 0.5
        below[2 * slacks + h, -1] = -1
    cost = np.zeros(size)
    if weights is None:
        cost[-1] = 1
    else:
        cost[flows:-1] = np.repeat(weights, states) / 2
    solved = scipy.optimize.linprog(cost, below, bounds, equal, right)
    return float(solved.fun), following[-1] @ solved.x


class Truth(NamedTuple):
    """Steps that have to be flagged, and those that must not be; between the two lies what is small."""

    must: set[int]
    must_not: set[int]


def truth(world: World, config: DiagnoseConfig) -> Truth:
    """What a perfect forward pass and perfect tests would flag clearly; admissible steps must not be flagged."""
    exact, wanted = exact_reach(world), data_occupancy(world)
    uncovered = np.where(wanted >= config.test.rare * exact.occupancy, wanted, 0).sum(axis=1)
    clear = (exact.followed > config.gap + CLEAR) | (uncovered > config.missed + CLEAR)
    return Truth(set(np.flatnonzero(clear).tolist()), set(np.flatnonzero(exact.followed < 1e-6).tolist()))


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    config = PRESETS["paper"]
    if scale == "smoke":
        config = smoke(config)
    return [
        RunSpec(f"fail-{env}", "fail", env, HORIZON[scale], config, seed, curve_episodes=100)
        for env in ENVIRONMENTS
        for seed in seeds
    ]


def diagnose_config(scale: Scale) -> DiagnoseConfig:
    if scale == "smoke":
        return DiagnoseConfig(episodes=100, test=TestConfig(most=50, permutations=19, updates=30, resamples=20))
    return DiagnoseConfig()


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """The forward policy of each run, rolled out afresh, against the data that it was trained on."""
    config, rows, table = diagnose_config(scale), [], []
    for group, members in by_group(runs).items():
        right = 0
        for run in members:
            world = make(run.spec.env, run.spec.horizon)
            data = world.prepare(world.behaviour_data(run.spec.seed, run.spec.config.offline_samples))
            expected = truth(world, config)
            steps = reach(world.trace_model(), data, {"roll-in": load_policy(run.path)}, config, run.spec.seed)
            flagged = {row.step for row in steps if row.flagged}
            good = expected.must <= flagged and not flagged & expected.must_not
            right += good
            rows.append(_row(run, flagged, expected, good, steps))
        mine = dict.fromkeys(row["flagged"] for row in rows[-len(members) :])
        must, must_not = (ranges(sorted(steps)) or "none" for steps in expected)
        score, least = f"{right} of {len(members)}", f"{exact_reach(world).together:.3f}"
        name = f"`{group.removeprefix('fail-')}`"
        table.append([name, str(len(members)), least, must, must_not, "; ".join(mine), score])
    write_csv(out / "diagnose.csv", rows)
    header = ["data", "seeds", "least TV of any policy", "must be flagged", "must not be", "flagged", "right"]
    return markdown(header, table)


def _row(run: Finished, flagged: set[int], expected: Truth, good: bool, steps: list[Any]) -> dict[str, Any]:
    return {
        "env": run.spec.env, "seed": run.spec.seed, "horizon": run.spec.horizon,
        "flagged": ranges(sorted(flagged)) or "none", "must": ranges(sorted(expected.must)) or "none",
        "must_not": ranges(sorted(expected.must_not)), "right": int(good),
        "commit": run.code,
        **{f"gap_{row.step}": round(row.gap, 4) for row in steps},
        **{f"missed_{row.step}": round(row.missed, 4) for row in steps},
        **{f"p_{row.step}": f"{row.p_value:.2g}" for row in steps},
    }  # fmt: skip
