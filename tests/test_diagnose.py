"""`hyrlo diagnose`: what it flags and says against exact occupancies, its files and errors; what is exactly reachable."""

import base64
import dataclasses
import itertools
import json
import re

import numpy as np
import pytest

from hyrlo.cli.main import main
from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.files import write_json
from hyrlo.core.serialize import save_policy
from hyrlo.data.states import ObservationDataset
from hyrlo.diagnostics.admissibility import DiagnoseConfig, StepReport, ranges, reach, step_reports
from hyrlo.diagnostics.diagnosis import diagnose, forward_config
from hyrlo.diagnostics.report import describe_data
from hyrlo.diagnostics.verdict import advice, alarming, verdict
from hyrlo.distances.two_sample import Comparison, Effects, MmdTest, TestConfig
from hyrlo.envs import make
from hyrlo.envs.lock import BAD, LockConfig, behaviour_occupancy
from hyrlo.experiments.diagnose import data_occupancy, dynamics, exact_reach, truth
from hyrlo.runs.directory import FORMAT
from tests.test_inadmissible import exact_model

TEST = TestConfig(most=100, permutations=99, updates=300, resamples=50)
FEW = [  # the sizes of the experiment at smoke scale: one compilation for both
    "--episodes", "100", "--test.most", "50", "--test.permutations", "19", "--test.updates", "30", "--test.resamples", "20",
]  # fmt: skip
SMALL = [*FEW, "--passes", "1", "--samples", "60"]
KEYS = {
    "env", "horizon", "observation_size", "source", "seed", "run", "policies", "forward", "roll_out", "config", "data",
    "steps", "verdict", "advice", "alarming", "flagged",
}  # fmt: skip


def run(*argv):
    return main([str(a) for a in argv])


def one_line_error(capsys):
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("error: ")
    return lines[-1]


# What is flagged, and what is said of it


@pytest.fixture(scope="module")
def fallen():
    """Behaviour data of the lock, against a roll-in that acts at random and is in the bad state almost at once."""
    world = make("lock", 3)
    data = world.behaviour_data(0, 1500)
    config = DiagnoseConfig(episodes=1500, test=TEST)
    return world, data, config, reach(world.trace_model(), data, {"roll-in": world.spec.uniform()}, config)


def test_steps_that_the_roll_in_misses_are_flagged_with_the_exact_shares(fallen):
    world, _, _, steps = fallen
    assert [row.step for row in steps if row.flagged] == [1, 2, 3]
    good = behaviour_occupancy(world.env, 1 / 3)[:, :2].sum(axis=1)
    for h in (1, 2, 3):
        assert steps[h].data_share == pytest.approx(good[h], abs=0.06)
        assert steps[h].roll_in_share == pytest.approx(0.1**h, abs=0.12)
        assert steps[h].gap == pytest.approx(good[h] - 0.1**h, abs=0.06)
        assert steps[h].mmd > 3 * steps[h].floor > 0
    assert steps[0].mmd < 3 * steps[0].floor
    assert steps[3].missed == pytest.approx(good[3], abs=0.06)  # a roll-in share of 0.001 is none


def test_the_verdict_says_which_steps_and_how_much(fallen):
    world, _, config, steps = fallen
    said = " ".join(verdict(steps, config, run="somewhere"))
    assert said.startswith("Steps 1–3 are not matched by the roll-in of this run")
    assert verdict(steps, config)[0].startswith("Steps 1–3 are matched by no policy tried (2 forward passes)")
    step, data, ours = re.search(r"at step (\d) the data put (\d+) % where the roll-in gets ([\d.]+) %", said).groups()
    good = behaviour_occupancy(world.env, 1 / 3)[:, :2].sum(axis=1)
    assert float(data) / 100 == pytest.approx(good[int(step)], abs=0.06)
    assert float(ours) < 16
    assert "cannot learn about states that its roll-in hardly ever sees" in said  # 0.1 % at step 3
    advised = " ".join(advice(steps, config, "lock", "somewhere", world.spec))
    command = re.search(r"`hyrlo (train foobar lock --horizon 3 [^`]*--explore [^`]*)`", advised)[1]
    assert main([*command.split(), "--help"]) == 0
    fine = [dataclasses.replace(row, flagged=False, differs=False, gap=0.02, missed=0.0) for row in steps]
    assert verdict(fine, config)[0].startswith("No step is flagged")
    assert advice(fine, config, "lock", None, world.spec) == ["Go on: `hyrlo train foobar lock` with these data."]


