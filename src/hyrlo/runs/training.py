"""Train and evaluate by name: what the command line and `hyrlo.train` share."""

from __future__ import annotations

import dataclasses
import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from hyrlo.core.access import Evaluation, TraceModel, evaluate
from hyrlo.core.errors import HyrloError, check_finite, check_seed
from hyrlo.core.files import write_json
from hyrlo.core.policies import Policy, action_of, known_steps
from hyrlo.core.serialize import load_policy, policy_fingerprint, save_policy
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs import Traits, World, check_name, make
from hyrlo.runs import plots
from hyrlo.runs.algorithms import ALGORITHMS
from hyrlo.runs.directory import Run, RunDirectory, check_metrics, read_config
from hyrlo.runs.progress import Progress
from hyrlo.runs.tensorboard import TensorBoard
from hyrlo.theory.discounted import interactive_model

DEFAULT_PRESET = "fast"
LIBRARIES = (
    "hyrlo", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "gymnasium", "gymnasium-robotics", "mujoco",
)  # fmt: skip
"""Whose versions a run notes."""
Source = ObservationDataset | TransitionDataset | Policy


@dataclass(frozen=True)
class Trained:
    """A learned policy, what was measured on the way, and the result."""

    policy: Policy
    metrics: list[dict[str, Any]]
    result: dict[str, Any]


def default_preset(algo: str, traits: Traits) -> str:
    """`fast`; `model` or `robot` if they suit the world and the algorithm has them."""
    check_name(algo, ALGORITHMS, "algorithm")
    wanted = "robot" if traits.motion else traits.forward
    return wanted if wanted in ALGORITHMS[algo].presets else DEFAULT_PRESET


def preset_config(algo: str, preset: str = DEFAULT_PRESET) -> Any:
    """The config of an algorithm's preset."""
    check_name(algo, ALGORITHMS, "algorithm")
    check_name(preset, ALGORITHMS[algo].presets, f"{algo} preset")
    return ALGORITHMS[algo].presets[preset]


def train(
    algo: str,
    world: World | str,
    source: Source | None = None,
    *,
    config: Any = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    curve_episodes: int | None = None,
    eval_episodes: int | None = None,
    progress: Progress | None = None,
    tensorboard: bool = False,
    command: str | None = None,
) -> Trained:
    """Train `algo` and evaluate what it learned.

    `source` is what the algorithm learns from besides the world: offline states (by default the environment's behaviour
    data, drawn from `seed`), for hyq and rlpd tuples with actions and rewards, for psdp-trace a roll-in policy (by default
    uniform), for briee and sac nothing. With `out`, the run is kept in that directory and can be resumed;
    with `tensorboard` its metrics are written for TensorBoard as well. `command` is what a user would type to repeat it.
    `curve_episodes` and `eval_episodes` are 200 and 1000 by default, where the environment is in Python 20 and 100.
    """
    check_seed(seed)
    world = make(world) if isinstance(world, str) else world
    config = preset_config(algo, default_preset(algo, world.traits)) if config is None else config
    check_finite(config)
    algorithm = ALGORITHMS[algo]
    if world.spec.action_size and not algorithm.vectors:
        raise HyrloError(
            f"{algo} needs discrete actions, but those of {world.name} are vectors; use foobar, fail, cpi, sac or rlpd"
        )
    curve_episodes = world.traits.curve_episodes if curve_episodes is None else curve_episodes
    eval_episodes = world.traits.eval_episodes if eval_episodes is None else eval_episodes
    described, source = _source(algorithm.learns_from, world, source, config, seed)
    settings = {
        "algo": algo,
        "env": world.name,
        "env_options": world.options,
        "horizon": world.spec.horizon,
        "seed": seed,
        "config": dataclasses.asdict(config),
        **described,
        "curve_episodes": curve_episodes,
        "eval_episodes": eval_episodes,
        **({"command": command} if command else {}),
        "versions": versions(),
    }
    train_key, curve_key, final_key = jax.random.split(jax.random.key(seed), 3)
    model: TraceModel
    if algorithm.access == "interactive":
        model = interactive_model(world, algo)
    else:
        model = world.reset_model() if algorithm.access == "reset" else world.trace_model()
    about = {"key": curve_key, "curve_episodes": curve_episodes, "progress": progress}
    listener = TensorBoard(Path(out) / "tensorboard") if tensorboard and out is not None else None
    run = Run(**about) if out is None else RunDirectory(Path(out), settings, resume=resume, listener=listener, **about)
    if isinstance(run, RunDirectory) and (result := run.finished()):
        run.listener(run.read_metrics())
        return Trained(load_policy(run.path), run.read_metrics(), result)

    try:
        policy = algorithm.train(model, source, config, train_key, run)
    except HyrloError:
        if isinstance(run, RunDirectory):
            run.withdraw()
        raise

    final = evaluate(model, policy, final_key, eval_episodes)
    result = {
        **{name: settings[name] for name in ("algo", "env", "seed", "horizon")},
        **dataclasses.asdict(model.ledger),
        "return_mean": final.return_mean,
        "success_rate": final.success_rate,
        "eval_episodes": eval_episodes,
        "wall_seconds": run.seconds(),
        "versions": settings["versions"],
    }
    check_metrics(result, "the final evaluation")
    if isinstance(run, RunDirectory):
        save_policy(run.path, policy)
        plots.curve(run.path / "curve.png", [run.metrics], f"{algo} on {world.name}, H = {world.spec.horizon}")
        write_json(run.path / "result.json", result)
    return Trained(policy, run.metrics, result)


