"""Write the logs of an Adroit expert: `python -m hyrlo.experiments.adroit_logs --task pen --experts FOLDER --out states.npz`.

What FOLDER holds, `adroit_expert.py` says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.envs import make
from hyrlo.experiments.adroit import TASKS
from hyrlo.experiments.adroit_expert import expert_file, expert_states, expert_transitions, load_expert


def main(
    task: Literal["hammer", "pen", "relocate"],
    out: Path,
    experts: Path | None = None,
    episodes: int = 1000,
    horizon: Annotated[int | None, tyro.conf.arg(help="Default: 50, 60 and 70.")] = None,
    seed: int = 0,
    transitions: Annotated[bool, tyro.conf.arg(help="Write actions and rewards too.")] = False,
    mean_action: Annotated[bool, tyro.conf.arg(help="The expert without its noise.")] = False,
) -> None:
    """Play the expert and write what it sees as npz."""
    if episodes < 1:
        raise HyrloError(f"--episodes is {episodes}; give at least 1")
    check_seed(seed)
    if out.is_dir() or not out.parent.is_dir():
        raise HyrloError(f"{out}: is a folder, or there is no folder {out.parent}; give a file in a folder that exists")
    file = expert_file(task, experts)
    world = make(TASKS[task].env, TASKS[task].horizon if horizon is None else horizon)
    record = expert_transitions if transitions else expert_states
    record(world, load_expert(file, world, noise=not mean_action), episodes, seed).save(out)
    print(f"wrote {out}: {episodes:,} episodes of {world.spec.horizon} steps")


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except (HyrloError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
