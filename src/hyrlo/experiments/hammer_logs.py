"""Write the logs of the hammer's expert: `python -m hyrlo.experiments.hammer_logs --expert WEIGHTS.npz --out states.npz`.

What WEIGHTS.npz holds, `hammer_expert.py` says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from hyrlo.core.errors import HyrloError, check_seed
from hyrlo.envs.hammer import HammerWorld
from hyrlo.experiments.hammer_expert import expert_states, expert_transitions, load_expert


def main(
    out: Path,
    expert: Path | None = None,
    episodes: int = 2000,
    horizon: int = 50,
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
    world, policy = HammerWorld(horizon), load_expert(expert, noise=not mean_action)
    record = expert_transitions if transitions else expert_states
    record(world, policy, episodes, seed).save(out)
    print(f"wrote {out}: {episodes:,} episodes of {horizon} steps")


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except (HyrloError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