def _source(
    kind: str, world: World, source: Source | None, config: Any, seed: int
) -> tuple[dict[str, Any], Source | None]:
    """What the algorithm learns from, checked, and what the run's config says of it."""
    if kind == "nothing":
        if source is not None:
            raise HyrloError("this algorithm learns from the world alone; leave out --data")
        return {}, None
    if kind == "roll-in":
        if source is not None and not isinstance(source, Policy):
            raise HyrloError("this algorithm learns from a roll-in, not from states; give --roll-in, or use foobar")
        policy = world.spec.uniform() if source is None else fitting(source, world)
        return {"roll_in": policy_fingerprint(policy)}, policy
    most = getattr(config, "forward", config).offline_samples
    data: ObservationDataset | TransitionDataset
    if kind == "transitions":
        offline = world.behaviour_transitions(seed, episodes=most) if source is None else source
        if not isinstance(offline, TransitionDataset):
            raise HyrloError(
                "hyq and rlpd learn from tuples with actions and rewards; give a TransitionDataset, or use foobar"
            )
        spec = world.spec
        data = offline.for_horizon(spec.horizon, spec.observation_size, spec.actions, spec.action_size)
    else:
        states = world.behaviour_data(seed, episodes=most) if source is None else source
        if not isinstance(states, ObservationDataset):
            raise HyrloError("this algorithm learns from states; give an ObservationDataset")
        data = world.prepare(states)
    data = data.subsample(most, seed)
    return {"data": {"source": data.source, "fingerprint": data.fingerprint()}}, data


def fitting(roll_in: Policy, world: World) -> Policy:
    """The roll-in, if it can act in this world for all of its steps."""
    spec, known = world.spec, known_steps(roll_in)
    if known is not None and known < spec.horizon:
        raise HyrloError(
            f"--roll-in: has policies for {known} steps; horizon is {spec.horizon}: give --horizon {known}"
        )
    action = action_of(roll_in, spec.observation_size)
    if action is None or action.shape != spec.no_actions(1).shape:
        raise HyrloError(f"--roll-in: is a policy for other states or actions than those of {world.name}; give another")
    return roll_in


def load_run(path: str | Path) -> tuple[World, Policy, dict[str, Any]]:
    """The world, the policy and the config of a finished run."""
    settings = read_config(Path(path))
    try:
        world = make(settings["env"], settings["horizon"], **settings["env_options"])
    except (TypeError, ValueError) as error:
        raise HyrloError(f"{Path(path) / 'config.json'}: does not describe an environment ({error})") from error
    if not (Path(path) / "policy.json").exists():
        raise HyrloError(f"{path}: the run has not finished, so it has no policy yet; continue it with --resume")
    return world, load_policy(path), settings


def evaluate_run(path: str | Path, episodes: int = 1000, seed: int = 0) -> Evaluation:
    """Evaluate a run's policy on fresh episodes."""
    world, policy, _ = load_run(path)
    return evaluate(world.trace_model(), policy, jax.random.key(seed), episodes)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):  # an extra that is not installed
            found[name] = version(name)
    return found
