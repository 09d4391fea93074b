"""Train and evaluate by name: what the command line and `hyrlo.train` share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from hyrlo.core.access import Evaluation, TraceModel, evaluate
from hyrlo.core.errors import HyrloError, check_finite, check_seed
from hyrlo.core.files import write_atomically
from hyrlo.core.keys import Keys
from hyrlo.core.memory import out_of_memory_in_one_line
from hyrlo.core.names import check_name
from hyrlo.core.policies import Policy
from hyrlo.core.ranges import Count, check_value
from hyrlo.core.serialize import load_policy, policy_fingerprint, save_policy
from hyrlo.core.signals import interrupts
from hyrlo.core.variants import Choice, has_option, with_options
from hyrlo.data.readers import as_states, as_transitions
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs import World, make, traits_of
from hyrlo.runs import plots, report
from hyrlo.runs.agent import ABOUT, Agent
from hyrlo.runs.algorithms import ALGORITHMS, Algorithm
from hyrlo.runs.cache import enable_compilation_cache
from hyrlo.runs.directory import FORMAT, Listener, MemoryRun, RunDirectory, check_metrics, read_config, roll_in_of
from hyrlo.runs.estimate import check_memory
from hyrlo.runs.fit import misfit
from hyrlo.runs.progress import Progress
from hyrlo.runs.provenance import machine, running_code, versions
from hyrlo.runs.sessions import changes_since, note_session
from hyrlo.runs.tensorboard import TensorBoard
from hyrlo.theory.discounted import interactive_model

WORSE = 0.1
"""A policy is worse than its roll-in if its return is this share less."""
DataSet = ObservationDataset | TransitionDataset
Data = str | Path | np.ndarray | Sequence[np.ndarray] | DataSet | Any
"""A data frame and a Minari data set are told by what they have: neither library need be installed."""


@dataclass(frozen=True)
class Trained:
    """A learned policy, the metrics of the run, its result, and the world it was learned in."""

    policy: Policy
    metrics: list[dict[str, Any]]
    result: dict[str, Any]
    world: World
    roll_in: Policy | None = None
    """What the forward pass learned, if there was one."""
    path: Path | None = None

    @functools.cached_property
    def agent(self) -> Agent:
        """Acts with the policy in the environment's own terms."""
        about = {name: self.result[name] for name in ABOUT}
        return Agent(self.policy, self.world, roll_in=self.roll_in, about=about, path=self.path)


def config(
    algo: str,
    preset: str | None = None,
    *,
    world: World | None = None,
    forward: str | None = None,
    improve: str | None = None,
    discriminator: str | None = None,
    explore: float | None = None,
    tuned: Sequence[str] = (),
    **options: Any,
) -> Any:
    """The config of an algorithm: `hyrlo.config("foobar", preset="lean", **{"forward.samples": 800})`.

    `preset` is a budget: paper, fast or lean. The variant is what suits `world` (without one: discrete actions, JAX speed)
    or what is asked for: `forward` (latent, regression, importance, model), `improve` (plan, psdp, sac, cpi), `discriminator`
    (mmd, exact, value, value-network), `explore` (share of roll-ins that explore). `options` replace single fields.
    If none of them is given and actions are discrete, a measurement at the beginning of the run chooses the variant. `tuned`
    names options that are set later: options that only a fixed variant has, such as `forward.samples`, ask for one.
    """
    check_name(algo, ALGORITHMS, "algorithm")
    choice = Choice(preset, forward, improve, discriminator, explore)
    if world is not None:
        choice = dataclasses.replace(choice, vectors=world.spec.action_size > 0)
    found = ALGORITHMS[algo].config(choice)
    if not all(has_option(found, name) for name in (*tuned, *options)):
        found = ALGORITHMS[algo].config(dataclasses.replace(choice, tuned=True))
    return with_options(found, options)


default_config = config  # `config` is an argument below


