"""Logs of other formats: what is written reads back as the same states, and what is wrong is said in one line."""

import csv
import gzip
import importlib.util
import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hyrlo import readers
from hyrlo.cli import main
from hyrlo.data import ObservationDataset
from hyrlo.errors import DataError
from hyrlo.readers import read_states, write_minari
from hyrlo.transitions import TransitionDataset, load_states

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")

pytestmark = pytest.mark.filterwarnings("ignore:.*None:UserWarning")  # Minari asks for author, e-mail and so on

values = st.floats(allow_nan=False, allow_infinity=False, width=32)
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def steps_of_any_size(draw):
    size, counts = draw(st.integers(1, 4)), draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    return tuple(draw(arrays(np.float32, (n, size), elements=values)) for n in counts)


@st.composite
def episodes_of_any_length(draw):
    size, lengths = draw(st.integers(1, 4)), draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    return [draw(arrays(np.float32, (n, size), elements=values)) for n in lengths]


@pytest.fixture(autouse=True)
def minari_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def table(steps, order=None):
    """Columns of a table with these states, in this order of rows."""
    timesteps, states = np.repeat(np.arange(len(steps)), [len(s) for s in steps]), np.concatenate(steps)
    order = np.arange(len(states)) if order is None else order
    return {"timesteps": timesteps[order], **{f"x{i}": column for i, column in enumerate(states[order].T)}}


def write_csv(path, columns):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def write_parquet(path, columns):
    parquet.write_table(pyarrow.table(columns), path)


def write_npz(path, columns):
    states = np.stack([column for name, column in columns.items() if name != "timesteps"], axis=1)
    np.savez(path, observations=states, timesteps=columns["timesteps"])


WRITERS = {"a.csv": write_csv, "a.csv.gz": write_csv, "a.parquet": write_parquet, "a.npz": write_npz}


def same_steps(data, steps):
    assert data.horizon == len(steps) - 1
    for found, expected in zip(data.steps, steps, strict=True):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)


def refused(source, *words, read=read_states, **options):
    """The one-line message with which reading is refused; it begins with the source and has all `words`."""
    with pytest.raises(DataError) as error:
        read(source, **options)
    message = str(error.value)
    assert message.startswith(str(source)), message
    for word in words:
        assert word in message, message
    assert "\n" not in message
    return message


def text(path, content):
    path.write_text(content)
    return path


# There and back


@pytest.mark.parametrize("name", WRITERS)
@few
@given(steps=steps_of_any_size())
def test_any_finite_table_reads_back(tmp_path, name, steps):
    WRITERS[name](tmp_path / name, table(steps))
    same_steps(read_states(tmp_path / name), steps)
    same_steps(load_states(str(tmp_path / name)), steps)


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


@few
@given(episodes=episodes_of_any_length(), most=st.integers(1, 5))
def test_any_episodes_read_back_from_minari(minari_home, episodes, most):
    shutil.rmtree(minari_home, ignore_errors=True)
    write_minari(episodes, "logs/walk-v0")
    for read, kept in ((None, episodes), (most, episodes[:most])):
        data = read_states("minari:logs/walk-v0", max_episodes=read)
        assert data.source == "minari:logs/walk-v0"
        same_steps(data, [np.stack([e[h] for e in kept if len(e) > h]) for h in range(max(map(len, kept)))])


def test_trajectories_of_many_axes_are_written_to_minari():
    observations = np.random.default_rng(0).random((5, 4, 2, 3)).astype(np.float32)
    write_minari(observations, "walk-v0")
    same_steps(read_states("minari:walk-v0"), ObservationDataset.from_trajectories(observations).steps)
    episode = minari.load_dataset("walk-v0")[2]  # Minari itself can load it
    np.testing.assert_array_equal(episode.observations, observations[2])
    assert episode.actions.shape == (3, 0)


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


def command_refused(capsys, tmp_path, source, *words):
    """Importing and training exit with 2, one line on stderr and nothing written."""
    for argv in (
        ["data", "import", str(source), "--out", str(tmp_path / "out")],
        ["train", "foobar", "lock", "--data", str(source), "--out", str(tmp_path / "out")],
    ):
        assert main(argv) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        assert line.startswith(f"error: {source}")
        for word in words:
            assert " ".join(word.split()) in line
        assert not list(tmp_path.glob("*out*"))


