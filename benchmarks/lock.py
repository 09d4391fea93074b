"""The combination lock: steps a second, seconds a forward step, and how time grows with the horizon and the samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import gymnasium
import jax
import numpy as np

import hyrlo
from benchmarks.measure import best_seconds, console, show, show_growth
from hyrlo.access import Rollout
from hyrlo.algorithms.fail import PRESETS
from hyrlo.algorithms.foobar import FoobarConfig
from hyrlo.algorithms.match import MatchConfig, match
from hyrlo.data import ObservationDataset
from hyrlo.distances import mmd2
from hyrlo.envs.gym_lock import VectorCombinationLock

STEP = 10  # of which one forward step is timed
FEW_ROUNDS = (20, 60)  # of a game too slow to be played whole; the first are as many as the game's checks


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    horizon: int = 100
    episodes: int = 2000
    single_episodes: int = 20
    offline: int = 2000
    paper: MatchConfig = PRESETS["paper"]
    fast: MatchConfig = PRESETS["fast"]
    horizons: tuple[int, ...] = (10, 25, 50, 100)
    online: tuple[int, ...] = (500, 1000, 2000, 4000)
    mmd: tuple[int, ...] = (1000, 2000, 4000, 8000)


FULL = Sizes()
QUICK = Sizes(
    horizon=12,
    episodes=200,
    single_episodes=2,
    offline=200,
    paper=replace(FULL.paper, samples=200, game=replace(FULL.paper.game, iterations=100)),
    fast=replace(FULL.fast, samples=100, game=replace(FULL.fast.game, iterations=40)),
    horizons=(2, 4),
    online=(200, 400),
    mmd=(500, 1000),
)


def environment_steps(sizes: Sizes) -> None:
    """Steps a second under the uniform policy: JAX batch, NumPy batch, one environment at a time."""
    world = hyrlo.make("lock", sizes.horizon)
    model, uniform, key = world.trace_model(), hyrlo.Uniform(world.spec.actions), jax.random.key(0)
    rng = np.random.default_rng(0)
    batch = VectorCombinationLock(sizes.episodes, sizes.horizon)
    single = gymnasium.make("hyrlo/CombinationLock-v0", horizon=sizes.horizon)

    def play_jax() -> Rollout:
        # A step must be recorded: else no one looks at the observations, and the compiler leaves them out.
        return model.rollout(key, uniform, sizes.episodes, record=sizes.horizon - 1)

    def play_batch() -> None:
        batch.reset(seed=0)
        for _ in range(sizes.horizon):
            batch.step(rng.integers(world.spec.actions, size=sizes.episodes))

    def play_single() -> None:
        for episode in range(sizes.single_episodes):
            single.reset(seed=episode)
            ended = False
            while not ended:
                ended = single.step(rng.integers(world.spec.actions))[2]

    speeds = {
        f"Gymnasium, one at a time ({sizes.single_episodes})": sizes.single_episodes / best_seconds(play_single),
        f"NumPy batch ({sizes.episodes})": sizes.episodes / best_seconds(play_batch),
        f"JAX batch ({sizes.episodes})": sizes.episodes / best_seconds(play_jax),
    }
    slowest = next(iter(speeds.values()))
    rows = [[name, f"{sizes.horizon * s:,.0f}", f"{s / slowest:.1f}"] for name, s in speeds.items()]
    show(f"Environment steps, H = {sizes.horizon}", ["lock (episodes)", "steps/s", "ratio"], rows)


class ForwardStep:
    """One step of FAIL, on a batch rolled in uniformly."""

    def __init__(self, sizes: Sizes):
        self.world = hyrlo.make("lock", max(sizes.horizon, STEP + 1))
        data = self.world.behaviour_data(seed=0, episodes=sizes.offline)
        self.offline = data.padded(STEP + 1)

    def seconds(self, config: MatchConfig) -> float:
        spec, key = self.world.spec, jax.random.key(0)
        online = self.world.trace_model().rollout(
            key, hyrlo.Uniform(spec.actions), config.samples, record=STEP, next_states=True, stop=STEP + 1
        )
        return best_seconds(lambda: match(key, online, *self.offline, spec, config)[1])

    def seconds_scaled(self, config: MatchConfig) -> float:
        """From two short games, the time of the whole one: what a round costs, and what is paid once."""
        few, more = FEW_ROUNDS
        short, longer = (
            self.seconds(replace(config, game=replace(config.game, iterations=rounds))) for rounds in FEW_ROUNDS
        )
        return short + (longer - short) / (more - few) * (config.game.iterations - few)


def estimators(sizes: Sizes) -> None:
    """Seconds a forward step by estimator."""
    step, paper, fast = ForwardStep(sizes), sizes.paper, sizes.fast
    whole_batch = replace(paper, game=replace(paper.game, batch=paper.samples))
    timed = [
        ("importance, random features (paper)", paper, step.seconds(paper)),
        ("importance, random features, full batch *", whole_batch, step.seconds_scaled(whole_batch)),
        ("importance, exact kernel, full batch *", exact := replace(whole_batch, features=0), step.seconds_scaled(exact)),
        ("regression (fast)", fast, step.seconds(fast)),
    ]
    columns = ["estimator", "samples", "features", "rounds", "batch", "seconds", "ratio"]
    rows = [
        [
            name,
            f"{config.samples:,}",
            str(config.features or "–"),
            f"{config.game.iterations:,}",
            f"{min(config.game.batch, config.samples):,}",
            f"{seconds:.2f}",
            f"{seconds / timed[0][2]:.2f}",
        ]
        for name, config, seconds in timed
    ]
    note = f"* scaled up from games of {FEW_ROUNDS[0]} and {FEW_ROUNDS[1]} rounds"
    show(f"One forward step (h = {STEP}, H = {step.world.spec.horizon})", columns, rows, note)


def growth_with_horizon(sizes: Sizes) -> None:
    """A whole training run, small and with the same work at every step."""
    lean = hyrlo.preset_config("foobar", "lean")
    # One round of restarts: how often a fit is redone is luck, and would blur the growth.
    fit = replace(lean.forward.fit, rounds=1)
    config = FoobarConfig(replace(lean.forward, samples=200, fit=fit), replace(lean.backward, samples=200, fit=fit))

    def train(horizon: int) -> float:
        world = hyrlo.make("lock", horizon)
        data = world.behaviour_data(seed=0, episodes=sizes.offline)
        return best_seconds(
            lambda: hyrlo.train("foobar", world, data, config=config, curve_episodes=10, eval_episodes=10).result, 1
        )
    seconds = {h: train(h) for h in sizes.horizons}
    per_step = [f"{1000 * s / (2 * h):.0f}" for h, s in seconds.items()]
    show_growth("foobar, 200 episodes a step", "H", seconds, **{"ms per step": per_step})