def train(
    algo: str,
    world: World | str | gymnasium.Env | Callable[[], gymnasium.Env],
    data: Data | None = None,
    *,
    roll_in: Policy | str | Path | None = None,
    config: Any = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    anyway: bool = False,
    curve_episodes: int | None = None,
    eval_episodes: int | None = None,
    callbacks: Sequence[Listener] = (),
    progress: bool | Progress = False,
    tensorboard: bool = False,
    command: str | None = None,
    cache: bool = True,
) -> Trained:
    """Train `algo` and evaluate what it learned.

    Args:
        algo: One of `hyrlo list`.
        world: An environment: a name, a Gymnasium environment or a function that makes one, or what `hyrlo.make` returned.
        data: What the algorithm learns from besides the world: states (a path, an array `(N, H+1, *obs)`, a list of
            episodes `(T+1, *obs)`, a data frame with a column `timesteps`, a Minari data set or an `ObservationDataset`), for
            hyq and rlpd transitions. By default the environment's own behaviour data.
        roll_in: For psdp-trace, cpi and distil: a policy, or the directory of a `fail` or `foobar` run.
        config: The algorithm's config, from `hyrlo.config`; by default what suits the world.
        out: Keep the run in this directory; `resume` continues one that was stopped.
        anyway: Resume with other code, libraries, cores or machine as well, where the policy may be another one.
        curve_episodes: Episodes of each evaluation along the curve (default: the world's, 200 or 20).
        eval_episodes: Episodes of the final evaluation (default: the world's, 1000 or 100).
        callbacks: Called with each new line of metrics. If one returns True, `TrainingStopped` is raised; a run with
            `out` can be resumed.
        progress: Show progress bars.
        tensorboard: With `out`, also write the metrics for TensorBoard.
        command: The command line that repeats the run; recorded in its config.
        cache: Keep compiled programs for later runs (docs/performance.md).
    """
    check_seed(seed)
    check_value("curve_episodes", curve_episodes, Count | None)
    check_value("eval_episodes", eval_episodes, Count | None)
    enable_compilation_cache(cache)
    check_name(algo, ALGORITHMS, "algorithm")
    data = _loaded(ALGORITHMS[algo], data)
    if not isinstance(world, World):
        world = make(world, default_horizon(world, data))
    algorithm = _algorithm(algo, world)
    config = default_config(algo, world=world) if config is None else config
    check_finite(config)
    check_memory(world.spec, config, curve_episodes=curve_episodes or 0, eval_episodes=eval_episodes or 0)
    if out is not None and (name := _function_in(config)):
        raise HyrloError(f"{name} is a function, which a run directory cannot keep; leave out `out`")
    described, source = _source(algorithm, world, data, roll_in, config, seed)
    model = _model(algorithm, world)
    settings = _settings(algo, world, seed, config, described, curve_episodes, eval_episodes, command)
    keys = Keys.of_seed(seed)
    shown_progress = progress if isinstance(progress, Progress) else Progress(enabled=progress)
    listeners = [*callbacks, *_tensorboard(tensorboard, out)]
    run = _begin(settings, keys, shown_progress, listeners, out, resume, anyway)
    if isinstance(run, RunDirectory) and (result := run.finished()):
        return _trained(run, load_policy(run.path), run.replay_metrics(), result, world)
    return _learned(algorithm, model, source, config, keys, run, settings, world)


def _learned(
    algorithm: Algorithm,
    model: TraceModel,
    source: Any,
    config: Any,
    keys: Keys,
    run: MemoryRun,
    settings: dict[str, Any],
    world: World,
) -> Trained:
    """Train and evaluate; a run that was refused before it began leaves nothing behind."""
    try:
        with out_of_memory_in_one_line(f"{algorithm.name} on {world.name}"):
            policy = algorithm.train(model, source, config, keys.train, run)
            result = _finish(run, settings, model, policy, keys.evaluation)
        return _trained(run, policy, run.metrics, result, world)
    except HyrloError:
        run.withdraw()
        raise
    finally:
        run.release()


def _trained(
    run: MemoryRun, policy: Policy, metrics: list[dict[str, Any]], result: dict[str, Any], world: World
) -> Trained:
    roll_in = policy if result["algo"] == "fail" else run.kept_policy("roll_in")
    return Trained(policy, metrics, result, world, roll_in, run.path if isinstance(run, RunDirectory) else None)


def _begin(
    settings: dict[str, Any],
    keys: Keys,
    progress: Progress,
    listeners: Sequence[Listener],
    out: str | Path | None,
    resume: bool,
    anyway: bool,
) -> MemoryRun:
    """Where the run reports: memory, or the directory `out`."""
    about: dict[str, Any] = {
        "key": keys.curve,
        "curve_episodes": settings["curve_episodes"],
        "progress": progress,
        "listeners": listeners,
    }
    if out is None:
        return MemoryRun(**about)
    changes = changes_since(Path(out), settings, anyway) if resume else []
    run = RunDirectory(Path(out), settings, resume=resume, **about)
    interrupts.then("continue with --resume")
    if run.resumed:
        note_session(run, settings, changes)
    return run