def bad_parquet(tmp_path):
    """Columns that are refused, and words of the message."""
    two = np.arange(2)
    return {
        "text": ({"timesteps": two, "x": ["1", "2"]}, ["row 0, column x is '1'", "not a number"]),
        "lists": ({"timesteps": two, "x": [[1.0], [2.0]]}, ["row 0, column x is [1.0]"]),
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
    spec = importlib.util.spec_from_file_location("fresh", readers.__file__)
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    steps = [np.ones((2, 3), np.float32)] * 2
    for name in ("a.csv", "a.npz"):
        WRITERS[name](tmp_path / name, table(steps))
        same_steps(fresh.read_states(tmp_path / name), steps)


# Minari

EPISODES = [np.random.default_rng(n).random((n, 3)).astype(np.float32) for n in (3, 2, 4, 3)]
BY_STEP = [np.stack([e[h] for e in EPISODES if len(e) > h]) for h in range(4)]


def record(dataset_id, observations, space, data_format="hdf5"):
    """A Minari data set with actions, as a data collector writes it; `observations` is stacked per episode."""
    from minari.data_collector import EpisodeBuffer

    def leaf_length(tree):
        return (
            len(tree) if isinstance(tree, np.ndarray) else leaf_length(next(iter(dict(enumerate_items(tree)).values())))
        )

    def enumerate_items(tree):
        return tree.items() if isinstance(tree, dict) else enumerate(tree)

    buffers = []
    for states in observations:
        steps = leaf_length(states) - 1
        about = {"rewards": np.ones(steps), "terminations": np.zeros(steps, bool), "truncations": np.ones(steps, bool)}
        buffers.append(EpisodeBuffer(observations=states, actions=np.ones((steps, 2), np.float32), **about))
    return minari.create_dataset_from_buffers(
        dataset_id, buffers, observation_space=space, action_space=spaces.Box(-1, 1, (2,)), data_format=data_format
    )


BOX = spaces.Box(-np.inf, np.inf, (3,))


@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
def test_step_h_holds_the_states_of_the_episodes_that_got_that_far(data_format):
    record("walk-v0", EPISODES, BOX, data_format)
    same_steps(read_states("minari:walk-v0"), BY_STEP)


def test_only_observations_are_touched():
    dataset = record("walk-v0", EPISODES, BOX)
    with h5py.File(Path(dataset.storage.data_path) / "main_data.hdf5", "a") as file:
        for episode in file.values():
            for name in set(episode) - {"observations"}:
                del episode[name]
    with pytest.raises(KeyError):
        list(minari.load_dataset("walk-v0").iterate_episodes())
    same_steps(read_states("minari:walk-v0"), BY_STEP)


def test_only_observations_are_touched_in_parquet():
    dataset = record("walk-v0", EPISODES, BOX, "parquet")
    for path in Path(dataset.storage.data_path).glob("*/*.parquet"):
        parquet.write_table(parquet.ParquetFile(path).read(columns=["observations"]), path)
    same_steps(read_states("minari:walk-v0"), BY_STEP)


SPACES = [
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([[2, 3], [4, 2]]),
    spaces.MultiBinary(5),
    spaces.Box(0, 1, ()),
    spaces.Box(0, 255, (4, 5), np.uint8),
    spaces.Dict({"goal": spaces.Box(-1, 1, (2,)), "at": spaces.Discrete(3), "deep": spaces.Tuple([BOX, BOX])}),
    spaces.Dict(z=spaces.Box(-1, 1, (2,)), a=spaces.Dict(y=spaces.Discrete(2), b=BOX)),
    spaces.Tuple([spaces.Box(-1, 1, (2, 2), np.float64), spaces.Discrete(2), spaces.Dict(c=BOX, b=BOX)]),
]


def stacked(space, samples):
    if isinstance(space, spaces.Dict):
        return {key: stacked(part, [sample[key] for sample in samples]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(part, [sample[i] for sample in samples]) for i, part in enumerate(space.spaces))
    return np.stack(samples)


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
@pytest.mark.parametrize("space", SPACES, ids=lambda s: type(s).__name__)
def test_other_observation_spaces_are_flattened_as_gymnasium_does(space, data_format):
    space.seed(0)
    episodes = [[space.sample() for _ in range(length)] for length in (3, 2, 3)]
    record("walk-v0", [stacked(space, episode) for episode in episodes], space, data_format)
    data = read_states("minari:walk-v0")
    same_steps(
        data, [np.stack([flatten(space, e[h]) for e in episodes if len(e) > h]).astype(np.float32) for h in range(3)]
    )


def test_observations_that_cannot_be_vectors_are_refused(capsys, tmp_path):
    images = spaces.Box(0, 255, (32, 32, 3), np.uint8)
    record("images-v0", [np.zeros((2, 32, 32, 3), np.uint8)], images)
    words = ["minari:images-v0, episode 0", "images"]
    refused("minari:images-v0", *words)
    command_refused(capsys, tmp_path, "minari:images-v0", *words)
    record("text-v0", [np.array(["a", "b"], object)], spaces.Text(1))
    refused("minari:text-v0", "Text")
    record("discrete-v0", [np.array([0, 1]), np.array([1, -1])], spaces.Discrete(2))
    refused("minari:discrete-v0", "episode 1, timestep 1", "[-1]", "Discrete(2)")


def test_a_data_set_that_is_not_there(tmp_path, minari_home, monkeypatch, capsys):
    def offline(*_, **__):
        raise AssertionError("no network")

    monkeypatch.setattr("socket.socket.connect", offline)
    words = ["not among the local data sets", str(minari_home), "minari download D4RL/door/human-v2"]
    refused("minari:D4RL/door/human-v2", *words)
    command_refused(capsys, tmp_path, "minari:D4RL/door/human-v2", *words)
    refused("minari:", "not among the local data sets")


def test_an_empty_data_set(tmp_path, capsys):
    record("empty-v0", [], BOX)
    refused("minari:empty-v0", "holds no episodes")
    command_refused(capsys, tmp_path, "minari:empty-v0", "holds no episodes")


def test_non_finite_values_of_a_data_set_are_named_with_their_place(tmp_path, capsys):
    record("walk-v0", [np.zeros((3, 3)), np.array([[0, 0, 0], [0, np.nan, 0]])], BOX)
    words = ["timestep 1, state 1, dimension 1 is nan"]
    refused("minari:walk-v0", *words)
    command_refused(capsys, tmp_path, "minari:walk-v0", *words)
    assert read_states("minari:walk-v0", max_episodes=1).horizon == 2
    assert main(["data", "info", "minari:walk-v0"]) == 2
    assert words[0] in capsys.readouterr().err


def damage(path, kind):
    metadata = path / "metadata.json"
    if kind == "no metadata":
        metadata.unlink()
    elif kind == "metadata cut":
        metadata.write_text(metadata.read_text()[:40])
    elif kind == "of a later version":
        metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "minari_version": "99.0"}))
    elif kind == "no file":
        (path / "main_data.hdf5").unlink()
    elif kind == "file cut":
        (path / "main_data.hdf5").write_bytes((path / "main_data.hdf5").read_bytes()[:1000])
    else:
        with h5py.File(path / "main_data.hdf5", "a") as file:
            del file["episode_2"]


