"""`hyrlo data collect | import | info`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from hyrlo.cli.data_read import check_out, data_import, data_info, write_data
from hyrlo.cli.output import out
from hyrlo.cli.parsing import environment_options, first_positional, parse, with_environment
from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.core.names import check_name
from hyrlo.core.policies import Policy
from hyrlo.core.ranges import Count, check_value
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs import make
from hyrlo.envs.gym.collect import collect_states, collect_transitions
from hyrlo.envs.gym.world import GymWorld
from hyrlo.envs.registry import GYM
from hyrlo.envs.world import World
from hyrlo.runs.loading import check_fits, load_finished


@dataclass(kw_only=True)
class CollectArgs:
    """Write states of a behaviour policy as npz: the paper's for the locks, that of runs for gym:<id>.

    The layout is `observations (N, H+1, obs)`, or unpaired with `timesteps` where episodes ended early."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    out: str
    """The npz file to write."""
    horizon: int | None = None
    """Steps of an episode; by default 100, 10 for the inadmissible locks, that of the first run or of the environment."""
    episodes: int = 2000
    """Episodes of the ε-greedy behaviour policy; for the inadmissible locks, states of each step."""
    seed: int = 0
    epsilon: float | None = None
    """Probability of a random action at each step (default 1/H for the lock, 0 for gym:<id>)."""
    run: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """gym:<id>: run directory of a policy to follow; several share the episodes evenly. Without one, actions are uniform."""
    transitions: bool = False
    """Also write actions, rewards and (gym:<id>, if episodes ended) terminals, for hyq and rlpd; the states are the same."""


def command_data(argv: Sequence[str]) -> None:
    verbs: dict[str, Callable[[Sequence[str]], None]] = {
        "collect": _data_collect,
        "import": data_import,
        "info": data_info,
    }
    if not argv or argv[0] in ("-h", "--help"):
        out.print("usage: hyrlo data collect|import|info ...; each has --help")
        if not argv:
            raise HyrloError("data: give one of collect, import, info")
        return
    check_name(argv[0], verbs, "data command")
    verbs[argv[0]](argv[1:])


def _data_collect(argv: Sequence[str]) -> None:
    kind = with_environment(CollectArgs, first_positional(argv, CollectArgs), argv)
    args = parse(kind, argv, "hyrlo data collect")
    check_value("--episodes", args.episodes, Count)
    check_seed(args.seed)
    if args.epsilon is not None and not 0 <= args.epsilon <= 1:
        raise HyrloError(f"--epsilon is {args.epsilon}; give a probability, from 0 to 1")
    check_out(args.out)
    runs = _runs(args)
    horizon = runs[0][2]["horizon"] if runs and args.horizon is None else args.horizon
    world = make(args.env, horizon, **environment_options(args))
    policies = [_fitting(*run, world) for run in runs]
    data = _collected(args, world, policies)
    if isinstance(data, ObservationDataset):
        write_data(data, args.out)
        return
    data.save(args.out)
    out.print(
        f"wrote {args.out}: {sum(len(step.states) for step in data.steps):,} transitions (states, actions, rewards), "
        f"timesteps 0 … {data.horizon - 1}, {data.observation_size} dimensions"
    )


def _collected(args: CollectArgs, world: World, policies: list[Policy]) -> ObservationDataset | TransitionDataset:
    if isinstance(world, GymWorld):
        collect = collect_transitions if args.transitions else collect_states
        return collect(world, policies, args.episodes, args.epsilon or 0.0, args.seed)
    behaviour = world.behaviour_transitions if args.transitions else world.behaviour_data
    return behaviour(args.seed, args.episodes, args.epsilon)


def _runs(args: CollectArgs) -> list[tuple[Path, Policy, dict[str, Any]]]:
    """The directories of the runs, their policies and configs. Their environment is the one that the user names."""
    if args.run and not args.env.startswith(GYM):
        raise HyrloError(f"--run: the policies of runs are not played in {args.env}; --run is for gym:<id>")
    return [(Path(path), *load_finished(Path(path))) for path in args.run]


def _fitting(path: Path, policy: Policy, settings: dict[str, Any], world: World) -> Policy:
    """The policy of a run, if it can be played in this world."""
    horizon = world.spec.horizon
    if settings["env"] != world.name or settings["horizon"] < horizon:
        raise HyrloError(
            f"{path}: is a run of {settings['env']} with horizon {settings['horizon']}, not of {world.name} with "
            f"horizon {horizon}; give another --run or --horizon"
        )
    check_fits(path, policy, settings, world)
    return policy