def _settings(
    algo: str,
    world: World,
    seed: int,
    config: Any,
    source: dict[str, Any],
    curve_episodes: int | None,
    eval_episodes: int | None,
    command: str | None,
) -> dict[str, Any]:
    """`config.json`: all that is needed to repeat the run."""
    return {
        "format": FORMAT,
        "algo": algo,
        "env": world.name,
        "env_options": world.options,
        "horizon": world.spec.horizon,
        "actions": world.spec.actions,
        "seed": seed,
        "config": describe_config(config),
        **source,
        "curve_episodes": world.traits.curve_episodes if curve_episodes is None else curve_episodes,
        "eval_episodes": world.traits.eval_episodes if eval_episodes is None else eval_episodes,
        **({"command": command} if command else {}),
        "versions": versions(),
        "code": running_code(),
        "machine": machine(),
    }


def _tensorboard(wanted: bool, out: str | Path | None) -> list[Listener]:
    return [TensorBoard(Path(out) / "tensorboard")] if wanted and out is not None else []


def default_horizon(world: Any, data: Any) -> int | None:
    """The horizon of the data, where the environment's name leaves it to them."""
    if isinstance(world, str) and isinstance(data, DataSet):
        return data.horizon if traits_of(world).horizon_from_data else None
    return None


def _loaded(algorithm: Algorithm, data: Data | None) -> DataSet | None:
    """The data as a data set."""
    if data is None or isinstance(data, DataSet):
        return data
    if isinstance(data, Policy):
        raise HyrloError("data: is a policy; pass it as roll_in")
    return as_transitions(data) if algorithm.learns_from == "transitions" else as_states(data)


def _algorithm(algo: str, world: World) -> Algorithm:
    algorithm = ALGORITHMS[algo]
    if world.spec.action_size and not algorithm.vectors:
        usable = ", ".join(a.name for a in ALGORITHMS.values() if a.vectors)
        raise HyrloError(f"{algo} needs discrete actions, but those of {world.name} are vectors; use one of {usable}")
    return algorithm


def _model(algorithm: Algorithm, world: World) -> TraceModel:
    if algorithm.access == "interactive":
        return interactive_model(world, algorithm.name)
    return world.reset_model() if algorithm.access == "reset" else world.trace_model()


def _finish(run: MemoryRun, settings: dict[str, Any], model: TraceModel, policy: Policy, key: Any) -> dict[str, Any]:
    """The final evaluation and the result; in a run directory also the policy, the curve and, last, `result.json`."""
    final = evaluate(model, policy, key, settings["eval_episodes"])
    warn_if_worse(run, final)
    result = {
        **{name: settings[name] for name in ("algo", "env", "seed", "horizon")},
        **dataclasses.asdict(model.ledger),
        "return_mean": final.return_mean,
        "success_rate": final.success_rate,
        "eval_episodes": final.episodes,
        "wall_seconds": run.seconds(),
        "spent": spent(run.metrics, model.ledger.episodes),
        "chosen": run.chosen,
        "warnings": run.warnings,
        "versions": settings["versions"],
        "code": settings["code"],
    }
    check_metrics(result, "the final evaluation")
    if isinstance(run, RunDirectory):
        if sessions := read_config(run.path).get("resumed_with"):
            result["resumed_with"] = sessions
        save_policy(run.path, policy)
        title = f"{settings['algo']} on {settings['env']}, H = {settings['horizon']}"
        plots.curve(run.path / "curve.png", [run.metrics], title)
        curve = run.path / "curve.png"
        page = report.html(
            settings | {"chosen": run.chosen}, result, run.metrics, curve.read_bytes() if curve.exists() else None
        )
        write_atomically(run.path / "report.html", page)
        run.conclude(result)
    return result


def warn_if_worse(run: MemoryRun, final: Evaluation) -> None:
    """One line, where the returned policy is worse than the roll-in it started from."""
    improved = bool(run.metrics) and run.metrics[-1]["phase"] != "forward"
    roll_in = [line["return_mean"] for line in run.metrics if line["phase"] == "forward"][-1:]
    if improved and roll_in and final.return_mean < roll_in[0] - WORSE * max(abs(roll_in[0]), abs(final.return_mean)):
        run.warn(
            f"the returned policy (return {final.return_mean:.3g}) is worse than the roll-in it started from "
            f"({roll_in[0]:.3g}); see `hyrlo diagnose --run`, or give more episodes to the backward pass",
            phase="backward", return_mean=final.return_mean, roll_in=roll_in[0],
        )  # fmt: skip