def test_a_flag_names_the_dimensions_that_differ(fallen):
    world, data, config, _ = fallen
    moved = data.at(1) + 5.0 * np.eye(data.observation_size)[2]
    steps = reach(
        world.trace_model(),
        ObservationDataset((data.at(0), moved, *data.steps[2:])),
        {"x": world.spec.uniform()},
        config,
    )
    assert steps[1].dimensions[0] == 2
    assert steps[0].dimensions == ()
    assert ", most in dimensions " in verdict(steps, config)[0]


def test_a_roll_in_that_is_only_rarer_is_no_alarm(fallen):
    _, _, config, steps = fallen
    rarer = [dataclasses.replace(row, missed_roll_in=0.2) for row in steps]
    assert alarming(steps, config, "somewhere")
    assert alarming(rarer, config, None)
    assert not alarming(rarer, config, "somewhere")
    assert verdict(rarer, config, "somewhere")[0].startswith("The roll-in of this run goes to all parts of the data")


def test_data_that_begin_elsewhere_are_flagged_at_step_zero(fallen):
    world, data, config, _ = fallen
    later = ObservationDataset((data.at(0) + 3.0, *data.steps[1:]))
    steps = reach(world.trace_model(), later, {"roll-in": world.spec.uniform()}, config)
    assert steps[0].flagged
    assert any("the data begin elsewhere" in line for line in verdict(steps, config))


def compared(gaps, missed=None, adjusted=0.0, mmd2=None, missed_roll_in=0.0):
    """A comparison with these effect sizes, and everything significant by default."""
    n = len(gaps)
    intervals = dict.fromkeys(("gap", "js", "missed", "stray"), (0.0, 0.1))
    effects = [
        Effects(gap, 0.1, lost, 0.0, gap, 0.0, missed_roll_in, 0.0, intervals)
        for gap, lost in zip(gaps, missed or [0.0] * n, strict=True)
    ]
    p = np.full(n, adjusted)
    mmd2 = np.asarray(gaps) if mmd2 is None else np.asarray(mmd2)
    return Comparison(MmdTest(mmd2, p, p, p), np.full(n, 0.01), p, p, p, effects)


def rows_of(*comparisons) -> list[StepReport]:
    steps = tuple(np.zeros((5, 1), np.float32) for _ in comparisons[0].effects)
    return step_reports({str(i): c for i, c in enumerate(comparisons)}, ObservationDataset(steps), DiagnoseConfig())


def test_a_flag_needs_significance_and_size_for_every_policy():
    gaps = [0.0, 0.19, 0.21, 0.5]
    assert [row.flagged for row in rows_of(compared(gaps))] == [False, False, True, True]
    assert not any(row.flagged for row in rows_of(compared(gaps, adjusted=0.06)))
    assert [row.flagged for row in rows_of(compared([0.1] * 2, missed=[0.04, 0.06]))] == [False, True]
    assert not rows_of(compared([0.1] * 2, missed=[0.06] * 2, missed_roll_in=0.05))[0].flagged  # it does go there
    both = rows_of(compared(gaps), compared([0.0, 0.0, 0.1, 0.4]))
    assert [row.flagged for row in both] == [False, False, False, True]
    assert both[3].gap == 0.4
    assert both[3].policy == "1"


def test_a_mismatch_is_new_where_it_grows_and_else_may_be_inherited():
    origins = [row.origin for row in rows_of(compared([0.0, 0.3, 0.32, 0.3, 0.6, 0.1]))]
    assert origins == ["", "new", "inherited", "inherited", "new", ""]
    lost = rows_of(compared([0.1, 0.1, 0.1], missed=[0.0, 0.1, 0.2]))
    assert [row.origin for row in lost] == ["", "new", "new"]


def test_steps_are_written_as_ranges():
    assert ranges([]) == ""
    assert ranges([1, 3, 4, 5, 9]) == "1, 3–5, 9"


def test_the_data_are_described_with_episodes_that_end():
    states = [np.arange(n * 2, dtype=np.float32).reshape(n, 2) for n in (4, 4, 1)]
    states[1][:] = 7.0
    raw = ObservationDataset(tuple(states))
    rows = describe_data(raw, raw.with_ended(3), Spec(3, 3, 2, ends=True))
    assert [row["states"] for row in rows] == [4, 4, 1, 0]
    assert [row["ended"] for row in rows] == [0.0, 0.0, 0.75, 1.0]
    assert rows[1]["duplicates"] == 3
    assert rows[1]["constant_dimensions"] == 2
    assert rows[3]["min"] is None


# The command


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    path = tmp_path_factory.mktemp("states") / "states.npz"
    assert run("data", "collect", "lock", "--horizon", 3, "--episodes", 100, "--out", path) == 0
    return path


@pytest.fixture(scope="module")
def report(states, tmp_path_factory):
    out = tmp_path_factory.mktemp("diagnose") / "report"
    assert run("diagnose", "lock", "--data", states, "--seed", 1, "--out", out, "--quiet", *SMALL) == 0
    return out