@pytest.mark.parametrize(
    "kind", ["no metadata", "metadata cut", "of a later version", "no file", "file cut", "an episode missing"]
)
def test_a_damaged_data_set(kind, tmp_path, minari_home, capsys):
    write_minari(EPISODES, "walk-v0")
    damage(minari_home / "walk-v0" / "data", kind)
    refused("minari:walk-v0", "cannot be read as a Minari data set")
    command_refused(capsys, tmp_path, "minari:walk-v0")


def test_what_minari_is_not_given_is_refused(minari_home):
    def write(source, episodes):
        write_minari(episodes, source.removeprefix("minari:"))

    for episodes, *words in (
        ([], "no episodes"),
        ([np.zeros((1, 3))], "episode 0 has shape (1, 3)"),
        ([np.zeros((4, 3)), np.zeros((4, 2))], "episode 1 has shape (4, 2)", "(4, 3)"),
        ([np.zeros(4)], "episode 0 has shape (4,)"),
        ([np.zeros((4, 0))], "at least one dimension"),
        ([np.zeros((2, 3)), np.full((2, 3), np.inf)], "timestep 0, state 1, dimension 0 is inf"),
        ([np.full((2, 3), "x")], "episode 0 has dtype"),
    ):
        refused("minari:walk-v0", *words, read=write, episodes=episodes)
    for name in ("walk", "../walk-v0", "wa lk-v0", ""):
        refused(f"minari:{name}", "is not a Minari id", read=write, episodes=EPISODES)
    assert not list(minari_home.glob("*"))
    write_minari(EPISODES, "walk-v0")
    refused("minari:walk-v0", "already exists", "minari delete walk-v0", read=write, episodes=EPISODES[:1])
    same_steps(read_states("minari:walk-v0"), BY_STEP)


