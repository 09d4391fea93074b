"""Kill runs of every algorithm at random moments, damage some of the newest checkpoints, resume, and compare the policies.

    python -m tests.fuzz.kills [--kills 100] [--seed 0]

A run is killed several times. After every second kill, a bit of the newest checkpoint is flipped. In the end the run is resumed
to its end, and its policy must have the bytes of a run that was never killed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.algorithms.contract import VARIANTS, train

ROUNDS = 5
"""Kills of a run."""
BEGUN = "begun"


def child(variant: str, out: str) -> None:
    """One session of a run."""
    print(BEGUN, flush=True)
    train(variant, Path(out), resume=True)


def session(variant: str, out: Path, kill_after: float | None) -> tuple[int, float]:
    """The exit code of a session, and its seconds; it is killed so long after it has begun."""
    command = [sys.executable, "-m", "tests.fuzz.kills", "--child", variant, str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    begun = time.monotonic()
    try:
        _, told = process.communicate(timeout=kill_after)
        if process.returncode:
            raise SystemExit(f"{variant} in {out}: exit {process.returncode}: {told[-2000:]}")
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    return process.returncode, time.monotonic() - begun


def damage_newest(out: Path, rng: random.Random) -> bool:
    """Flip a bit of the newest checkpoint, if there is one."""
    files = [path for path in (out / "checkpoint").glob("*.safetensors") if not path.stem.endswith("-before")]
    if not files or (out / "result.json").exists():
        return False
    newest = max(files, key=lambda path: path.stat().st_mtime_ns)
    content = bytearray(newest.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    newest.write_bytes(content)
    return True


def policy(out: Path) -> bytes:
    return b"".join((out / name).read_bytes() for name in ("policy.safetensors", "policy.json"))


def campaign(kills: int, seed: int) -> int:
    """The number of policies that differ."""
    rng, done, damaged, differing, whole = random.Random(seed), 0, 0, 0, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(10 * kills):
            if done >= kills:
                break
            variant, out = list(VARIANTS)[number % len(VARIANTS)], folder / f"run-{number}"
            if variant not in whole:
                session(variant, folder / f"whole-{variant}", None)  # compiles
                _, seconds = session(variant, folder / f"again-{variant}", None)
                whole[variant] = (policy(folder / f"whole-{variant}"), seconds)
            expected, seconds = whole[variant]
            for _ in range(ROUNDS):
                code, _ = session(variant, out, rng.uniform(0.2, 1.0) * seconds)
                if code == 0:
                    break
                done += 1
                damaged += done % 2 == 0 and damage_newest(out, rng)
            session(variant, out, None)
            same = policy(out) == expected
            differing += not same
            print(
                f"{variant}: {done} kills, {damaged} checkpoints damaged{'' if same else ', ANOTHER POLICY'}",
                flush=True,
            )
    print(
        f"{done} kills in {number} runs of {len(whole)} variants, {damaged} checkpoints damaged: {differing} policies differ"
    )
    return differing


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return 0
    return min(campaign(arguments.kills, arguments.seed), 1)


if __name__ == "__main__":
    raise SystemExit(main())