def test_the_report_is_complete_and_stands_alone(report):
    assert {p.name for p in report.iterdir()} == {"report.json", "report.html", "ipm.png", "js.png", "coverage.png"}
    found = json.loads((report / "report.json").read_text())
    assert set(found) == KEYS
    assert set(found["steps"][0]) == {field.name for field in dataclasses.fields(StepReport)}
    assert [row["step"] for row in found["steps"]] == [row["timestep"] for row in found["data"]] == [0, 1, 2, 3]
    assert found["forward"] == {"episodes": 60 * 3, "steps": 60 * (1 + 2 + 3)}  # trace access, audited
    assert found["roll_out"] == {"episodes": 100, "steps": 300}
    page = (report / "report.html").read_text()
    assert not re.search(r"https?:|<script|<link|url\(|@import", page)
    sources = re.findall(r'src="(.*?)"', page)
    assert len(sources) == 3
    for source, name in zip(sources, ("ipm", "js", "coverage"), strict=True):
        assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == (report / f"{name}.png").read_bytes()
    assert found["verdict"][0] in page.replace("&nbsp;", " ")


def test_the_same_seed_gives_the_same_report_and_json_is_printed(states, report, tmp_path, capsys):
    again = tmp_path / "again"
    assert run("diagnose", "lock", "--data", states, "--seed", 1, "--out", again, "--quiet", "--json", *SMALL) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((report / "report.json").read_text())
    assert (again / "report.json").read_bytes() == (report / "report.json").read_bytes()


def test_python_gives_the_report_of_the_command(states, report):
    config = DiagnoseConfig(episodes=100, passes=1, test=TestConfig(most=50, permutations=19, updates=30, resamples=20))
    world = make("lock", 3)
    found = diagnose(world, states, config=config, forward=forward_config(world, samples=60), seed=1)
    assert found.to_json() == json.loads((report / "report.json").read_text())
    assert found.flagged == [row.step for row in found.steps if row.flagged]


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    """What a `fail` run with seed 4 leaves behind; its policy is uniform."""
    path, world = tmp_path_factory.mktemp("runs"), make("lock", 3)
    save_policy(path, world.spec.uniform())
    data = {"source": "lock behaviour data, seed 4", "fingerprint": world.behaviour_data(4, 200).fingerprint()}
    about = {"algo": "fail", "env": "lock", "env_options": world.options, "horizon": 3, "seed": 4}
    write_json(path / "config.json", {"format": FORMAT, **about, "config": {"offline_samples": 200}, "data": data})
    return path


def test_a_run_is_rolled_out_against_its_data(a_run, states, tmp_path, capsys):
    command = ["diagnose", "lock", "--run", a_run, "--out", tmp_path / "r", "--quiet", *FEW]
    assert run(*command, "--json", "--data", states) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seed"], found["horizon"], found["policies"]) == (4, 3, ["roll-in"])
    assert found["forward"] == {"episodes": 0, "steps": 0}
    assert "was trained on other data" in found["verdict"][0]
    assert run(*command, "--data", states) == 0
    assert "What to do next" in capsys.readouterr().out


