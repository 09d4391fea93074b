"""Logs in tables: what is written reads back as the same states, and what is wrong is said in one line."""

import importlib
import sys
from contextlib import suppress
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from hyrlo.cli.main import main
from hyrlo.core.errors import DataError
from hyrlo.data.minari import write_minari
from hyrlo.data.readers import as_states, read_states, read_transitions
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from tests.logs import (
    BY_STEP,
    EPISODES,
    WRITERS,
    command_refused,
    few,
    refused,
    same_steps,
    steps_of_any_size,
    table,
    text,
    write_parquet,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*None:UserWarning"),  # Minari asks for author, e-mail and so on
    pytest.mark.usefixtures("minari_home"),
]

# There and back


@pytest.mark.parametrize("name", WRITERS)
@few
@given(steps=steps_of_any_size())
def test_any_finite_table_reads_back(tmp_path, name, steps):
    WRITERS[name](tmp_path / name, table(steps))
    same_steps(read_states(tmp_path / name), steps)
    same_steps(as_states(str(tmp_path / name)), steps)


@pytest.mark.parametrize("name", WRITERS)
@few
@given(steps=steps_of_any_size(), seed=st.integers(0, 100))
def test_the_order_of_rows_does_not_matter(tmp_path, name, steps, seed):
    order = np.random.default_rng(seed).permutation(sum(len(s) for s in steps))
    WRITERS[name](tmp_path / name, table(steps, order))
    data = read_states(tmp_path / name)
    assert data.horizon == len(steps) - 1
    for found, expected in zip(data.steps, steps, strict=True):
        assert sorted(map(tuple, found)) == sorted(map(tuple, expected))


# Tables