def spent(metrics: list[dict[str, Any]], total: int) -> dict[str, int]:
    """Training episodes of each phase, and of comparisons after the last one."""
    episodes: dict[str, int] = {}
    for before, line in zip([{"episodes": 0}, *metrics], metrics, strict=False):
        episodes[line["phase"]] = episodes.get(line["phase"], 0) + line["episodes"] - before["episodes"]
    rest = total - sum(episodes.values())
    return {**episodes, "compare": rest} if rest else episodes


def _source(
    algorithm: Algorithm,
    world: World,
    data: DataSet | None,
    roll_in: Policy | str | Path | None,
    config: Any,
    seed: int,
) -> tuple[dict[str, Any], Any]:
    """What the run's config says of the source, and the source itself, checked."""
    kind, name = algorithm.learns_from, algorithm.name
    if roll_in is not None and kind != "roll-in":
        raise HyrloError(f"--roll-in: {name} takes no roll-in; it is for psdp-trace, cpi and distil")
    if data is not None and kind == "nothing":
        raise HyrloError(f"{name} learns from the world alone; leave out --data")
    if data is not None and kind == "roll-in":
        raise HyrloError(f"--data: {name} learns from a roll-in, not from states; give --roll-in, or use foobar")
    if kind == "nothing":
        return {}, None
    if kind == "roll-in":
        policy = _roll_in(name, world, roll_in)
        return {"roll_in": policy_fingerprint(policy)}, policy
    states = _transitions(world, data, config, seed) if kind == "transitions" else _states(world, data, config, seed)
    return {"data": {"source": states.source, "fingerprint": states.fingerprint()}}, states


def _states(world: World, data: DataSet | None, config: Any, seed: int) -> ObservationDataset:
    most = getattr(config, "forward", config).offline_samples
    if isinstance(data, TransitionDataset):
        raise HyrloError("this algorithm learns from states; give an ObservationDataset, or data.observations()")
    states = world.behaviour_data(seed, **({"episodes": most} if most else {})) if data is None else data
    return world.prepare(states).subsample(most, seed)


def _transitions(world: World, data: DataSet | None, config: Any, seed: int) -> TransitionDataset:
    most = config.offline_samples
    transitions = world.behaviour_transitions(seed, episodes=most) if data is None else data
    if not isinstance(transitions, TransitionDataset):
        raise HyrloError(
            "hyq and rlpd learn from tuples with actions and rewards; give a TransitionDataset, or use foobar"
        )
    return world.prepare_transitions(transitions).subsample(most, seed)


def _roll_in(algo: str, world: World, roll_in: Policy | str | Path | None) -> Policy:
    """The roll-in policy, if it can act in this world for all of its steps; uniform where none is given."""
    if roll_in is None:
        if algo == "distil":
            raise HyrloError("distil imitates a roll-in; give --roll-in, the directory of a `fail` or `foobar` run")
        return world.spec.uniform()
    if not isinstance(roll_in, Policy):
        _check_actions(Path(roll_in), world)
        roll_in = roll_in_of(Path(roll_in))
    if problem := misfit(roll_in, world.spec, world.name):
        raise HyrloError(f"--roll-in: {problem}")
    return roll_in


def _check_actions(path: Path, world: World) -> None:
    """Reject the run of a world with another number of actions; everything else shows in the policy itself."""
    if (path / "config.json").exists():
        run = read_config(path)
        there, here = run.get("actions", world.spec.actions), world.spec.actions
        if there != here:
            raise HyrloError(f"--roll-in: {path} has {there} actions, {world.name} {here}; give another")


def describe_config(config: Any) -> dict[str, Any]:
    """The config as JSON; nested configs are named by their type, which is their variant."""
    described: dict[str, Any] = {"type": type(config).__name__}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if callable(value):
            value = getattr(value, "__qualname__", type(value).__name__)
        described[field.name] = describe_config(value) if dataclasses.is_dataclass(value) else value
    return described


def _function_in(config: Any) -> str | None:
    """The name of a field that holds a function, if there is one."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if callable(value):
            return field.name
        if dataclasses.is_dataclass(value) and (name := _function_in(value)):
            return name
    return None
