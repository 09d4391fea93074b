"""`hyrlo reproduce`: runs at smoke scale, skips what is done, reports from stored runs alone."""

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import hyrlo
from hyrlo.baselines.distil import DistilConfig
from hyrlo.cli.main import main
from hyrlo.core.errors import HyrloError, RunError
from hyrlo.core.files import write_json
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Softmax
from hyrlo.core.serialize import policy_fingerprint, save_policy
from hyrlo.envs import make
from hyrlo.experiments.lock import BUDGET, ITERATIONS
from hyrlo.experiments.recipes import HELD_OUT, seeds_of
from hyrlo.experiments.reproduce import find, reproduce
from hyrlo.experiments.runner import Finished, RunSpec
from hyrlo.runs.contents import identity
from hyrlo.runs.directory import FORMAT, roll_in_of
from hyrlo.runs.intervals import median_interval, spread
from hyrlo.runs.metrics import write_lines
from hyrlo.runs.provenance import running_code, short_name
from hyrlo.runs.training import describe_config


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lock", "inadmissible", "gymnasium", "estimators", "adroit"])
def test_smoke(name, tmp_path, capsys):
    command = ["reproduce", name, "--scale", "smoke", "--out", str(tmp_path)]
    assert main(command) == 0
    runs = find(name).runs("smoke", [0])
    mine = [spec for spec in runs if name != "lock" or spec.env == "lock"]  # Table 2 has a file of its own
    with open(tmp_path / "smoke" / name / f"{name}.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(spec.horizon if name == "estimators" else 1 for spec in mine)
    results = {spec.path(tmp_path / "smoke" / "runs") / "result.json" for spec in runs}
    written = {path: path.stat().st_mtime_ns for path in results}
    before = {p.name: p.read_bytes() for p in (tmp_path / "smoke" / name).iterdir()}
    capsys.readouterr()

    assert main(command) == 0  # nothing left to do
    assert f"{len(runs)} runs, {len(runs)} done before" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in results} == written

    for path in (tmp_path / "smoke" / name).iterdir():
        path.unlink()
    assert main([*command, "--report-only"]) == 0
    after = {p.name: p.read_bytes() for p in (tmp_path / "smoke" / name).iterdir()}
    assert after == before

    settings = json.loads((runs[0].path(tmp_path / "smoke" / "runs") / "config.json").read_text())
    settings["config"]["type"] += "2"
    write_json(runs[0].path(tmp_path / "smoke" / "runs") / "config.json", settings)
    assert main(command) == 2  # a stored run of other settings is not taken for this one
    assert "another config" in capsys.readouterr().err


def test_unknown_experiment_and_missing_runs_are_one_line(tmp_path, capsys):
    assert main(["reproduce", "lok"]) == 2
    assert "did you mean lock?" in capsys.readouterr().err
    assert main(["reproduce", "lock", "--scale", "smoke", "--out", str(tmp_path), "--report-only"]) == 2
    assert "none of the" in capsys.readouterr().err
    assert main(["reproduce", "lock", "--seeds", "0"]) == 2


@pytest.mark.parametrize(
    "name",
    [
        "lock",
        "inadmissible",
        "diagnose",
        "gymnasium",
        "estimators",
        "adroit",
        "stationary",
    ],
)
def test_runs_have_the_seeds_that_are_asked_for(name):
    specs = find(name).runs("paper", seeds_of("paper", 2))
    assert {spec.seed for spec in specs} == {1000, 1001}
    assert len({spec.path(Path()) for spec in specs}) == len(specs)


def test_the_lock_is_also_run_over_combinations():
    specs = find("lock").runs("paper", seeds_of("paper", 20))
    specs = [spec for spec in specs if spec.env == "lock" and spec.horizon == 100]
    groups = {group: [s for s in specs if s.group == group] for group in dict.fromkeys(s.group for s in specs)}
    assert {group: len(members) for group, members in groups.items()} == {
        "foobar": 10, "foobar-lean": 5, "foobar-paper": 3, "hyq-fast": 10, "hyq-paper": 2, "briee-fast": 2,
        "foobar-combinations": 10, "hyq-fast-combinations": 10,
    }  # fmt: skip
    for group, members in groups.items():
        varied = [(s.seed, s.options.get("seed", 0)) for s in members]
        expected = [(1000, 1000 + i) if "combinations" in group else (1000 + i, 0) for i in range(len(members))]
        assert varied == expected
    locks = [make(s.env, s.horizon, **s.options).env for s in groups["hyq-fast-combinations"]]
    assert len({np.asarray(lock.correct).tobytes() for lock in locks}) == 10


