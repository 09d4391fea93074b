"""`hyrlo compare`: one table and one picture of runs, labelled by what sets them apart."""

import json

import numpy as np
import pytest

import hyrlo
from hyrlo.cli.main import main
from hyrlo.core.errors import RunError
from hyrlo.core.files import write_json
from hyrlo.runs.compare import labels
from hyrlo.runs.contents import identity
from hyrlo.runs.directory import FORMAT
from hyrlo.runs.intervals import median_interval
from hyrlo.runs.metrics import write_lines


def config(seed=0, algo="foobar", env="lock", horizon=3, samples=100, **more):
    return {
        "format": FORMAT, "algo": algo, "env": env, "env_options": {"actions": 10}, "horizon": horizon, "actions": 10,
        "seed": seed,
        "config": {"type": "FoobarConfig", "forward": {"type": "RegressionConfig", "samples": samples, "rate": 0.1}},
        "curve_episodes": 10, "eval_episodes": 50, "versions": {"hyrlo": f"0.2.{seed}"}, "code": {"version": "0.2"}, **more,
    }  # fmt: skip


def write_run(path, success=0.5, steps=300, finished=True, warnings=(), **settings):
    path.mkdir(parents=True)
    made = config(**settings)
    write_json(path / "config.json", made)
    line = {"phase": "backward", "horizon": 0, "episodes": steps // 3, "seconds": 1.0}
    score = {"return_mean": 2.0 * (success or 0.1), "success_rate": success}
    lines = [{**line, "steps": steps // 3 * (i + 1), **_part(score, (i + 1) / 3)} for i in range(3)]
    write_lines(path, lines, identity(made))
    if finished:
        about = {name: made[name] for name in ("algo", "env", "seed", "horizon", "eval_episodes", "versions")}
        said = [{"what": what} for what in warnings]
        cost = {"episodes": steps // 3, "steps": steps, "wall_seconds": 60.0}
        write_json(path / "result.json", {**about, **cost, **score, "warnings": said})
    return path


def _part(score, share):
    return {name: None if value is None else value * share for name, value in score.items()}


def test_a_table_and_a_picture_of_runs_and_seeds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a", success=0.25)
    for seed, success in enumerate((0.5, 0.75, 1.0)):
        write_run(
            tmp_path / "b" / f"seed-{seed}", success=success, steps=600, seed=seed, algo="sac", warnings=["lost track"]
        )
    assert main(["compare", "a", "b", "--out", "c.png"]) == 0
    shown = capsys.readouterr().out
    assert "lock, H = 3" in shown
    assert "median (25 %, 75 %) over seeds" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["foobar", "1", "0.5", "0.25", "300", "1", "–"] in rows
    here = rows.index(["sac", "3", "1.5", "0.75", "600", "1", "1"])
    assert rows[here + 1] == ["(1.25,", "1.75)", "(0.625,", "0.875)"]
    assert "sac: lost track (3 seeds)" in shown
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_from_python(tmp_path):
    values = [0.5, 0.75, 1.0]
    for seed, success in enumerate(values):
        write_run(tmp_path / "b" / f"seed-{seed}", success=success, seed=seed)
    comparison = hyrlo.compare([tmp_path / "b"])
    (row,) = comparison.rows()
    low, high = median_interval(values)
    assert row["success"] == {"median": 0.75, "q25": 0.625, "q75": 0.875, "low95": low, "high95": high}
    assert (row["label"], row["algo"], row["seeds"], row["minutes"]["median"]) == ("foobar", "foobar", [0, 1, 2], 1)
    comparison.plot(tmp_path / "a.png")
    comparison.to_json(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["runs"] == comparison.rows()


def test_json_for_programs_and_a_folder_of_runs(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", samples=200)
    write_run(tmp_path / "runs" / "c" / "seed-0", samples=400)
    assert main(["compare", str(tmp_path / "runs"), "--json", "--out", str(tmp_path / "a.png")]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["label"] for row in rows] == [f"forward.samples={n}" for n in (100, 200, 400)]


def test_labels_say_what_differs_and_no_more():
    def of(*runs):
        return labels([(f"run{i}", config(**run)) for i, run in enumerate(runs)])

    assert of({}) == ["foobar"]
    assert of({"algo": "sac"}, {"algo": "fail", "seed": 3}) == ["sac", "fail"]
    assert of({}, {"env": "gym:A-v0"}) == ["lock", "gym:A-v0"]
    assert of({"horizon": 5}, {"horizon": 10, "algo": "fail"}) == ["foobar, horizon=5", "fail, horizon=10"]
    assert of({"seed": 0}, {"seed": 1}) == ["run0", "run1"]
    assert of({}, {"samples": 7}, {"algo": "sac", "samples": 9}) == [
        "foobar, forward.samples=100",
        "foobar, forward.samples=7",
        "sac",
    ]
    sources = [{"data": {"source": f"logs/{name}.csv", "fingerprint": name}} for name in "ab"]
    assert of(*sources) == ["data=a.csv", "data=b.csv"]
    assert of(sources[0], {"data": {"source": "logs/a.csv", "fingerprint": "other"}}) == ["run0", "run1"]
    same = [("run", config(seed=0)), ("run", config(seed=1))]
    assert labels(same) == ["run (1)", "run (2)"]
    many = [{"config": {f"x{i}": i + j for i in range(5)}} for j in range(2)]
    assert of(*many) == ["x0=0, x1=1, x2=2, …", "x0=1, x1=2, x2=3, …"]


def test_runs_of_different_tasks_are_compared_with_a_word(tmp_path, capsys):
    one, other = (
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", env="gym:B-v0", horizon=9, success=None, steps=9000),
    )
    assert main(["compare", str(one), str(other), "--out", str(tmp_path / "c.png")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "different environments (lock, gym:B-v0): returns do not compare" in shown
    assert "different horizons (3, 9)" in shown


def test_an_unfinished_run_says_so(tmp_path, capsys):
    write_run(tmp_path / "a" / "seed-0")
    write_run(tmp_path / "a" / "seed-1", seed=1, finished=False)
    assert main(["compare", str(tmp_path / "a"), "--out", str(tmp_path / "c.png")]) == 0
    assert "foobar: 1 of 2 seeds not finished" in capsys.readouterr().out


def error_of(*paths):
    with pytest.raises(RunError) as error:
        hyrlo.compare(list(paths)).plot(paths[0] / "c.png")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_no_run_is_refused(tmp_path, capsys):
    run = write_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert "is not a run, it has no config.json" in error_of(tmp_path / "empty")
    assert "does not exist" in error_of(tmp_path / "none")
    assert "is a file" in error_of(run / "config.json")
    assert "is given twice" in error_of(run, tmp_path / "a")
    with pytest.raises(RunError, match="give at least one run"):
        hyrlo.compare([])
    begun = write_run(tmp_path / "b", finished=False)
    (begun / "metrics.jsonl").unlink()
    assert "has a curve yet" in error_of(begun)
    for text in ("{", '{"steps": 1}', "[]", '{"steps": "x", "return_mean": 1, "success_rate": 1}'):
        (begun / "metrics.jsonl").write_text(text)
        assert str(begun / "metrics.jsonl") in error_of(begun)
    (run / "result.json").write_text("[]")
    assert "result.json: is not a JSON object" in error_of(run)
    (run / "config.json").write_text("{}")
    assert "is not the config of a hyrlo run" in error_of(run)
    for argv in (["compare"], ["compare", str(run), "--out", "a.pdf"]):
        assert main(argv) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_the_curve_of_seeds_is_their_median(tmp_path):
    """Drawn values, not pixels: a seed that ended early keeps its last value."""
    write_run(tmp_path / "a" / "seed-0", success=0.2, steps=300)
    write_run(tmp_path / "a" / "seed-1", success=0.4, steps=900, seed=1)
    from hyrlo.runs import compare as module

    drawn = []
    real = module.save
    module.save = lambda figure, path: drawn.append(figure)
    try:
        hyrlo.compare([tmp_path / "a"]).plot(tmp_path / "c.png")
    finally:
        module.save = real
    (axes,) = drawn[0].axes
    steps, values = axes.lines[0].get_data()
    np.testing.assert_array_equal(steps, [100, 200, 300, 600, 900])
    np.testing.assert_allclose(values, np.array([3, 4, 5, 7, 9]) / 30)
    assert axes.get_xlabel() == "environment steps"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["foobar (2 seeds)"]
