"""The stationary setting: the guarantees of CPI-trace (Alg. 5) and Inter-FAIL (Alg. 6) on random discounted MDPs, exactly.

For each MDP: Inter-FAIL learns a forward policy from the interactive offline distribution of a behaviour policy, CPI-trace
improves from it, and both are compared with their bounds, in which every quantity is solved exactly. CPI-trace with networks
is run on CartPole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from hyrlo.backward.cpi import CpiConfig, most_updates
from hyrlo.core.access import evaluate
from hyrlo.core.policies import Policy
from hyrlo.envs import World, make
from hyrlo.envs.gym.collect import Noisy
from hyrlo.experiments import plots
from hyrlo.experiments.behaviour import Balance
from hyrlo.experiments.recipes import Scale, smoke
from hyrlo.experiments.runner import Finished, RunSpec, markdown, write_csv
from hyrlo.runs.directory import MemoryRun
from hyrlo.runs.intervals import spread
from hyrlo.runs.progress import Progress
from hyrlo.theory.discounted import (
    DiscountedEnv,
    DiscountedInteractiveModel,
    DiscountedMDP,
    Table,
    greedy_table,
    random_policy,
    table_policy,
)
from hyrlo.theory.finite_cpi import Estimate, cpi_finite, exact_estimates
from hyrlo.theory.inter_fail import InterFailConfig, match_states

SEEDS = {"smoke": 1, "quick": 1, "paper": 3}
MDPS = {"smoke": 3, "quick": 18, "paper": 60}
STATES, ACTIONS, GAMMAS = 12, 3, (0.5, 0.8, 0.9)
CLASSES = ("mmd", "all", "backups")
EPSILON = 0.01
MATCH = InterFailConfig(iterations=300, samples=50, points=1)
SMOKE_MATCH = InterFailConfig(iterations=20, samples=20, points=1)
DELTA = 0.05
ENV, HORIZON, OPTIONS, NOISE = "gym:CartPole-v1", 100, {"num_envs": 100}, 0.8


def runs(scale: Scale, seeds: Sequence[int]) -> list[RunSpec]:
    config = CpiConfig(iterations=10, samples=1000)
    if scale == "smoke":
        config = smoke(config)
    return [
        RunSpec("cpi-CartPole", "cpi", ENV, HORIZON, config, seed, curve_episodes=100, eval_episodes=200, options=OPTIONS,
                source=(roll_in_policy, {}))
        for seed in seeds
    ]  # fmt: skip


def roll_in_policy(world: World, seed: int) -> Policy:
    """The scripted `Balance` policy, with most of its actions replaced by uniform ones."""
    return Noisy(Balance(), world.spec.uniform(), jnp.asarray(NOISE))


def report(runs: list[Finished], out: Path, scale: Scale) -> str:
    """Compute all but the runs with networks, and report both."""
    forward, backward = [], []
    with Progress(label="stationary ").phase("MDPs", MDPS[scale], 0) as bar:
        for number in range(MDPS[scale]):
            task = StationaryTask.random(number)
            roll_in, row = inter_fail_row(task, SMOKE_MATCH if scale == "smoke" else MATCH)
            forward.append(row)
            backward += [cpi_row(task, roll_in, step) for step in ("advantage", "accuracy", "sloppy")]
            bar.advance({"success_rate": None, "return_mean": backward[-1]["value"], "episodes": row["samples"]})
    chains = [chain_row(gamma) for gamma in (0.5, 0.7, 0.8, 0.9, 0.95)]
    networks = [network_row(run) for run in runs]
    for name, rows in (("forward", forward), ("cpi", backward), ("chain", chains), ("networks", networks)):
        write_csv(out / f"stationary-{name}.csv", rows)
    plots.stationary_cpi(out / "cpi.png", backward, [run.metrics for run in runs], networks[0]["roll_in"])
    plots.stationary_forward(out / "inter-fail.png", forward, chains)
    return "\n".join([cpi_table(backward), forward_table(forward), chain_table(chains), network_table(networks)])


@dataclass(frozen=True)
class StationaryTask:
    """A random MDP, its behaviour policy, and the class of discriminators."""

    number: int
    mdp: DiscountedMDP
    behaviour: Table
    kind: str
    functions: Float[np.ndarray, "k states"] | None

    @classmethod
    def random(cls, number: int) -> StationaryTask:
        rng = np.random.default_rng([7, number])
        gamma, kind = GAMMAS[number % 3], CLASSES[(number + number // 3) % 3]
        mdp = DiscountedMDP.random(number, STATES, ACTIONS, gamma, branching=2 * (number // 9 % 2))
        mdp = replace(mdp, rewards=mdp.rewards**4)  # so that few states have a high value
        behaviour = 0.5 * mdp.optimal_policy() + 0.5 * random_policy(rng, STATES, ACTIONS)
        functions = backups(rng, mdp.chain(behaviour)) if kind == "backups" else None
        return cls(number, mdp, behaviour, kind, functions)

    def distance(self, difference: Float[np.ndarray, " states"]) -> float:
        """`max_g |g · difference|` over the class."""
        if self.functions is not None:
            return float(np.abs(self.functions @ difference).max())
        return float(np.linalg.norm(difference, 2 if self.kind == "mmd" else 1))


def backups(rng: np.random.Generator, chain: np.ndarray, starts: int = 6, depth: int = 12) -> np.ndarray:
    """Random functions and their backups `T^k g` under the behaviour policy: nearly complete."""
    levels = [rng.uniform(-1, 1, size=(starts, len(chain)))]
    for _ in range(depth - 1):
        levels.append(levels[-1] @ chain.T)
    return np.concatenate(levels)


# Inter-FAIL


def inter_fail_row(task: StationaryTask, config: InterFailConfig) -> tuple[Table, dict[str, Any]]:
    """The learned forward policy, and its distance from the offline distribution with the bounds.

    With MMD discriminators also the result of one sample per iteration, as in the pseudocode, for both ways to choose the
    returned policy.
    """
    learned = learn(task, config)
    exact = forward_row(task, learned)
    uniform = np.full((STATES, ACTIONS), 1 / ACTIONS)
    samples = config.iterations * config.samples
    size = 2 * len(task.functions) if task.functions is not None else None
    log_classes = None if size is None else np.log(2 * size / DELTA) + STATES * np.log(ACTIONS)
    row: dict[str, Any] = {
        "mdp": task.number,
        "gamma": task.mdp.gamma,
        "class": task.kind,
        **exact,
        "uniform_ipm": forward_row(task, uniform)["ipm"],
        "eps_forward": "" if log_classes is None else 8 * float(np.sqrt(2 * ACTIONS**2 * log_classes / samples)),
        "samples": samples,
    }
    single: dict[str, Any] = {"single_ipm": "", "single_returns_first": "", "single_late_ipm": ""}
    if task.kind == "mmd":
        once = replace(config, samples=1, iterations=500 if config is MATCH else 20, burn_in=0.0)
        literal, late = learn(task, once), learn(task, replace(once, burn_in=0.5))
        single["single_ipm"] = forward_row(task, literal)["ipm"]
        single["single_returns_first"] = int(np.ptp(literal) < 1e-6)
        single["single_late_ipm"] = forward_row(task, late)["ipm"]
    return learned, row | single


def learn(task: StationaryTask, config: InterFailConfig) -> Table:
    kind: Any = "finite" if task.kind == "backups" else task.kind
    model = DiscountedInteractiveModel(
        DiscountedEnv.create(task.mdp, horizon=20), behaviour=table_policy(task.behaviour)
    )
    functions = None if task.functions is None else jnp.asarray(task.functions, jnp.float32)
    policy: Any = match_states(
        model, functions, replace(config, discriminators=kind), jax.random.key(task.number), MemoryRun(curve_episodes=1)
    )
    return np.asarray(jax.nn.softmax(policy.network.weights[0]), float)


def forward_row(task: StationaryTask, policy: Table) -> dict[str, float]:
    """IPM(d^π, μ), the one-step distance ε on the policy's own states, ε_be, the paper's bound, and the one that holds."""
    mdp = task.mdp
    states, offline = mdp.occupancy(policy), mdp.occupancy(task.behaviour)
    chain = mdp.chain(task.behaviour)
    one_step = task.distance(states @ (mdp.chain(policy) - chain))
    backup = bellman_error(task, chain, states - offline)
    ipm = task.distance(states - offline)
    return {"ipm": ipm, "one_step": one_step, "bellman_error": backup, **bounds(mdp.gamma, one_step, backup)}


def bounds(gamma: float, one_step: float, bellman_error: float) -> dict[str, float]:
    return {
        "bound": (one_step + bellman_error) / (1 - gamma),
        "bound_twice": gamma * (one_step + 2 * bellman_error) / (1 - gamma),
    }


def bellman_error(task: StationaryTask, chain: np.ndarray, difference: np.ndarray) -> float:
    """`max_g min_f ‖f − T g‖∞`. For MMD only the g that the proof needs: the maximum over the ball is hard to find."""
    if task.kind == "mmd":
        needed = chain.T @ difference
        return distance_to_ball(chain @ (needed / max(np.linalg.norm(needed), 1e-30)))
    if task.functions is None:  # all bounded functions are complete
        return 0.0
    both = np.concatenate([task.functions, -task.functions])
    apart = np.abs(both[None] - (task.functions @ chain.T)[:, None]).max(axis=2)
    return float(apart.min(axis=1).max())


def distance_to_ball(function: Float[np.ndarray, " states"]) -> float:
    """Supremum distance to the nearest function of Euclidean norm at most 1."""

    def excess(distance: float) -> float:
        return float(np.linalg.norm(np.maximum(np.abs(function) - distance, 0.0)) - 1)

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, np.abs(function).max()))


def chain_row(gamma: float, length: int = 400) -> dict[str, float]:
    """Two chains that look alike at first: an MDP whose IPM exceeds (ε + ε_be)/(1 − γ) once γ² > 1/2.

    From state 0 the policy enters the one chain and the behaviour policy the other. The only discriminator grows along the
    one and falls along the other, in steps of 1/length.
    """
    states = 2 * length + 1
    transitions = np.zeros((states, 2, states))
    first, second = np.arange(1, length + 1), np.arange(length + 1, states)
    transitions[0, 0, first[0]] = transitions[0, 1, second[0]] = 1
    for chain in (first, second):
        transitions[chain[:-1], :, chain[1:]] = 1
        transitions[chain[-1], :, chain[-1]] = 1
    mdp = DiscountedMDP(np.eye(states)[0], transitions, np.zeros((states, 2)), gamma)
    climb = np.arange(length) / length
    witness = np.concatenate([[0.0], climb, -climb])[None]
    policy, behaviour = (np.tile(np.eye(2)[action], (states, 1)) for action in (0, 1))
    task = StationaryTask(-1, mdp, behaviour, "backups", witness)
    return {"gamma": gamma, **forward_row(task, policy)}


# CPI-trace


def cpi_row(task: StationaryTask, roll_in: Table, step: str) -> dict[str, Any]:
    """CPI-trace from a random policy. `step`: α by the tested advantage, or by ε; `sloppy`: by ε, with the worst Greedy_ε."""
    mdp, gamma = task.mdp, task.mdp.gamma
    first = random_policy(np.random.default_rng([8, task.number]), STATES, ACTIONS)
    alpha = None if step == "advantage" else (1 - gamma) * EPSILON / (4 * gamma)
    select = sloppy_greedy if step == "sloppy" else lambda now: greedy_table(now.advantage)
    result = cpi_finite(exact_estimates(mdp, roll_in), first, gamma, EPSILON, alpha=alpha, select=select)
    start, best = mdp.occupancy(roll_in), mdp.optimal_policy()
    values = [mdp.value(policy, start) for policy in result.policies]
    left = float(mdp.occupancy(result.policy, start) @ mdp.advantage(result.policy).max(axis=1))
    offline = mdp.occupancy(task.behaviour)
    coverage = float((mdp.occupancy(best) / offline).max())
    ipm = 0.5 * float(np.abs(start - offline).sum())  # over functions from 0 to 1, which advantages max_a A(s, a) are
    allowed = most_updates(gamma, EPSILON)
    return {
        "mdp": task.number,
        "gamma": gamma,
        "step": step,
        "epsilon": EPSILON,
        "stopped": int(result.stopped),
        "updates": result.updates,
        "most_updates": allowed,
        "most_updates_plain_sums": allowed * (1 - gamma) ** 2,
        "least_gain": float(np.diff(values).min()) if len(values) > 1 else "",
        "advantage_left": left,
        "first_value": mdp.value(first),
        "value": mdp.value(result.policy),
        "best_value": mdp.value(best),
        "gap": mdp.value(best) - mdp.value(result.policy),
        "gap_bound": coverage * (2 * EPSILON / (1 - gamma) ** 2 + ipm / (1 - gamma)),
        "gap_bound_roll_in": float((mdp.occupancy(best) / start).max()) * 2 * EPSILON / (1 - gamma) ** 2,
    }


def sloppy_greedy(now: Estimate) -> Table:
    """The worst result that Greedy_ε allows: the worst action in as many states as fit into an advantage of ε."""
    lost = now.states * np.ptp(now.advantage, axis=1)
    order = np.argsort(-lost)
    spent, policy = 0.0, greedy_table(now.advantage)
    for s in order:
        if spent + lost[s] <= EPSILON:
            policy[s] = np.eye(ACTIONS)[now.advantage[s].argmin()]
            spent += lost[s]
    return policy


def network_row(run: Finished) -> dict[str, Any]:
    world = make(ENV, run.spec.horizon, **OPTIONS)
    roll_in = evaluate(world.trace_model(), roll_in_policy(world, 0), jax.random.key(1), run.spec.eval_episodes)
    curve = [line["return_mean"] for line in run.metrics]
    return {
        "seed": run.spec.seed,
        "roll_in": roll_in.return_mean,
        "first_update": curve[0],
        "return_mean": run.result["return_mean"],
        "updates": sum(line["alpha"] > 0 for line in run.metrics),
        "episodes": run.result["episodes"],
        "steps": run.result["steps"],
        "seconds": run.result["wall_seconds"],
        "commit": run.code,
    }


# Tables


def most_share(rows: list[dict[str, Any]], value: str, bound: str) -> str:
    return f"{max(row[value] / row[bound] for row in rows):.0%}"


def violations(rows: list[dict[str, Any]], value: str, bound: str) -> str:
    return str(sum(row[value] > row[bound] + 1e-9 for row in rows))


def cpi_table(rows: list[dict[str, Any]]) -> str:
    table = []
    for step in ("advantage", "accuracy", "sloppy"):
        for gamma in GAMMAS:
            mine = [row for row in rows if row["step"] == step and row["gamma"] == gamma]
            gains = [row["least_gain"] for row in mine if row["least_gain"] != ""]
            table.append(
                [
                    step, f"{gamma}", str(len(mine)), str(sum(not row["stopped"] for row in mine)),
                    spread([row["updates"] for row in mine]), f"{mine[0]['most_updates']:,.0f}",
                    violations(mine, "updates", "most_updates"), violations(mine, "updates", "most_updates_plain_sums"),
                    f"{min(gains, default=float('nan')):.1e}",
                    str(sum(row["advantage_left"] > 2 * EPSILON + 1e-12 for row in mine)),
                    spread([row["gap"] for row in mine]), spread([row["gap_bound"] for row in mine]),
                    violations(mine, "gap", "gap_bound"), violations(mine, "gap", "gap_bound_roll_in"),
                ]
            )  # fmt: skip
    header = [
        "step", "γ", "MDPs", "not stopped", "updates", "8γ/ε²", "more", "more than 8γ(1−γ)²/ε²", "least gain of an update",
        "advantage left > 2ε", "value gap", "bound", "above", "above the bound by the roll-in's coverage",
    ]  # fmt: skip
    most = most_share(rows, "updates", "most_updates"), most_share(rows, "gap", "gap_bound")
    return (
        f"CPI-trace, ε = {EPSILON}\n\n"
        + markdown(header, table)
        + "\nAt most {} of 8γ/ε², {} of the gap's bound.\n".format(*most)
    )


def forward_table(rows: list[dict[str, Any]]) -> str:
    table = []
    for kind in dict.fromkeys(row["class"] for row in rows):
        mine = [row for row in rows if row["class"] == kind]
        table.append(
            [
                kind, str(len(mine)), spread([row["uniform_ipm"] for row in mine]), spread([row["ipm"] for row in mine]),
                spread([row["one_step"] for row in mine]), spread([row["bellman_error"] for row in mine]),
                spread([row["bound"] for row in mine]), violations(mine, "ipm", "bound"),
                violations(mine, "ipm", "bound_twice"),
                f"{mine[0]['eps_forward']:.2f}" if mine[0]["eps_forward"] else "",
            ]
        )  # fmt: skip
    header = [
        "discriminators", "MDPs", "IPM, uniform policy", "IPM", "ε", "ε_be", "(ε + ε_be)/(1−γ)", "above",
        "above γ(ε + 2ε_be)/(1−γ)", "ε of the lemma",
    ]  # fmt: skip
    most = most_share(rows, "ipm", "bound")
    text = "Inter-FAIL\n\n" + markdown(header, table) + f"\nAt most {most} of (ε + ε_be)/(1−γ).\n"
    single = [row for row in rows if row["single_ipm"] != ""]
    if single:
        text += "\nOne sample an iteration, as in the pseudocode\n\n" + markdown(
            ["returned policy", "MDPs", "returns the first, uniform policy", "IPM"],
            [
                ["least u^t of all", str(len(single)), str(sum(row["single_returns_first"] for row in single)),
                 spread([row["single_ipm"] for row in single])],
                ["least u^t of the second half", str(len(single)), "", spread([row["single_late_ipm"] for row in single])],
            ],
        )  # fmt: skip
    return text


def chain_table(rows: list[dict[str, float]]) -> str:
    body = [[f"{row['gamma']}", *(f"{row[k]:.4g}" for k in list(row)[1:])] for row in rows]
    return "The two chains\n\n" + markdown(["γ", "IPM", "ε", "ε_be", "(ε + ε_be)/(1−γ)", "γ(ε + 2ε_be)/(1−γ)"], body)


def network_table(rows: list[dict[str, Any]]) -> str:
    body = [[str(row["seed"]), *(f"{row[k]:,.4g}" for k in ("roll_in", "first_update", "return_mean")),
             *(f"{row[k]:,.0f}" for k in ("updates", "episodes", "steps", "seconds"))] for row in rows]  # fmt: skip
    header = ["seed", "roll-in", "after one update", "CPI-trace", "updates", "episodes", "steps", "seconds"]
    return f"CPI-trace with networks, {ENV}, H = {HORIZON}\n\n" + markdown(header, body)