def test_the_lock_has_the_horizons_and_seeds_of_its_tables():
    specs = find("lock").runs("paper", seeds_of("paper", 20))
    count = Counter((s.group, s.horizon) for s in specs)
    assert {h: count["foobar", h] for h in (5, 10, 20, 50, 100)} == {5: 20, 10: 20, 20: 20, 50: 20, 100: 10}
    assert count["default-lock-benign", 10] == count["counted-lock-adversarial", 10] == 20
    assert [count["fail", h] for h in (6, 10, 20)] == [20, 20, 20]
    assert {s.seed for s in specs} == set(range(1000, 1020))
    plain = [s.config for s in specs if s.group in ("foobar", "foobar-combinations", "default-lock-benign")]
    assert set(map(str, plain)) == {str(hyrlo.config("foobar"))}  # no options


def test_algorithms_that_stop_early_may_use_the_same_number_of_episodes():
    for spec in find("lock").runs("paper", [1000]):
        if spec.algo in ("hyq", "briee") and spec.horizon >= 50:
            online = spec.config.online
            iteration = online.samples * spec.horizon + online.trial_episodes
            assert online.iterations * iteration >= BUDGET
            if (spec.group, spec.horizon) in ITERATIONS:
                assert (online.iterations - 1) * iteration < BUDGET


def test_a_stored_run_of_another_lock_is_not_taken_for_this_one(tmp_path):
    spec = next(s for s in find("lock").runs("smoke", [0]) if s.member)
    store(spec, tmp_path, running_code())
    config = json.loads((spec.path(tmp_path) / "config.json").read_text())
    for seed, fits in ((0, True), (1, False)):
        stored = config | {"env_options": {"actions": 10, "seed": seed}}
        write_json(spec.path(tmp_path) / "config.json", stored)
        if fits:
            assert spec.done(tmp_path)
        else:
            with pytest.raises(RunError, match="another config"):
                spec.done(tmp_path)


def test_tables_come_from_other_seeds_than_settings(stored, capsys):
    assert list(seeds_of("paper", 3)) == [1000, 1001, 1002]
    assert list(seeds_of("quick", 2)) == list(seeds_of("smoke", 2)) == [0, 1]
    specs, _, command = stored
    assert main([*command, "--report-only", "--first-seed", "1"]) == 2
    assert f"none of the {len(specs)} runs" in capsys.readouterr().err
    assert main([*command, "--report-only", "--seeds", "2"]) == 0
    assert f"{len(specs)} of {2 * len(specs)} runs have not finished" in capsys.readouterr().out
    assert main([*command, "--first-seed", "-1"]) == 2
    for option in ("--first-seed", "--only"):
        assert main(["reproduce", "theory", option, "5"]) == 2
        assert f"leave out {option}" in capsys.readouterr().err


def test_held_out_data_have_seeds_of_their_own():
    """Roll-ins are compared with data that no run has learned from."""
    learned_from = {seed for scale in ("smoke", "quick", "paper") for seed in seeds_of(scale, 1000)}
    assert not learned_from & {offset + seed for offset in HELD_OUT for seed in learned_from}


def test_episodes_to_solve_is_the_first_evaluation_that_is_good_enough():
    metrics = [{"episodes": e, "success_rate": s} for e, s in [(10, 0.1), (20, 0.95), (30, 0.5)]]
    run = Finished(find("lock").runs("smoke", [0])[0], {}, metrics)
    assert run.solved_after() == 20
    assert run.solved_after(0.99) is None


def test_few_runs_have_a_bootstrap_interval():
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == "3 (2, 4; 95 % 1–5)"
    assert spread([5000, 70_000]) == "37,500 (21,250, 53,750; 95 % 5,000–70,000)"
    assert spread([-5000, -1]) == "-2,500 (-3,750, -1,251; 95 % -5,000–-1)"
    assert spread([float(i) for i in range(1, 11)]) == "5.5 (3.25, 7.75)"
    assert spread([0.5] * 4) == "0.5 (0.5, 0.5; 95 % 0.5–0.5)"
    assert spread([0.5]) == "0.5"
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 9.0]
    # At least 5 of 9 draws are ≤ the k-th value with probability 0.001, 0.030, …, 0.970, 0.999 for k = 1, 2, …, 7, 8.
    assert median_interval(values) == (0.2, 0.8)


def test_a_run_of_another_algorithm_or_roll_in_is_not_taken_for_this_one(tmp_path):
    spec = RunSpec("late", "distil", "lock", 2, DistilConfig(), 0, roll_in="early")
    early = spec.begins_from(tmp_path)
    assert early is not None
    for seed, path in enumerate((early, spec.path(tmp_path))):
        path.mkdir(parents=True)
        save_policy(path, Softmax(MLP.create(jax.random.key(seed), (2, 2))))
        write_json(path / "result.json", {"code": running_code()})
    own, other = (
        policy_fingerprint(roll_in_of(replace(spec, group=name).path(tmp_path))) for name in ("early", "late")
    )
    for algo, roll_in, fits in (("distil", own, True), ("distil", other, False), ("fail", own, False)):
        stored = {"format": FORMAT, "algo": algo, "config": describe_config(spec.config), "roll_in": roll_in}
        stored["code"] = running_code()
        write_json(spec.path(tmp_path) / "config.json", stored)
        if fits:
            assert spec.done(tmp_path)
        else:
            with pytest.raises(RunError, match="another config"):
                spec.done(tmp_path)


