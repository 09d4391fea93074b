"""Print every table; ratios within a run are the point, since absolute times depend on the machine and its load."""

from __future__ import annotations

import argparse
import os
import time

import jax

from benchmarks.lock import FULL, QUICK, SECTIONS
from benchmarks.measure import console


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed and scaling of hyrlo.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to see that everything runs")
    sizes = QUICK if parser.parse_args().quick else FULL
    start = time.perf_counter()
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, JAX {jax.__version__}"
    console.print(f"{machine} on {jax.default_backend()}; compilation is left out unless a column says otherwise\n")
    for section in SECTIONS:
        section(sizes)
    console.print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