def test_columns_of_a_table_may_have_other_names_and_be_chosen(tmp_path):
    content = " name,t,y,reward,x\nup,0,1,9,2\nup,1,3,9,4\n\n"
    path = text(tmp_path / "a.CSV", content)
    data = read_states(path, timesteps="t", observations="x, y")
    same_steps(data, [[[2, 1]], [[4, 3]]])
    table = {"name": ["up", "up"], "a.t": [0, 1], "a.y": [1, 3], "a.x": [2, 4]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    same_steps(read_states(tmp_path / "a.parquet", timesteps="a.t", observations="a.x,a.y"), data.steps)


def test_numbers_of_any_type_are_read(tmp_path):
    expected = [[[0.5, 1, 0]], [[1.5, 2, 1]]]
    path = text(tmp_path / "a.csv", '\ufefftimesteps,x,y,z\r\n0.0," 0.5 ",1,0\r\n\r\n1e0,"1.5",2e0,1\r\n')
    same_steps(read_states(path), expected)
    columns = {
        "timesteps": pyarrow.array([0, 1], pyarrow.uint8()),
        "x": pyarrow.array([np.float16(0.5), np.float16(1.5)], pyarrow.float16()),
        "y": pyarrow.array([1, 2], pyarrow.decimal128(5)),
        "z": pyarrow.array([False, True]),
    }
    write_parquet(tmp_path / "a.parquet", columns)
    same_steps(read_states(tmp_path / "a.parquet"), expected)


def test_a_parquet_file_has_the_columns_it_has_wherever_it_lies(tmp_path):
    """Folders like `robot=3` are not taken for columns."""
    (tmp_path / "robot=3").mkdir()
    write_parquet(tmp_path / "robot=3" / "a.parquet", table([np.ones((1, 2)), np.ones((1, 2))]))
    assert read_states(tmp_path / "robot=3" / "a.parquet").observation_size == 2


BAD_TABLES = {
    "text": (
        "timesteps,x,name\n0,1,2\n1,2,up\n",
        ["line 3, column name is 'up'", "not a number", "--observations"],
    ),
    "an empty cell": ("timesteps,x\n0,1\n\n1,\n", ["line 4, column x is ''"]),
    "text as timestep": ("timesteps,x\nfirst,1\n", ["line 2, column timesteps is 'first'"]),
    "no timesteps": ("t,x,y\n0,1,2\n", ["no column named timesteps", "(found t, x, y)", "--timesteps NAME"]),
    "no header": ("0,1.5\n1,2.5\n", ["no column named timesteps", "(found 0, 1.5)"]),
    "a fraction": ("timesteps,x\n0,1\n1.5,2\n", ["line 3, column timesteps is 1.5", "whole numbers from 0"]),
    "a negative": ("timesteps,x\n0,1\n-2,2\n", ["line 3, column timesteps is -2", "whole numbers from 0"]),
    "no number": ("timesteps,x\n0,1\nnan,2\n", ["line 3, column timesteps is nan", "whole numbers from 0"]),
    "beyond all numbers": ("timesteps,x\n0,1\n1e300,2\n", ["line 3, column timesteps is 1e+300"]),
    "nothing": ("", ["is empty", "timesteps"]),
    "blank lines": ("\n\n", ["is empty"]),
    "a header only": ("timesteps,x\n", ["holds no states"]),
    "a short row": ("timesteps,x,y\n0,1,2\n1,2\n", ["line 3 has 2 values", "3 columns"]),
    "a long row": ("timesteps,x\n0,1,2\n", ["line 2 has 3 values", "2 columns"]),
    "nan": ("timesteps,x,y\n0,1,2\n\n1,2,nan\n", ["line 4, column y is nan", "non-finite"]),
    "infinity": ("timesteps,x,y\n0,-inf,2\n1,2,3\n", ["line 2, column x is -inf", "non-finite"]),
    "too large": ("timesteps,x\n0,1e300\n1,2\n", ["line 2, column x is inf", "non-finite"]),
    "one name twice": ("timesteps,x,x\n0,1,2\n", ["2 columns named x"]),
    "timesteps alone": ("timesteps\n0\n1\n", ["no column but timesteps"]),
    "a missing step": ("timesteps,x\n0,1\n2,2\n", ["timestep 1 has no states", "horizon is 2"]),
    "one step": ("timesteps,x\n0,1\n0,2\n", ["timesteps 0 and 1"]),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_what_is_wrong_in_a_csv_file_is_named(kind, tmp_path, capsys):
    content, words = BAD_TABLES[kind]
    path = text(tmp_path / "a.csv", content)
    refused(path, *words)
    command_refused(capsys, tmp_path, path, *words)


def bad_parquet(tmp_path):
    """Columns that are refused, and words of the message."""
    two = np.arange(2)
    return {
        "text": ({"timesteps": two, "x": ["1", "2"]}, ["row 0, column x is '1'", "not a number"]),
        "lists of text": ({"timesteps": two, "x": [["1"], ["2"]]}, ["row 0, column x is ['1']"]),
        "lists of any length": (
            {"timesteps": two, "x": [[1.0], [2.0, 3.0]]},
            ["row 1, column x has 2 values, row 0 has 1"],
        ),
        "text as timestep": ({"timesteps": ["0", "1"], "x": two}, ["row 0, column timesteps is '0'"]),
        "no timesteps": ({"t": two, "x": two}, ["no column named timesteps", "(found t, x)", "--timesteps NAME"]),
        "a fraction": ({"timesteps": [0, 0.5], "x": two}, ["row 1, column timesteps is 0.5", "whole numbers"]),
        "a negative": ({"timesteps": [0, -1], "x": two}, ["row 1, column timesteps is -1", "whole numbers"]),
        "no timestep": ({"timesteps": [0, None], "x": two}, ["row 1, column timesteps is nan"]),
        "nothing": ({"timesteps": two[:0], "x": two[:0]}, ["holds no states"]),
        "no columns": ({}, ["no column named timesteps", "found nothing"]),
        "no value": ({"timesteps": two, "x": [1, None]}, ["row 1, column x is nan", "non-finite"]),
        "infinity": ({"timesteps": two, "x": two, "y": [np.inf, 0]}, ["row 0, column y is inf", "non-finite"]),
        "timesteps alone": ({"timesteps": two}, ["no column but timesteps"]),
    }


@pytest.mark.parametrize("kind", bad_parquet(None))
def test_what_is_wrong_in_a_parquet_file_is_named(kind, tmp_path, capsys):
    columns, words = bad_parquet(tmp_path)[kind]
    write_parquet(tmp_path / "a.parquet", columns)
    refused(tmp_path / "a.parquet", *words)
    command_refused(capsys, tmp_path, tmp_path / "a.parquet", *words)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.parquet"])
def test_a_truncated_table_at_any_place(name, tmp_path, capsys):
    path = tmp_path / name
    WRITERS[name](path, table([np.random.default_rng(0).random((30, 3))] * 3))
    whole = path.read_bytes()
    for end in [1, 4, 12, len(whole) // 3, len(whole) // 2, len(whole) - 9, len(whole) - 1]:
        path.write_bytes(whole[:end])
        refused(path, "truncated")
    command_refused(capsys, tmp_path, path, "truncated")


def test_changed_bytes_in_a_table_are_a_data_error_or_are_read(tmp_path):
    write_parquet(tmp_path / "a.parquet", table([np.random.default_rng(0).random((30, 3))] * 3))
    whole = (tmp_path / "a.parquet").read_bytes()
    for place in range(0, len(whole), len(whole) // 40):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        (tmp_path / "a.parquet").write_bytes(changed)
        with suppress(DataError):
            read_states(tmp_path / "a.parquet")


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"timesteps,x\n0,\xff\xfe\n")
    refused(tmp_path / "a.csv", "cannot be read as CSV")
    (tmp_path / "a.csv").write_text("timesteps,x\n0," + "1" * 200_000)
    refused(tmp_path / "a.csv", "cannot be read as CSV")
    refused(text(tmp_path / "a.csv.gz", "timesteps,x\n0,1\n"), "cannot be read as CSV")
    refused(text(tmp_path / "a.parquet", ""), "cannot be read as parquet")
    for name in ("none.csv", "none.parquet", "none.npz"):
        refused(tmp_path / name, "no such file")
    (tmp_path / "dir.csv").mkdir()
    refused(tmp_path / "dir.csv", "is a directory")


def test_columns_that_are_not_there_are_named(tmp_path):
    path = text(tmp_path / "a.csv", "timesteps,x\n0,1\n1,2\n")
    refused(path, "no column named z", "(found timesteps, x)", "--observations", observations="x,z")


@pytest.mark.parametrize(
    ("source", "module", "extra"),
    [("a.parquet", "pyarrow", "parquet"), ("minari:walk-v0", "minari", "minari"), ("minari:walk-v0", "h5py", "minari")],
)
def test_an_extra_that_is_not_installed(source, module, extra, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_parquet(Path("a.parquet"), table([np.ones((1, 2))] * 2))
    monkeypatch.setitem(sys.modules, module, None)
    words = [f"needs {module}", "not installed", f"pip install 'hyrlo[{extra}]'"]
    refused(source, *words)
    command_refused(capsys, tmp_path, source, *words)


def test_npz_and_csv_need_no_extra(tmp_path, monkeypatch):
    for module in ("minari", "h5py", "pyarrow"):
        monkeypatch.setitem(sys.modules, module, None)
    for module in [name for name in sys.modules if name.startswith("hyrlo.data")]:
        monkeypatch.delitem(sys.modules, module)
    fresh = importlib.import_module("hyrlo.data.readers")
    steps = [np.ones((2, 3), np.float32)] * 2
    for name in ("a.csv", "a.npz"):
        WRITERS[name](tmp_path / name, table(steps))
        same_steps(fresh.read_states(tmp_path / name), steps)


def test_states_in_any_form(tmp_path):
    observations = np.random.default_rng(0).random((5, 3, 2, 2)).astype(np.float32)
    steps = observations.reshape(5, 3, 4).swapaxes(0, 1)
    data = as_states(observations)
    same_steps(data, steps)
    assert as_states(data) is data
    same_steps(as_states(jnp.asarray(observations)), steps)
    np.savez(tmp_path / "a.npz", observations=observations)
    same_steps(as_states(tmp_path / "a.npz"), steps)
    for wrong, said in (
        (3, "data: got a int"),
        ([[1.0]], "data: episode 0 has shape"),
        (np.ones(3), "data: observations has shape"),
    ):
        with pytest.raises(DataError, match=said):
            as_states(wrong)
    with pytest.raises(DataError, match="timestep 1, state 0, dimension 0 is nan"):
        as_states(np.array([[[0.0], [np.nan]]]))


# Options


def test_max_episodes_of_trajectories(tmp_path):
    observations = np.random.default_rng(0).random((5, 3, 2)).astype(np.float32)
    np.savez(tmp_path / "a.npz", observations=observations)
    same_steps(read_states(tmp_path / "a.npz", max_episodes=2), observations[:2].swapaxes(0, 1))
    same_steps(read_states(tmp_path / "a.npz", max_episodes=9), observations.swapaxes(0, 1))
    np.savez(tmp_path / "a.npz", observations=np.zeros(()))
    refused(tmp_path / "a.npz", "shape ()", max_episodes=2)


def test_max_episodes_where_there_are_none(tmp_path):
    for name, write in WRITERS.items():
        write(tmp_path / name, table([np.ones((1, 2))] * 2))
        refused(tmp_path / name, "leave out --max-episodes", max_episodes=1)
    tuples = TransitionDataset.from_trajectories(np.ones((2, 3, 2)), np.zeros((2, 2)), np.zeros((2, 2)))
    step = tuples.steps[0]
    np.savez(
        tmp_path / "t.npz", observations=step.states, actions=step.actions, rewards=step.rewards,
        next_observations=step.next_states, timesteps=np.zeros(2, int),
    )  # fmt: skip
    refused(tmp_path / "t.npz", "leave out --max-episodes", max_episodes=1)
    for most in (0, -1):
        with pytest.raises(DataError, match=f"--max-episodes is {most}; give at least 1"):
            read_states("minari:walk-v0", max_episodes=most)


def test_tuples_with_actions_are_not_read_from_tables(tmp_path):
    path = text(tmp_path / "a.csv", "timesteps,x\n0,1\n1,2\n")
    refused(path, "only its states are read", read=read_transitions)


# Commands


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.npz", "minari:walk-v0"])
def test_import_and_info_take_any_source(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if name in WRITERS:
        WRITERS[name](Path(name), table(BY_STEP))
    else:
        write_minari(EPISODES, "walk-v0")
    assert main(["data", "info", name]) == 0
    assert "horizon 3, 3 dimensions, 12 states" in capsys.readouterr().out
    assert main(["data", "import", name, "--out", "out.npz"]) == 0
    assert "wrote out.npz: 12 states, timesteps 0 … 3" in capsys.readouterr().out
    same_steps(ObservationDataset.load("out.npz"), BY_STEP)


def test_import_takes_the_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_minari(EPISODES, "walk-v0")
    assert main(["data", "import", "minari:walk-v0", "--max-episodes", "1", "--out", "one.npz"]) == 0
    same_steps(ObservationDataset.load("one.npz"), EPISODES[0][:, None])
    Path("a.csv").write_text("h,action,x\n0,left,5\n1,right,6\n")
    argv = ["data", "import", "a.csv", "--timesteps", "h", "--observations", "x", "--out", "two.npz"]
    assert main(argv) == 0
    same_steps(ObservationDataset.load("two.npz"), [[[5]], [[6]]])


def test_training_reads_any_source(tmp_path, capsys):
    """As far as the check against the environment's size, which names the source."""
    write_minari(EPISODES, "walk-v0")
    assert main(["train", "foobar", "lock", "--data", "minari:walk-v0", "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: minari:walk-v0: states have 3 dimensions but the environment's have 8")
    argv = [
        "train",
        "foobar",
        "lock",
        "--data",
        "minari:walk-v0",
        "--max-episodes",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(argv) == 2
    assert "states have 3 dimensions" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("algo", ["foobar", "hyq"])
def test_max_episodes_is_for_data(algo, capsys):
    assert main(["train", algo, "lock", "--max-episodes", "3"]) == 2
    assert "--max-episodes: is for --data; leave it out" in capsys.readouterr().err