def test_errors_are_one_line(a_run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("wide.npz", observations=np.zeros((20, 4, 5)))
    np.savez("short.npz", observations=np.zeros((20, 2, 8)))
    (tmp_path / "empty").mkdir()
    (tmp_path / "many" / "seed-0").mkdir(parents=True)
    (tmp_path / "many" / "seed-0" / "config.json").write_text("{}")
    (tmp_path / "foobar").mkdir()
    write_json(tmp_path / "foobar" / "config.json", {"format": FORMAT, "algo": "foobar", "env": "lock", "horizon": 3})
    (tmp_path / "other").mkdir()
    save_policy(tmp_path / "other", make("lock-benign", 3).spec.uniform())
    for argv, pattern in (
        (["lock", "--data", "wide.npz"], "states have 5 dimensions"),
        (["lock", "--data", "short.npz", "--run", a_run], "timesteps 0 … 1 but the horizon is 3"),
        (["lock", "--run", a_run, "--horizon", "5"], "horizon 3, not 5"),
        (["lock-benign", "--run", a_run], "is a run of lock"),
        (["lock", "--run", "nowhere"], "no such run directory"),
        (["lock", "--run", "empty"], "no forward policy"),
        (["lock", "--run", "foobar"], "no forward policy"),
        (["lock", "--run", "many"], "several seeds"),
        (["lock", "--run", "other", "--samples", "5"], "leave them or --run out"),
        (["lok"], "did you mean lock"),
        (["lock", "--horizon", "3", "--gap", "2"], "gap is 2"),
        (["lock", "--horizon", "3", "--passes", "0"], "passes is 0"),
        (["lock", "--max-episodes", "3"], "--max-episodes"),
        (["gym:CartPole-v1"], "give --data"),
    ):
        assert run("diagnose", *argv, "--quiet") == 2, argv
        assert pattern in one_line_error(capsys), argv
    assert not (tmp_path / "runs").exists()


def test_settings_are_checked():
    for wrong in ({"level": 0.0}, {"missed": 1.0}, {"episodes": 0}):
        with pytest.raises(HyrloError, match=next(iter(wrong))):
            DiagnoseConfig(**wrong)


# What is exactly reachable: the experiment's linear programs


@pytest.mark.parametrize("name", ["lock", "lock-benign", "lock-adversarial"])
def test_the_dynamics_are_those_of_the_definition(name):
    lock = make(name, 4, actions=3).env
    assert lock.config == LockConfig(actions=3)
    exact, ours = np.asarray(exact_model(lock).transitions), dynamics(lock)
    for h, state, action in itertools.product(range(4), range(3), range(3)):
        right = state != BAD and action == int(lock.correct[h, state])
        np.testing.assert_allclose(ours[h, state, 0 if right else 1], exact[h, state, action], atol=1e-6)


def test_what_no_policy_can_match_is_known_in_closed_form():
    lock, benign, adversarial = (exact_reach(make(name, 10)) for name in ("lock", "lock-benign", "lock-adversarial"))
    np.testing.assert_allclose([lock.followed, lock.alone], 0, atol=1e-9)
    assert lock.together == pytest.approx(0, abs=1e-9)
    h = np.arange(2, 11)
    # Good states cannot become more: matched as 0.15 at step 1, they stay 0.15, where the data have 0.1 h.
    np.testing.assert_allclose(benign.followed, [0, 0.025, *(0.1 * h - 0.15)], atol=1e-9)
    np.testing.assert_allclose(benign.alone, [0, 0.025, *(0 * h)], atol=1e-9)  # one step by itself could be matched
    assert benign.together == pytest.approx((1 - 0.15) / 2)
    # The correct action with probability 2/19 at step 0; then 0.1 · 2/19 in state 0 at most.
    np.testing.assert_allclose(
        adversarial.occupancy[1], [0.2 / 19, 1.8 / 19 + 0.05 * 17 / 19, 0.95 * 17 / 19], atol=1e-9
    )
    np.testing.assert_allclose(adversarial.followed, [0, 1.7 / 19, *(0.1 * h - 0.2 / 19)], atol=1e-9)
    assert adversarial.together == pytest.approx(0.9)


def test_the_linear_program_finds_what_a_search_over_policies_finds():
    """Brute force over stochastic policies of two steps of the adversarial lock."""
    world = make("lock-adversarial", 2)
    tables, wanted, found = dynamics(world.env), data_occupancy(world), exact_reach(world)
    grid = np.linspace(0, 1, 21)
    best = [np.inf, np.inf]
    for first, second in itertools.product(itertools.product(grid, repeat=2), grid):
        occupancy, distances = wanted[0], []
        for h, right in enumerate((np.array([*first, 0.0]), np.array([second, 0.0, 0.0]))):
            policy = np.stack([right, 1 - right], axis=1)
            occupancy = np.einsum("s,sa,sat->t", occupancy, policy, tables[h])
            distances.append(np.abs(occupancy - wanted[h + 1]).sum() / 2)
        best = [min(best[0], distances[1]), min(best[1], max(distances))]
    assert found.alone[2] == pytest.approx(best[0], abs=1e-9)
    assert best[1] - 0.01 < found.together <= best[1] + 1e-9


def test_which_steps_must_be_flagged():
    config = DiagnoseConfig()
    assert truth(make("lock", 10), config) == (set(), set(range(11)))
    assert truth(make("lock-benign", 10), config) == (set(range(4, 11)), {0})
    assert truth(make("lock-adversarial", 10), config) == (set(range(1, 11)), {0})


@pytest.mark.slow
def test_reproduce_reports_from_stored_runs(tmp_path, capsys):
    command = ["reproduce", "diagnose", "--scale", "smoke", "--out", tmp_path]
    assert run(*command) == 0
    table = (tmp_path / "smoke" / "diagnose" / "diagnose.md").read_bytes()
    csv = (tmp_path / "smoke" / "diagnose" / "diagnose.csv").read_bytes()
    assert csv.count(b"\n") == 4
    assert run(*command, "--report-only") == 0
    assert (tmp_path / "smoke" / "diagnose" / "diagnose.md").read_bytes() == table
    assert (tmp_path / "smoke" / "diagnose" / "diagnose.csv").read_bytes() == csv
    assert "3 runs" in capsys.readouterr().out