OTHER = {"version": "0.2.0", "commit": "0123456789abcdef", "dirty": False}


def store(spec, base, code):
    """A finished run that was never trained."""
    path = spec.path(base)
    path.mkdir(parents=True, exist_ok=True)
    about = {"algo": spec.algo, "env": spec.env, "horizon": spec.horizon, "seed": spec.seed}
    about |= {"code": code} if code else {}
    config = {"format": FORMAT, **about, "config": describe_config(spec.config)}
    result = dict.fromkeys(("episodes", "steps", "return_mean", "success_rate", "eval_episodes", "wall_seconds"), 1)
    line = {
        "phase": "forward",
        "horizon": 0,
        "episodes": 1,
        "steps": 1,
        "return_mean": 0.5,
        "success_rate": 0.5,
        "seconds": 0,
    }
    write_lines(path, [line], identity(config))
    for name, value in {"config.json": config, "result.json": about | result}.items():
        write_json(path / name, value)


@pytest.fixture
def stored(tmp_path):
    """All runs of an experiment by the code that runs here, and the command that reports them."""
    specs = find("inadmissible").runs("smoke", [0])
    for spec in specs:
        store(spec, tmp_path / "smoke" / "runs", running_code())
    return specs, tmp_path / "smoke", ["reproduce", "inadmissible", "--scale", "smoke", "--out", str(tmp_path)]


def test_runs_of_different_code_are_not_reported_together(stored, capsys):
    specs, base, command = stored
    here = short_name(running_code())
    assert main(command) == 0
    assert f"\nCode: {here}" in (base / "inadmissible" / "inadmissible.md").read_text()

    store(specs[2], base / "runs", OTHER)
    assert main(command) == 2  # is not reused
    error = capsys.readouterr().err.strip()
    assert f"{specs[2].path(base / 'runs')}: was made by 0123456789, but this is {here}; train again" in error
    assert main([*command, "--report-only"]) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert f"{specs[0].path(base / 'runs')} by {here}, {specs[2].path(base / 'runs')} by 0123456789; train" in error
    assert "--mixed" in error

    for options in (["--mixed"], ["--mixed", "--report-only"]):
        assert main([*command, *options]) == 0
        table = (base / "inadmissible" / "inadmissible.md").read_text()
        assert "Runs of different code: " in table
        assert f"{len(specs) - 1} by {here}" in table
        assert "1 by 0123456789" in table
    with open(base / "inadmissible" / "inadmissible.csv") as file:
        commits = {row["group"]: row["commit"] for row in csv.DictReader(file)}
    assert commits == {spec.group: "0123456789" if spec is specs[2] else here for spec in specs}

    for spec in specs:
        store(spec, base / "runs", OTHER)
    assert main(command) == 2
    assert main([*command, "--report-only"]) == 0  # all of one code, though not of this
    assert (base / "inadmissible" / "inadmissible.md").read_text().endswith("\nCode: 0123456789.\n")


def test_uncommitted_changes_are_code_of_their_own(stored, capsys):
    specs, base, command = stored
    for spec in specs:
        store(spec, base / "runs", OTHER | {"dirty": True})
    assert main([*command, "--report-only"]) == 0
    assert "Code: 0123456789+ (uncommitted changes).\n" in (base / "inadmissible" / "inadmissible.md").read_text()
    store(specs[0], base / "runs", OTHER)
    assert main([*command, "--report-only"]) == 2
    assert "by 0123456789, " in capsys.readouterr().err


def test_a_run_begun_or_continued_by_other_code_is_named(stored, capsys):
    specs, base, command = stored
    path = specs[0].path(base / "runs")
    result = json.loads((path / "result.json").read_text())
    write_json(path / "result.json", result | {"code": OTHER})
    here = short_name(running_code())
    assert main(command) == 2
    assert f"was made by {here} then 0123456789, but" in capsys.readouterr().err
    store(specs[0], base / "runs", OTHER)
    (path / "result.json").unlink()
    assert main(command) == 2  # is not continued
    assert "was made by 0123456789, but" in capsys.readouterr().err
    store(specs[0], base / "runs", None)
    assert main(command) == 2
    assert "was made by unrecorded code, but" in capsys.readouterr().err


def test_only_some_groups_of_runs(tmp_path):
    table, _ = reproduce("lock", "smoke", 1, tmp_path, only=["hyq-fast"])
    assert "HyQ, fast" in table
    assert "FOOBAR" not in table
    assert sorted(p.name for p in (tmp_path / "smoke" / "runs").iterdir()) == ["hyq-fast-h3"]
    with pytest.raises(HyrloError, match="unknown group of runs 'hyq-fats'"):
        reproduce("lock", "smoke", 1, tmp_path, only=["hyq-fats"])
