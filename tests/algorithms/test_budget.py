"""Both passes share a number of environment steps, also where a run is stopped and resumed."""

import numpy as np
import pytest

import hyrlo
from hyrlo.runs.directory import TrainingStopped

BUDGET, HORIZON = 3000, 8
SMALL = {
    "budget": BUDGET, "forward.hidden": 8, "forward.updates": 5, "forward.features": 16, "forward.dynamics.hidden": 8,
    "forward.dynamics.updates": 5, "forward.dynamics.memory": 500, "backward.iterations": 3, "backward.episodes": 4,
    "backward.hidden": 8, "backward.batch": 16, "backward.replay": 500, "backward.check": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def logs():
    """States that no policy can reach, so that there is something to repair."""
    return np.random.default_rng(0).standard_normal((50, HORIZON + 1, 3)).astype(np.float32)


def train(logs, out, **options):
    world = hyrlo.make("gym:Pendulum-v1", HORIZON)
    config = hyrlo.config("foobar", world=world, **SMALL)
    about = {"config": config, "out": out, "curve_episodes": 1, "eval_episodes": 2, "seed": 3}
    return hyrlo.train("foobar", world, logs, **about, **options)


def test_a_budget_that_cannot_be_kept_is_an_error(logs):
    """Four collections of the roll-in and three more, of 4 episodes; a race of 6 × 4 + 3 × 8 + 2 × 16; 8 steps each; a sixth
    goes forward."""
    world = hyrlo.make("gym:Pendulum-v1", HORIZON)
    least = int((7 * 4 + 80) * HORIZON * 6 / 5) + 1
    config = hyrlo.config("foobar", world=world, **{**SMALL, "budget": least - 1})
    with pytest.raises(
        hyrlo.HyrloError, match=rf"--budget is {least - 1:,}, but both passes need at least {least:,} steps"
    ):
        hyrlo.train("foobar", world, logs, config=config)


@pytest.mark.slow
def test_the_budget_is_kept_and_resuming_changes_nothing(logs, tmp_path):
    whole = train(logs, tmp_path / "whole")
    spent = whole.result["steps"]
    assert 0.85 * BUDGET < spent <= BUDGET
    phases = [line["phase"] for line in whole.metrics]
    forward = [line["steps"] for line in whole.metrics if line["phase"] == "forward"][-1]
    assert 0.05 * BUDGET < forward < 0.4 * BUDGET
    for number in (2, phases.index("backward") + 1):  # in each of the passes
        seen = []
        stop = lambda line, seen=seen, number=number: len(seen) == number or seen.append(line)  # noqa: E731
        with pytest.raises(TrainingStopped):
            train(logs, tmp_path / f"part-{number}", callbacks=[stop])
        again = train(logs, tmp_path / f"part-{number}", resume=True)
        assert again.result["steps"] == spent
        one, other = ((tmp_path / name / "policy.safetensors").read_bytes() for name in ("whole", f"part-{number}"))
        assert one == other