def test_a_write_that_fails_leaves_nothing(minari_home, monkeypatch):
    def full(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("minari.utils.MinariDataset", full)
    with pytest.raises(OSError, match="disk full"):
        write_minari(EPISODES, "walk-v0")
    assert not list(minari_home.glob("*"))


# Options


def test_max_episodes_of_trajectories(tmp_path):
    observations = np.random.default_rng(0).random((5, 3, 2)).astype(np.float32)
    np.savez(tmp_path / "a.npz", observations=observations)
    same_steps(read_states(tmp_path / "a.npz", max_episodes=2), observations[:2].swapaxes(0, 1))
    same_steps(load_states(tmp_path / "a.npz", max_episodes=9), observations.swapaxes(0, 1))
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
    refused(tmp_path / "t.npz", "leave out --max-episodes", read=load_states, max_episodes=1)
    for most in (0, -1):
        with pytest.raises(DataError, match=f"--max-episodes is {most}; give at least 1"):
            read_states("minari:walk-v0", max_episodes=most)


def test_minari_has_no_names_to_give():
    write_minari(EPISODES, "walk-v0")
    for options in ({"observations": "states"}, {"timesteps": "t"}):
        refused("minari:walk-v0", "leave out --observations and --timesteps", **options)


def test_tuples_with_actions_are_not_read_from_tables(tmp_path):
    path = text(tmp_path / "a.csv", "timesteps,x\n0,1\n1,2\n")
    refused(path, "only its states are read", read=TransitionDataset.load)


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


@pytest.mark.parametrize(
    "argv",
    [
        ["train", "foobar", "lock", "--max-episodes", "3"],
        ["train", "hyq", "lock", "--data", "x.npz", "--max-episodes", "3"],
    ],
)
def test_max_episodes_is_for_states_from_data(argv, capsys):
    assert main(argv) == 2
    assert "--max-episodes: is for --data with states" in capsys.readouterr().err


# Episodes that ended


def numbered(*counts):
    return ObservationDataset(tuple(np.arange(2.0 * n, dtype=np.float32).reshape(n, 2) + 1 for n in counts), "walk")


def test_ended_episodes_are_kept_in_an_absorbing_state():
    data = numbered(4, 4, 2, 1)
    flagged = data.with_ended(5)
    assert (flagged.horizon, flagged.observation_size, flagged.source) == (5, 3, "walk")
    for h, going in enumerate([4, 4, 2, 1, 0, 0]):
        states = flagged.at(h)
        assert states.shape == (4, 3)
        assert states.dtype == np.float32
        if going:
            np.testing.assert_array_equal(states[:going, :2], data.at(h))
        assert not states[:going, 2].any()
        assert (states[going:] == [0, 0, 1]).all()


@pytest.mark.parametrize("counts", [(3, 3, 3), (3, 2, 4), (1, 2, 3), (3, 1, 2)])
def test_without_ended_episodes_the_flag_is_zero_everywhere(counts):
    data = numbered(*counts)
    flagged = data.with_ended(2)
    for h, n in enumerate(counts):
        assert flagged.at(h).shape == (n, 3)
        np.testing.assert_array_equal(flagged.at(h)[:, :2], data.at(h))
        assert not flagged.at(h)[:, 2].any()
    with pytest.raises(DataError, match=r"walk: has timesteps 0 … 2 but the horizon is 3.*--horizon 2"):
        data.with_ended(3)


def test_a_shorter_horizon_takes_the_first_steps():
    assert [len(s) for s in numbered(5, 3, 2).with_ended(1).steps] == [5, 5]
    assert [len(s) for s in numbered(3, 2, 4).with_ended(1).steps] == [3, 2]  # 4 says: not episodes


@few
@given(episodes=episodes_of_any_length(), more=st.integers(0, 3))
def test_every_episode_is_somewhere_at_every_step(episodes, more):
    data = readers._from_episodes(episodes, "walk", check_finite=True)
    ended = len({len(e) for e in episodes}) > 1
    flagged = data.with_ended(data.horizon + more * ended)
    for h, states in enumerate(flagged.steps):
        assert len(states) == len(episodes)
        assert states[:, -1].sum() == sum(len(e) <= h for e in episodes)


def test_ended_data_survive_saving(tmp_path):
    flagged = numbered(4, 2, 1).with_ended(4)
    flagged.save(tmp_path / "a.npz")
    same_steps(ObservationDataset.load(tmp_path / "a.npz"), flagged.steps)
    numbered(4, 2, 1).save(tmp_path / "a.npz")
    assert ObservationDataset.load(tmp_path / "a.npz").with_ended(4).fingerprint() == flagged.fingerprint()


def test_a_step_without_states_stays_an_error():
    with pytest.raises(DataError, match="timestep 1 has no states"):
        numbered(3, 0, 2)
