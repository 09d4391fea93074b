"""SAC's updates a second: hyrlo's beside those of Stable-Baselines3 and SBX, and beside the matrix products alone.

All learn from the same random transitions of the hammer's sizes, with two critics and an actor of two hidden layers, and
update the actor with every update of the critics. Rivals that are not installed (`hyrlo[sb3]`, and SBX as `sbx-rl`) are left
out, and the table says so.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import in_turn, show
from hyrlo.backward import off_policy, sac
from hyrlo.backward.reward_units import RewardUnits
from hyrlo.core.access import Spec

STATE, ACTION, BATCH, HIDDEN = 46, 26, 256, 128
KEY = jax.random.key(0)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    updates: int = 300
    transitions: int = 5000
    rounds: int = 7


FULL = Sizes()
QUICK = Sizes(updates=2, transitions=300, rounds=1)


def transitions(n: int) -> sac.SacBatch:
    rng = np.random.default_rng(0)
    states, following = rng.normal(size=(2, n, STATE)).astype(np.float32)
    actions = rng.uniform(-1, 1, (n, ACTION)).astype(np.float32)
    return sac.SacBatch(states, actions, np.zeros(n, np.float32), following, np.zeros(n, bool))  # type: ignore[arg-type]


def hyrlo_updates(sizes: Sizes, actor_every: int) -> Callable[[], Any]:
    config = sac.SacConfig(hidden=HIDDEN, batch=BATCH, actor_every=actor_every, replay=sizes.transitions)
    spec, units = Spec(50, STATE, 0, ACTION), RewardUnits.raw()
    rows = jax.tree.map(jnp.asarray, transitions(sizes.transitions))
    replay = off_policy.empty_replay(spec, config).add(rows, jnp.ones(sizes.transitions, bool))
    agent, rate = sac.create_agent(KEY, spec, replay, units, config), jnp.asarray(3e-4)
    return lambda: sac.improve(KEY, agent, replay, None, units, jnp.asarray(sizes.updates), rate, rate, spec, config)


class NeverPlayed(gymnasium.Env):
    """Tells the rivals the sizes of states and actions."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (STATE,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)


def rival_updates(library: str, sizes: Sizes) -> Callable[[], Any]:
    """`train` of the library's SAC, which samples a batch and updates critics, actor and temperature."""
    found = importlib.import_module(library)
    arguments = {"net_arch": [HIDDEN, HIDDEN]}
    learner = found.SAC(
        "MlpPolicy",
        NeverPlayed(),
        batch_size=BATCH,
        buffer_size=sizes.transitions,
        policy_kwargs=arguments,
        device="cpu",
    )
    learner._setup_learn(1)  # the logger, which `train` writes to
    for s, a, r, after, ended in zip(*transitions(sizes.transitions), strict=True):
        learner.replay_buffer.add(s[None], after[None], a[None], r[None], ended[None], [{}])
    if library == "sbx":
        return lambda: learner.train(BATCH, sizes.updates)
    return lambda: learner.train(sizes.updates, BATCH)


def matrix_products(sizes: Sizes) -> Callable[[], Any]:
    """The same update of linear networks, with plain gradient steps: matrix products and hardly anything else."""
    critic, actor = (STATE + ACTION, HIDDEN, HIDDEN, 1), (STATE, HIDDEN, HIDDEN, 2 * ACTION)
    layers = lambda kind: [1e-3 * jax.random.normal(KEY, size) for size in pairwise(kind)]  # noqa: E731
    states, inputs = (jax.random.normal(KEY, (BATCH, n)) for n in (STATE, STATE + ACTION))

    def run_net(x: jax.Array, weights: list[jax.Array]) -> jax.Array:
        return functools.reduce(jnp.matmul, weights, x)

    def critics_loss(critics: list, actor: list) -> jax.Array:
        target = soft_value(critics, actor)
        return sum(jnp.mean((run_net(inputs, c) - jax.lax.stop_gradient(target)) ** 2) for c in critics)  # type: ignore

    def soft_value(critics: list, actor: list) -> jax.Array:
        both = jnp.concatenate([states, run_net(states, actor)[:, :ACTION]], axis=1)
        return jnp.minimum(*(run_net(both, c) for c in critics)).mean()

    def one(_: Any, networks: tuple[list, list]) -> tuple[list, list]:
        critics, actor = networks
        of_critics, of_actor = jax.grad(critics_loss)(critics, actor), jax.grad(soft_value, argnums=1)(critics, actor)
        return jax.tree.map(lambda w, g: w - 1e-6 * g, (critics, actor), (of_critics, of_actor))

    start = ([layers(critic), layers(critic)], layers(actor))
    run = jax.jit(lambda networks: jax.lax.fori_loop(0, sizes.updates, one, networks))
    return lambda: run(start)


def sac_updates(sizes: Sizes) -> None:
    """Updates a second of each library, in turns."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    calls = {
        "matrix products alone": matrix_products(sizes),
        "hyrlo": hyrlo_updates(sizes, 1),
        "hyrlo, an actor's update for two of the critics (default)": hyrlo_updates(sizes, 2),
    }
    rivals = {"Stable-Baselines3": "stable_baselines3", "SBX": "sbx"}
    missing = [name for name, library in rivals.items() if importlib.util.find_spec(library) is None]
    calls |= {name: rival_updates(library, sizes) for name, library in rivals.items() if name not in missing}
    seconds = in_turn(calls, sizes.rounds)
    rows = []
    for name, s in seconds.items():
        low, middle, high = np.quantile(seconds["hyrlo"] / s, (0.25, 0.5, 0.75))
        milliseconds = 1e3 * np.median(s) / sizes.updates
        rows.append(
            [name, f"{1e3 / milliseconds:,.0f}", f"{milliseconds:.2f}", f"{middle:.2f} ({low:.2f}, {high:.2f})"]
        )
    note = (
        f"median and 25–75 % of {sizes.rounds} rounds of {sizes.updates} updates each; ratio of updates a second to "
        f"hyrlo's, within a round; states of {STATE}, actions of {ACTION} numbers, 2 critics, {HIDDEN}×2, batch {BATCH}"
    ) + (f"; not installed: {', '.join(missing)}" if missing else "")
    show("SAC updates", ["", "updates/s", "ms", "ratio"], rows, note)


if __name__ == "__main__":
    sac_updates(FULL)
