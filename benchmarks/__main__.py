"""Print every table; ratios within a run are the point, since absolute times depend on the machine and its load."""

from __future__ import annotations

import argparse
import os
import time

import jax

from benchmarks import gym_lock, hammer, lock, online, sac_updates, waves
from benchmarks.measure import console


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed and scaling of hyrlo.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to see that everything runs")
    quick = parser.parse_args().quick
    start = time.perf_counter()
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, JAX {jax.__version__}"
    console.print(f"{machine} on {jax.default_backend()}; compilation is left out unless a column says otherwise\n")
    for section in lock.SECTIONS:
        section(lock.QUICK if quick else lock.FULL)
    online.online_iterations(online.QUICK if quick else online.FULL)
    waves.waves(waves.QUICK if quick else waves.FULL)
    gym_lock.gym_lock(gym_lock.QUICK if quick else gym_lock.FULL)
    hammer.hammer_steps(hammer.QUICK if quick else hammer.FULL)
    sac_updates.sac_updates(sac_updates.QUICK if quick else sac_updates.FULL)
    console.print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
