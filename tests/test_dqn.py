"""DQN of Stable-Baselines3 beside the algorithms of hyrlo: left out where it is not installed, else a run like theirs."""

import json
from dataclasses import replace

import pytest

from hyrlo.core.errors import RunError
from hyrlo.experiments import dqn, gymnasium, runner
from hyrlo.experiments.dqn import DqnConfig, mean_return, train_dqn
from hyrlo.experiments.reproduce import reproduce
from hyrlo.experiments.runner import Finished, available, execute, row_of
from hyrlo.runs.provenance import running_code

SMALL = DqnConfig(steps=2000, learning_starts=100, buffer_size=500, hidden=8)


def small(seed):
    spec = gymnasium.spec_of("dqn", "MountainCar", seed, "paper")
    return replace(spec, config=SMALL, horizon=30, curve_episodes=2, eval_episodes=3)


def test_only_mountain_car_has_it():
    specs = [spec for spec in gymnasium.runs("paper", [1000, 1001]) if spec.algo == "dqn"]
    assert [(spec.group, spec.seed, spec.horizon) for spec in specs] == [
        ("dqn-MountainCar", 1000, 200),
        ("dqn-MountainCar", 1001, 200),
    ]


def test_it_is_left_out_with_a_word_where_it_is_not_installed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "find_spec", lambda module: None)
    specs = [spec for spec in gymnasium.runs("paper", [1000, 1001]) if "MountainCar" in spec.group]
    assert available(specs, tmp_path) == [spec for spec in specs if spec.algo != "dqn"]
    assert capsys.readouterr().out.splitlines() == [
        "dqn-MountainCar is left out: it needs stable_baselines3; pip install 'hyrlo[sb3]'"
    ]
    done = next(spec for spec in specs if spec.algo == "dqn")
    done.path(tmp_path).mkdir(parents=True)
    (done.path(tmp_path) / "result.json").write_text("{}")
    assert done in available(specs, tmp_path)  # what has finished needs nothing


def test_nothing_left_to_report_is_an_error_of_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "find_spec", lambda module: None)
    with pytest.raises(RunError, match="no runs are left to report"):
        reproduce("gymnasium", "paper", 1, tmp_path, only=["dqn-MountainCar"])
    with pytest.raises(RunError, match="make no row of the table"):  # a task is reported with its FOOBAR runs
        gymnasium.report([], tmp_path, "paper")
    assert not list(tmp_path.rglob("*.md"))


def test_an_evaluation_plays_whole_episodes_to_the_time_limit():
    class Right:
        def predict(self, observation, deterministic):
            return 2, None

    assert mean_return(Right(), dqn._environment(small(0)), 3, [0, 0]) == -30.0


def test_a_run_is_stored_like_those_of_hyrlo(tmp_path):
    pytest.importorskip("stable_baselines3")
    spec = small(3)
    execute([spec], tmp_path)
    assert spec.done(tmp_path)
    run = Finished.read(spec, tmp_path)
    assert [line["steps"] for line in run.metrics] == list(range(200, 2001, 200))
    assert all(line["episodes"] == line["steps"] // 30 for line in run.metrics)
    row = row_of(run)
    assert (row["algo"], row["env"], row["seed"], row["steps"]) == ("dqn", "gym:MountainCar-v0", 3, 2000)
    assert row["return_mean"] == -30.0  # out of reach within thirty steps
    assert run.result["code"] == running_code()
    stored = json.loads((spec.path(tmp_path) / "config.json").read_text())
    assert {"stable-baselines3", "torch", "hyrlo"} <= set(stored["versions"])
    again = train_dqn(spec, tmp_path / "again")
    assert again["return_mean"] == run.result["return_mean"]


def test_the_table_has_its_final_return(tmp_path):
    def finished(method, value):
        spec = gymnasium.spec_of(method, "MountainCar", 0, "smoke")
        line = {"phase": "forward", "episodes": 1, "steps": 5, "return_mean": value - 1, "success_rate": None}
        about = {"algo": method, "env": spec.env, "horizon": 10, "seed": 0, "eval_episodes": 1, "wall_seconds": 1.0}
        return Finished(spec, {**line, **about, "return_mean": value}, [line])

    runs = [finished("foobar", -4.0), finished("sac", -6.0), finished("dqn", -8.0)]
    header, _, row = gymnasium.report(runs, tmp_path, "smoke").strip().splitlines()
    cells = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    assert (cells["FOOBAR"], cells["SAC from scratch, equal steps"], cells["DQN, 120,000 steps"]) == ("-4", "-7", "-8")
    assert (tmp_path / "gymnasium.csv").read_text().count("dqn-MountainCar") == 1
    without = gymnasium.report(runs[:2], tmp_path, "smoke")
    assert "dqn" not in (tmp_path / "gymnasium.csv").read_text()
    assert len(without.strip().splitlines()) == 3
