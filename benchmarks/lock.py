"""The combination lock: steps a second, seconds a forward step, and how time grows with the horizon and the samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import gymnasium
import jax
import numpy as np

import hyrlo
from benchmarks.measure import best_seconds, show, show_growth
from hyrlo.core.access import Recorded
from hyrlo.core.regression import LatentProjection
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import mmd2
from hyrlo.envs import World
from hyrlo.envs.lock_gym import VectorCombinationLock
from hyrlo.foobar import FoobarConfig
from hyrlo.forward.importance import PRESETS as IMPORTANCE
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.regression import PRESETS as REGRESSION
from hyrlo.forward.regression import RegressionConfig
from hyrlo.forward.witness import ExactMmd

STEP = 10  # the forward step that is timed
FEW_ROUNDS = (20, 60)  # of a game too long to be played whole; either has all of the game's 20 checks


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    horizon: int = 100
    episodes: int = 2000
    single_episodes: int = 20
    paper: ImportanceConfig = IMPORTANCE["paper"]
    fast: RegressionConfig = REGRESSION["fast"]
    horizons: tuple[int, ...] = (10, 25, 50, 100)
    online: tuple[int, ...] = (500, 1000, 2000, 4000)
    mmd: tuple[int, ...] = (1000, 2000, 4000, 8000)
    whole: int = 100
    rounds: int = 3
    """Of whole runs."""


FULL = Sizes()
QUICK_PAPER = replace(FULL.paper, samples=200, batch=100, game=replace(FULL.paper.game, iterations=60))
QUICK_FAST = replace(FULL.fast, samples=200, game=replace(FULL.fast.game, iterations=60))
QUICK = Sizes(
    STEP + 2, 200, 2, QUICK_PAPER, QUICK_FAST, horizons=(6,), online=(200,), mmd=(500, 1000), whole=3, rounds=1
)


def environment_steps(sizes: Sizes) -> None:
    """Steps a second under the uniform policy: one environment at a time, NumPy batch, JAX batch."""
    world = hyrlo.make("lock", sizes.horizon)
    model, uniform, key = world.trace_model(), hyrlo.Uniform(world.spec.actions), jax.random.key(0)
    single = gymnasium.make("hyrlo/CombinationLock-v0", horizon=sizes.horizon)
    batch = VectorCombinationLock(sizes.episodes, sizes.horizon)
    rng = np.random.default_rng(0)

    def play_single() -> None:
        for episode in range(sizes.single_episodes):
            single.reset(seed=episode)
            for _ in range(sizes.horizon):
                single.step(rng.integers(world.spec.actions))

    def play_batch() -> None:
        batch.reset(seed=0)
        for _ in range(sizes.horizon):
            batch.step(rng.integers(world.spec.actions, size=sizes.episodes))

    def play_jax() -> Recorded:
        # A step must be recorded: else no one looks at the observations, and the compiler leaves them out.
        return model.record(key, uniform, sizes.episodes, sizes.horizon - 1)

    speeds = {
        f"Gymnasium, one at a time ({sizes.single_episodes})": sizes.single_episodes / best_seconds(play_single),
        f"NumPy batch ({sizes.episodes})": sizes.episodes / best_seconds(play_batch),
        f"JAX batch ({sizes.episodes})": sizes.episodes / best_seconds(play_jax),
    }
    slowest = next(iter(speeds.values()))
    rows = [[name, f"{sizes.horizon * s:,.0f}", f"{s / slowest:.1f}"] for name, s in speeds.items()]
    show(f"Environment steps, H = {sizes.horizon}", ["lock (episodes)", "steps/s", "ratio"], rows)


@cache
def world_and_data(horizon: int) -> tuple[World, ObservationDataset]:
    world = hyrlo.make("lock", horizon)
    return world, world.behaviour_data(seed=0, episodes=2000)


def forward_seconds(horizon: int, config: Any) -> float:
    """One step of FAIL, on a batch rolled in uniformly."""
    (world, data), key = world_and_data(horizon), jax.random.key(0)
    uniform, offline = hyrlo.Uniform(world.spec.actions), data.padded(STEP + 1)
    online = world.trace_model().record(key, uniform, config.samples, STEP, stop=STEP + 1)
    estimator = config.estimator(world.spec, data, key)
    return best_seconds(lambda: estimator.solve(key, online, offline, STEP)[1])


def scaled_seconds(horizon: int, config: Any) -> float:
    """The same from two short games, which tell what a round costs and what is paid once."""
    few, more = FEW_ROUNDS
    games = (replace(config.game, iterations=rounds) for rounds in FEW_ROUNDS)
    short, longer = (forward_seconds(horizon, replace(config, game=game)) for game in games)
    return short + (longer - short) / (more - few) * (config.game.iterations - few)


def estimators(sizes: Sizes) -> None:
    """Seconds a forward step by estimator."""
    paper, fast, horizon = sizes.paper, sizes.fast, sizes.horizon
    full_batch = replace(paper, batch=paper.samples)
    exact = replace(full_batch, witness=ExactMmd())
    timed = [
        ("importance, random features (paper)", paper, forward_seconds(horizon, paper)),
        ("importance, random features *", full_batch, scaled_seconds(horizon, full_batch)),
        ("importance, exact kernel *", exact, scaled_seconds(horizon, exact)),
        ("regression (fast)", fast, forward_seconds(horizon, fast)),
    ]
    rows = []
    for name, config, seconds in timed:
        counts = (config.samples, min(getattr(config, "batch", config.samples), config.samples), config.game.iterations)
        rows.append([name, *(f"{n:,}" for n in counts), f"{seconds:.2f}", f"{seconds / timed[0][2]:.2f}"])
    note = (
        f"* scaled up from games of {FEW_ROUNDS[0]} and {FEW_ROUNDS[1]} rounds; "
        "regression: after a uniform roll-in nearly all states are bad and there is nothing to fit, so that the fit is "
        f"redone up to {LatentProjection.rounds} rounds; else it stops once two restarts agree"
    )
    columns = ["estimator", "samples", "batch", "rounds", "seconds", "ratio"]
    show(f"One forward step (h = {STEP}, H = {horizon})", columns, rows, note)


def whole_runs(sizes: Sizes) -> None:
    """The default beside the preset `lean`, in turn, on several seeds; evaluations along the curve included."""
    world, data = world_and_data(sizes.whole)
    names = {"no options": hyrlo.config("foobar"), "--preset lean": hyrlo.config("foobar", preset="lean")}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for seed in range(sizes.rounds + 1):  # the first one compiles
        for name, config in names.items():
            runs[name].append(hyrlo.train("foobar", world, data, config=config, seed=seed).result)
    counted = {name: results[1:] for name, results in runs.items()}
    seconds = {name: np.array([r["wall_seconds"] for r in results]) for name, results in counted.items()}
    ratios = {name: np.quantile(s / seconds["--preset lean"], [0.25, 0.5, 0.75]) for name, s in seconds.items()}
    rows = [
        [name, f"{np.median(s):.1f}", "{1:.2f} ({0:.2f}, {2:.2f})".format(*ratios[name]),
         f"{np.median([r['episodes'] for r in counted[name]]):,.0f}", f"{min(r['success_rate'] for r in counted[name]):.3f}"]
        for name, s in seconds.items()
    ]  # fmt: skip
    columns = ["foobar lock", "seconds", "ratio of rounds (25 %, 75 %)", "episodes", "worst success"]
    show(f"Whole runs, H = {sizes.whole}, {sizes.rounds} rounds", columns, rows)


def growth_with_horizon(sizes: Sizes) -> None:
    """A whole training run, small and with the same work at every step: how often a fit is redone is luck."""
    lean = hyrlo.config("foobar", preset="lean")
    fit, game = replace(lean.backward.fit, rounds=1, updates=30), replace(lean.forward.game, iterations=60)
    forward = replace(lean.forward, samples=200, game=game)
    config = FoobarConfig(forward, replace(lean.backward, samples=200, fit=fit))
    seconds, per_step, with_compilation = {}, [], []
    for horizon in sizes.horizons:
        run = hyrlo.train("foobar", *world_and_data(horizon), config=config, curve_episodes=10, eval_episodes=10)
        done = np.reshape([line["seconds"] for line in run.metrics], (2, horizon))  # by phase and step
        typical = np.median(np.diff(done), axis=1).sum()  # only the first steps compile
        seconds[horizon] = horizon * float(typical)
        per_step.append(f"{1000 * typical / 2:.0f}")
        with_compilation.append(f"{run.result['wall_seconds']:.1f}")
    note = "seconds: H times the median forward and backward step of one run; observations grow with H as well"
    extra = {"ms a step": per_step, "with compilation": with_compilation}
    show_growth("A small foobar run, 200 episodes a step", "H", seconds, note, **extra)


def growth_with_samples(sizes: Sizes) -> None:
    """A forward step by online samples, and the exact MMD by samples of either side."""
    seconds = {n: forward_seconds(sizes.horizon, replace(sizes.paper, samples=n)) for n in sizes.online}
    note = f"every round of the game sees {sizes.paper.batch} samples, however many there are"
    show_growth("One forward step, importance with random features", "samples", seconds, note)

    seconds, memory, whole = {}, [], []
    observation_size = hyrlo.make("lock", sizes.horizon).spec.observation_size
    for n in sizes.mmd:
        x, y = (jax.random.normal(jax.random.key(i), (n, observation_size)) for i in range(2))
        compiled = mmd2.lower(x, y).compile()
        seconds[n] = best_seconds(partial(compiled, x, y))
        used = compiled.memory_analysis()
        memory.append(f"{used.temp_size_in_bytes / 1e6:.0f}" if used else "–")
        whole.append(f"{4 * n * n / 1e6:.0f}")
    note = "MB: peak of the compiled program's temporary memory, against one N × N kernel matrix"
    show_growth("Exact MMD, in blocks", "N", seconds, note, **{"MB": memory, "MB of N × N": whole})


SECTIONS = (environment_steps, whole_runs, estimators, growth_with_horizon, growth_with_samples)
