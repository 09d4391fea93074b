"""The Adroit hammer: steps a second of the batched stepper against Gymnasium's vector of worker processes.

All play the same episodes: the same board heights and the same actions, under which the hand touches table and hammer,
since contacts are what costs. With the weights of an expert (see `hyrlo.experiments.adroit_expert`) in the folder
`HYRLO_ADROIT_EXPERTS` its actions are played, else the hand goes down and closes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv

import hyrlo
from benchmarks.measure import in_turn, show
from hyrlo.core.access import Rollout
from hyrlo.core.policies import Policy
from hyrlo.envs import World
from hyrlo.envs.gym.model import episode_seeds
from hyrlo.envs.gym.wrappers import Start
from hyrlo.envs.hammer import HORIZON, NAME, HammerWorld, available_cores
from hyrlo.experiments.adroit_expert import VARIABLE, expert_file, load_expert

ID = "gymnasium_robotics:AdroitHandHammer-v1"
KEY = jax.random.key(0)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    episodes: int = 64
    workers: tuple[int, ...] = (2, 8, 32)
    horizon: int = HORIZON
    rounds: int = 7


FULL = Sizes()
QUICK = Sizes(episodes=8, workers=(2,), horizon=10, rounds=1)


class Grasp(Policy):
    """Down, and the fingers closed, with some noise."""

    def act(self, key, observations, h):  # type: ignore[no-untyped-def]
        wish = np.concatenate([[1.0, 0.0, 0.0, 0.0], np.full(22, 0.8)])
        return wish + 0.3 * jax.random.normal(key, (len(observations), 26))


def acting_policy(world: World) -> Policy:
    return load_expert(expert_file("hammer"), world) if os.environ.get(VARIABLE) else Grasp()


def record(sizes: Sizes) -> tuple[list[int], np.ndarray]:
    """Seeds of episodes, and their actions by step."""
    world = hyrlo.make(NAME, sizes.horizon, num_envs=sizes.episodes)
    batch = world.trace_model().record(KEY, acting_policy(world), sizes.episodes, tuple(range(sizes.horizon)))
    return episode_seeds(jax.random.split(KEY)[0], sizes.episodes), np.asarray(batch.actions)


def play_workers(env: AsyncVectorEnv, seeds: list[int], actions: np.ndarray) -> None:
    """All episodes, as many at a time as there are workers."""
    for begin in range(0, len(seeds), env.num_envs):
        env.reset(seed=seeds[begin : begin + env.num_envs])
        for action in actions[:, begin : begin + env.num_envs]:
            env.step(action)


def play_batch(world: HammerWorld, seeds: list[int], actions: np.ndarray) -> None:
    vector = world.vector()
    vector.reset(seeds, Start(len(seeds)))
    for h, action in enumerate(actions):
        vector.step(action, h)


def play_model(world: HammerWorld, policy: Policy) -> Rollout:
    return world.trace_model().rollout(KEY, policy, world.config.num_envs)


def hammer_steps(sizes: Sizes) -> None:
    """Steps a second: worker processes, the batch, and the batch with a policy in JAX that acts."""
    seeds, actions = record(sizes)
    make = partial(gymnasium.make, ID, disable_env_checker=True)
    plays: dict[str, Callable[[], object]] = {}
    with ExitStack() as open_envs:
        for workers in sizes.workers:
            env = open_envs.enter_context(closing(AsyncVectorEnv([make] * workers, context="forkserver")))
            plays[f"Gymnasium, {workers} worker processes"] = partial(play_workers, env, seeds, actions)
        for threads in sorted({1, available_cores()}):
            world = hyrlo.make(NAME, sizes.horizon, num_envs=sizes.episodes, threads=threads)
            assert isinstance(world, HammerWorld)
            plays[f"hyrlo, batch of {sizes.episodes}, {threads} threads"] = partial(play_batch, world, seeds, actions)
        plays[f"the same, a policy in JAX acts, {threads} threads"] = partial(play_model, world, acting_policy(world))
        seconds = in_turn(plays, sizes.rounds)
    best = min((s for name, s in seconds.items() if name.startswith("Gymnasium")), key=np.median)
    steps = len(seeds) * sizes.horizon
    rows = [[name, f"{steps / np.median(s):,.0f}", quartiles(best / s)] for name, s in seconds.items()]
    what = "the expert's actions" if os.environ.get(VARIABLE) else "the hand goes down and closes"
    note = (
        f"median and 25–75 % of {sizes.rounds} rounds in which each plays once; ratio, within a round, to the number of "
        f"workers that is Gymnasium's best by its median; {len(seeds)} episodes of {sizes.horizon} steps, {what}"
    )
    show(f"{NAME}, environment steps", ["", "steps/s", "ratio"], rows, note)


def quartiles(values: np.ndarray) -> str:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.2f} ({low:.2f}, {high:.2f})"


if __name__ == "__main__":
    hammer_steps(FULL)
