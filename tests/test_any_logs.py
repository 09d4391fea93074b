"""Logs as people have them: a test for each thing that a reader may stumble over."""

import importlib
import json
import sys

import h5py
import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from hyrlo.cli.main import main
from hyrlo.core.errors import DataError
from hyrlo.data.arrays import count_duplicates
from hyrlo.data.describe import describe_dimensions
from hyrlo.data.readers import read_states
from hyrlo.data.rows import share_going
from hyrlo.data.states import ObservationDataset
from tests.logs import few, refused, same_steps, text, write_parquet

EPISODES = [np.random.default_rng(n).random((n, 2)).astype(np.float32) for n in (9, 7, 12, 9)]
BY_STEP = [np.stack([e[h] for e in EPISODES if len(e) > h]) for h in range(12)]
ROWS = [(i, t, *state) for i, episode in enumerate(EPISODES) for t, state in enumerate(episode.tolist())]


def csv_of(header, rows, delimiter=","):
    return "\n".join(delimiter.join(map(str, row)) for row in [header, *rows]) + "\n"


def logged(path, delimiter=","):
    return text(path, csv_of(["episode", "t", "x", "y"], ROWS, delimiter))


# Episodes and their ends


def test_an_episode_column_says_when_a_row_was_and_where_episodes_end(tmp_path):
    path = logged(tmp_path / "a.csv")
    data = read_states(path, episode="episode", ignore="t")
    same_steps(data, BY_STEP)
    same_steps(read_states(path, episode="episode", timesteps="t"), BY_STEP)
    assert data.names == ("x", "y")
    assert data.going == pytest.approx([1] * 7 + [0.75] * 2 + [0.25] * 3 + [0])
    assert "4 episodes of 7 to 12 states: all ended with their last state" in data.notes
    assert data.endings() == "ends are known: 75% of the episodes end before step 11, all by then"
    ended = data.with_ended(14)
    assert [len(states) for states in ended.steps] == [4] * 15
    assert [int(states[:, 2].sum()) for states in ended.steps] == [0] * 7 + [1] * 2 + [3] * 3 + [4] * 3
    assert ended.names == ("x", "y", "ended")
    assert ended.going is None


def test_rows_missing_at_random_do_not_change_what_ends_mean(tmp_path):
    """Without the episodes, the number of states would rise somewhere, and no episode would count as ended."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 25, 200)
    rows = [(i, t, rng.random()) for i, n in enumerate(lengths) for t in range(n) if rng.random() < 0.7]
    whole = [(lengths > h).mean() for h in range(24)]
    path = text(tmp_path / "a.csv", csv_of(["episode", "timesteps", "x"], rows))
    data = read_states(path, episode="episode").with_ended(23)
    share = [1 - states[:, 1].mean() for states in data.steps]
    assert np.abs(np.array(share) - whole).max() < 0.08
    blind = read_states(path, ignore="episode")
    assert all(states[:, 1].sum() == 0 for states in blind.with_ended(22).steps)
    assert blind.endings().startswith("ends are not known")


def test_a_column_says_which_episodes_ended(tmp_path):
    done = [int(i in (0, 2) and t == len(EPISODES[i]) - 1) for i, t, *_ in ROWS]
    rows = [(*row, ["False", "True"][d]) for row, d in zip(ROWS, done, strict=True)]
    path = text(tmp_path / "a.csv", csv_of(["episode", "timesteps", "x", "y", "next.done"], rows))
    data = read_states(path, episode="episode")
    assert data.observation_size == 2
    assert data.going == pytest.approx(share_going(np.array([9, 7, 12, 9]), np.array([True, False, True, False])))
    assert "4 episodes of 7 to 12 states: 2 ended, 2 were cut short" in data.notes
    text(path, path.read_text().replace("True", "perhaps"))
    refused(path, "line 10, column next.done is 'perhaps'", "--ignore next.done", episode="episode")
    assert read_states(path, episode="episode", ignore="next.done").going[-1] == 0


def test_the_share_of_ended_episodes_where_some_were_cut_short():
    assert share_going(np.array([3, 3, 5, 5]), np.array([True, True, True, False])) == (1, 1, 1, 0.5, 0.5, 0.25)
    cut = share_going(np.array([2, 4, 4]), np.array([False, True, False]))
    assert cut == (1, 1, 1, 1, 0.5)


@few
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6).filter(lambda lengths: max(lengths) > 1))
def test_whole_episodes_mean_the_same_with_and_without_their_numbers(tmp_path, lengths):
    rows = [(i, t, i + 10 * t + 0.5) for i, n in enumerate(lengths) for t in range(n)]
    path = text(tmp_path / "a.csv", csv_of(["episode", "timesteps", "x"], rows))
    horizon = max(lengths) - 1
    known, counted = read_states(path, episode="episode"), read_states(path, ignore="episode")
    same_steps(known.with_ended(horizon), counted.with_ended(horizon).steps)


def test_episodes_of_one_length_may_have_met_a_time_limit(tmp_path):
    rows = [(i, t, i + t / 2) for i in range(3) for t in range(4)]
    data = read_states(text(tmp_path / "a.csv", csv_of(["episode", "t", "x"], rows)), episode="episode", ignore="t")
    assert data.endings() == "ends are known: no episode ended"
    with pytest.raises(DataError, match="give --horizon 3 or less"):
        data.with_ended(4)


def test_episodes_may_have_names_and_the_first_of_them_may_be_read(tmp_path):
    rows = [(f"run {i}", *state) for i, _, *state in ROWS]
    path = text(tmp_path / "a.csv", csv_of(["bag", "x", "y"], rows))
    same_steps(read_states(path, episode="bag"), BY_STEP)
    same_steps(read_states(path, episode="bag", max_episodes=1), EPISODES[0][:, None])
    text(path, "bag,x\na,1\nb,nan\na,nan\n")
    refused(path, "line 4, column x is nan", episode="bag", max_episodes=1)


def test_names_and_ends_stay_with_the_data(tmp_path, capsys):
    logged(tmp_path / "a.csv")
    out = str(tmp_path / "a.npz")
    assert main(["data", "import", str(tmp_path / "a.csv"), "--episode", "episode", "--ignore", "t", "--out", out]) == 0
    capsys.readouterr()
    data = read_states(out)
    assert data.names == ("x", "y")
    assert data.going[-1] == 0
    assert data.for_horizon(3, 2).names == data.subsample(2, 0).names == data.names
    assert len(data.for_horizon(3, 2).going) == 5
    assert data.subsample(2, 0).with_ended(11).at(11)[:, 2].mean() == 0.75
    assert main(["data", "info", out]) == 0
    assert "ends are known: 75% of the episodes end" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"names": np.array(["x"])}, "1 names for 2 dimensions"),
        ({"names": np.array([1, 2])}, "names is not a list"),
        ({"going": np.ones(2)}, "going holds the shares"),
        ({"going": np.array([1, 1, 1, np.nan])}, "going holds the shares"),
        ({"going": np.array([1, 0.5, 0.6, 0])}, "going holds the shares"),
        ({"going": np.array([1.0, 0.5, 0.0, 0.0])}, "going holds the shares"),
    ],
)
def test_what_a_file_says_of_its_states_is_checked(tmp_path, about, said):
    np.savez(tmp_path / "a.npz", observations=np.ones((2, 3, 2)), **about)
    refused(tmp_path / "a.npz", said)


# Seconds


def seconds(episodes=True, start=1.7e9):
    header = ["episode"] * episodes + ["Time", "x", "y"]
    jitter = np.random.default_rng(0).uniform(-0.004, 0.004, len(ROWS))
    rows = [
        ((i,) * episodes + (start + 60 * i + 0.02 * t + j * (t > 0), *xy))
        for (i, t, *xy), j in zip(ROWS, jitter, strict=True)
    ]
    return csv_of(header, rows)


def test_seconds_become_timesteps(tmp_path):
    path = text(tmp_path / "a.csv", seconds())
    same_steps(read_states(path, episode="episode", time="Time", rate=50), BY_STEP)
    same_steps(read_states(path, episode="episode", rate=50), BY_STEP)
    refused(path, "--time needs --rate HZ", "s apart in the median", "--rate 5", episode="episode", time="Time")
    refused(path, "at 200 steps per second, timestep 1 has no states", "--rate 5", episode="episode", rate=200)
    refused(path, "--episode NAME if there are several", time="Time", rate=50, ignore="episode")
    with pytest.raises(DataError, match="--rate is 0; give the number of steps per second"):
        read_states(path, rate=0)
    with pytest.raises(DataError, match="--time and --timesteps: give one of them"):
        read_states(path, time="Time", timesteps="x")


def test_a_table_without_a_time_has_no_rate(tmp_path):
    refused(logged(tmp_path / "a.csv"), "no column looks like one", "give --time NAME", rate=50, episode="episode")


def test_columns_of_a_ros_bag(tmp_path):
    header = ["Time", "/joint_states/name", "/joint_states/position[0]", "/joint_states/position[1]"]
    rows = [(1.7e9 + 0.1 * t, "arm", *xy) for _, t, *xy in ROWS[:9]]
    path = text(tmp_path / "a.csv", csv_of(header, rows))
    data = read_states(path, time="Time", rate=10, observations="/joint_states/position")
    same_steps(data, EPISODES[0][:, None])
    assert data.names == ("/joint_states/position[0]", "/joint_states/position[1]")
    same_steps(read_states(path, rate=10, ignore=["/joint_states/name"]), data.steps)


# Columns that are no states are asked about


ASKED = {
    "episode": "an episode number",
    "traj_id": "an episode number",
    "demoNumber": "an episode number",
    "index": "an index",
    "frame_index": "an index",
    "Unnamed: 0": "an index",
    "": "an index",
    "timestamp": "a time",
    "Time": "a time",
    "header.stamp.secs": "a time",
    "done": "the end of an episode",
    "truncated": "the end of an episode",
    "reward": "an action or a reward",
    "action[0]": "an action or a reward",
}


@pytest.mark.parametrize("name", ASKED)
def test_columns_that_look_like_no_state_are_asked_about(tmp_path, name, capsys):
    rows = [(t, i, *xy) for i, t, *xy in ROWS]
    path = text(tmp_path / "a.csv", csv_of(["timesteps", name, "x", "y"], rows))
    shown = name or "unnamed"
    message = refused(
        path, f"column {shown} looks like {ASKED[name]}, not like a state", f"--ignore {shown}", "--observations x,y"
    )
    assert (f"--episode {shown}" in message) == (ASKED[name] in ("an episode number", "an index"))
    assert read_states(path, ignore=shown).observation_size == 2
    assert read_states(path, observations=f"x,{shown}").observation_size == 2
    assert main(["data", "info", str(path)]) == 2
    assert "looks like" in capsys.readouterr().err
    assert main(["data", "info", str(path), "--ignore", shown]) == 0


def test_values_give_a_column_away(tmp_path):
    def asked(column, **options):
        rows = [(t, c, x, y) for (_, t, x, y), c in zip(ROWS, column, strict=True)]
        return refused(
            text(tmp_path / "a.csv", csv_of(["timesteps", "k", "x", "y"], rows)), "column k looks like", **options
        )

    assert "the number of a row" in asked(range(len(ROWS)))
    assert "an episode number" in asked([i for i, *_ in ROWS])
    assert "an episode number" in asked([i + 17.0 for i, *_ in ROWS])
    assert "a copy of the timesteps" in asked([t for _, t, *_ in ROWS])


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("gripper", [t // 3 % 2 for _, t, *_ in ROWS]),
        ("cell", [t // 3 for _, t, *_ in ROWS]),
        ("index_finger", [x for *_, x in ROWS]),
        ("time_to_goal", [-t for _, t, *_ in ROWS]),
        ("idle", [0 for _ in ROWS]),
    ],
)
def test_whole_numbers_may_be_states(tmp_path, name, column):
    """`cell` rises with time, but a timestep comes several times with each of its values."""
    rows = sorted((t, c, x) for (_, t, x, _), c in zip(ROWS, column, strict=True))
    path = text(tmp_path / "a.csv", csv_of(["timesteps", name, "x"], rows))
    assert read_states(path).names == (name, "x")


def test_options_name_columns_that_are_there(tmp_path):
    path = logged(tmp_path / "a.csv")
    refused(path, "no column named z (found episode, t, x, y)", "--ignore", ignore="z", episode="episode")
    refused(path, "no column named run", "--episode", episode="run")
    refused(path, "no column named timesteps", "--timesteps NAME", "--time NAME --rate HZ", "--episode NAME")
    np.savez(tmp_path / "a.npz", observations=np.ones((2, 3, 2)))
    refused(tmp_path / "a.npz", "--episode: only for tables and HDF5", episode="episode")


def test_ignore_is_a_list_or_given_again(tmp_path):
    rows = [(t, i, t, *xy) for i, t, *xy in ROWS]
    path = text(tmp_path / "a.csv", csv_of(["timesteps", "episode", "frame", "x", "y"], rows))
    refused(path, "column episode looks like", "(also frame)", "--ignore episode,frame")
    for options in (["--ignore", "episode,frame"], ["--ignore", "episode", "--ignore", "frame"]):
        assert main(["data", "info", str(path), *options]) == 0
    assert read_states(path, ignore=("episode", "frame")).names == ("x", "y")


# Text


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ";"), ("a.csv", "\t"), ("a.csv", "|"), ("a.tsv", "\t"), ("a.tsv", ",")]
)
def test_other_delimiters(tmp_path, name, delimiter):
    same_steps(read_states(logged(tmp_path / name, delimiter), episode="episode", ignore="t"), BY_STEP)


def test_the_delimiter_is_that_of_the_first_line_that_is_not_blank(tmp_path):
    same_steps(read_states(text(tmp_path / "a.csv", '\n\n"timesteps";"x, y"\n0;1\n1;2\n')), [[[1]], [[2]]])


def test_decimal_commas_are_refused_with_a_word(tmp_path):
    path = text(tmp_path / "a.csv", "timesteps;x\n0;0,5\n1;1,5\n")
    refused(path, "line 2, column x is '0,5'", "decimal commas are not read", "write points")


def both_readers(monkeypatch, path, **options):
    """What pyarrow's parser and Python's make of a file."""
    found = []
    for installed in (True, False):
        with monkeypatch.context() as patch:
            if not installed:
                patch.setitem(sys.modules, "pyarrow", None)
            try:
                data = read_states(path, **options)
                found.append(([states.tolist() for states in data.steps], data.names, data.going))
            except DataError as error:
                found.append(str(error))
    return found


TEXTS = {
    "ordinary": "timesteps,x\n0,1.5\n1,-2e-3\n",
    "blank lines": "\n\ntimesteps,x\n\n0,1\n\n\n1,2\n\n1,x\n",
    "blank lines above a fraction": "\ntimesteps,x\n\n0,1\n\n0.5,2\n",
    "a mark at the beginning": "\ufefftimesteps,x\r\n0,1\r\n1,2\r\n",
    "spaces": "timesteps , x\n 0 , 1\n1\t,2 \n",
    "a plus": "timesteps,x\n0,+1\n1,2\n",
    "quotes": 'timesteps,x,"a,b"\n0,"1","2"\n1,2,3\n',
    "a line break in quotes": 'timesteps,x,note\n0,1,"a\nb"\n1,2,c\n',
    "only Python's": "timesteps,x\n0,1_5\n1,2\n",
    "other digits": "timesteps,x\n0,١\n1,2\n",
    "nothing": "timesteps,x\n0,\n1,2\n",
    "nan": "timesteps,x\n0,1\n1,nan\n",
    "nan of a kind": "timesteps,x\n0,1\n1,nan(5)\n",
    "infinity": "timesteps,x\n0,1\n1,-Infinity\n",
    "NULL": "timesteps,x\n0,1\n1,NULL\n",
    "true": "timesteps,x\n0,1\n1,true\n",
    "hexadecimal": "timesteps,x\n0,1\n1,0x10\n",
    "large": "timesteps,x\n0,1\n1,9007199254740993\n",
    "beyond all numbers": "timesteps,x\n0,1\n1,1e999\n",
    "tiny": "timesteps,x\n0,1\n1,1e-400\n",
    "a short row": "timesteps,x\n0,1\n1\n",
    "no rows": "timesteps,x\n",
    "no line break at the end": "timesteps,x\n0,1\n1,2",
    "old line breaks": "timesteps,x\r0,1\r1,2\r",
    "text elsewhere": "timesteps,x,action\n0,1,up\n1,2,\n",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_both_parsers_read_the_same(kind, tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_bytes(TEXTS[kind].encode())
    options = {"observations": "x"} if kind in ("a line break in quotes", "text elsewhere") else {}
    fast, slow = both_readers(monkeypatch, tmp_path / "a.csv", **options)
    assert fast == slow


def test_both_parsers_read_the_same_episodes(tmp_path, monkeypatch):
    rows = [(f" {i} " if t % 2 else i, *xy) for i, t, *xy in ROWS]
    path = text(tmp_path / "a.csv", csv_of(["episode", "x", "y"], rows))
    fast, slow = both_readers(monkeypatch, path, episode="episode")
    assert fast == slow
    assert fast[0] == [states.tolist() for states in BY_STEP]


def test_ordinary_text_is_parsed_by_pyarrow(tmp_path, monkeypatch):
    arrow = importlib.import_module("pyarrow.csv")
    calls = []
    real = arrow.read_csv
    monkeypatch.setattr(arrow, "read_csv", lambda *args, **options: calls.append(args) or real(*args, **options))
    monkeypatch.setattr("hyrlo.data.text._read_rows", None)
    same_steps(read_states(logged(tmp_path / "a.csv"), episode="episode", ignore="t"), BY_STEP)
    assert len(calls) == 1


def test_the_line_of_an_error_is_found_after_the_fact(tmp_path):
    path = text(tmp_path / "a.csv", "\n" + csv_of(["timesteps", "x"], [(0, 1), (1, 2), (-1, 3)]).replace("\n", "\n\n"))
    refused(path, "line 8, column timesteps is -1")


def test_json_lines(tmp_path):
    rows = [{"ep": i, "obs": {"x": [[x], [y]], "on": True}, "note": "a"} for i, _, x, y in ROWS]
    path = text(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, rows)))
    data = read_states(path, episode="ep", ignore="note")
    assert data.names == ("obs.x[0]", "obs.x[1]", "obs.on")
    same_steps(data, [np.pad(states, ((0, 0), (0, 1)), constant_values=1) for states in BY_STEP])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"timesteps": 0, "x": 1}', '{"timesteps": 1}'], ["line 2 has no x"]),
        (
            ['{"timesteps": 0, "x": [1, 2]}', "", '{"timesteps": 1, "x": [1]}'],
            ["line 3, column x has 1 values", "has 2"],
        ),
        (['{"timesteps": 0, "x": [1]}', '{"timesteps": 1, "x": 1}'], ["line 2, column x has no list of values"]),
        (['{"timesteps": 0, "x": []}'], ["line 1, column x has no list of values"]),
        (['{"timesteps": 0, "x": "1"}'], ["line 1, column x is '1'", "not a number"]),
        (['{"timesteps": 0, "x": null}'], ["line 1, column x is None", "not a number"]),
        (['{"timesteps": 0, "x": NaN}', '{"timesteps": 1, "x": 1}'], ["line 1, column x is nan"]),
        (['{"timesteps": 0, "x": 9007199254740993}'], ["line 1", "beyond 2^53"]),
        (['{"timesteps": 0, "x": 1}', '{"timesteps": 1, '], ["line 2 is not a JSON object", "truncated"]),
        (["[1, 2]"], ["line 1 is not a JSON object"]),
        (["[" * 10**5], ["line 1 is not a JSON object"]),
        ([""], ["is empty"]),
        (['{"timesteps": [0], "x": 1}'], ["timesteps"]),
    ],
)
def test_what_is_wrong_in_json_lines_is_named(tmp_path, lines, words):
    refused(text(tmp_path / "a.jsonl", "\n".join(lines)), *words)


# Lists in parquet, and LeRobot


def lerobot(path, episodes=range(4)):
    rows = [row for row in ROWS if row[0] in episodes]
    frames = np.array([t for _, t, *_ in rows])
    states = pyarrow.array([list(xy) for _, _, *xy in rows], pyarrow.list_(pyarrow.float32()))
    last = [t == len(EPISODES[i]) - 1 for i, t, *_ in rows]
    columns = {
        "observation.state": states,
        "action": states,
        "timestamp": frames / 30,
        "frame_index": frames,
        "episode_index": np.array([i for i, *_ in rows]),
        "index": np.arange(len(rows)),
        "next.done": np.array(last),
        "task_index": np.zeros(len(rows), int),
        "observation.images.top": [{"path": "a.mp4", "timestamp": 0.0}] * len(rows),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(path, columns)


def test_lerobot_tables(tmp_path):
    lerobot(tmp_path / "a.parquet")
    data = read_states(tmp_path / "a.parquet")
    same_steps(data, BY_STEP)
    assert data.names == ("observation.state[0]", "observation.state[1]")
    assert data.going[-1] == 0
    assert "left out: action, timestamp, index, task_index, observation.images.top" in data.notes


def test_folders_of_lerobot(tmp_path, capsys):
    for i in range(4):
        lerobot(tmp_path / "set" / "data" / "chunk-000" / f"episode_{i:06d}.parquet", [i])
    refused_before = tmp_path / "set"
    assert "is a directory" in refused(refused_before)
    text_file = tmp_path / "set" / "meta" / "info.json"
    text_file.parent.mkdir()
    text_file.write_text("{}")
    same_steps(read_states(tmp_path / "set"), BY_STEP)
    same_steps(read_states(tmp_path / "set", max_episodes=1), EPISODES[0][:, None])
    bad = parquet.read_table(tmp_path / "set/data/chunk-000/episode_000002.parquet")
    bad = bad.set_column(
        0, "observation.state", pyarrow.array([[1.0, np.inf]] * len(bad), pyarrow.list_(pyarrow.float32()))
    )
    parquet.write_table(bad, tmp_path / "set/data/chunk-000/episode_000002.parquet")
    refused(tmp_path / "set", "data/chunk-000/episode_000002.parquet, row 0, column observation.state[1] is inf")
    assert main(["data", "info", str(tmp_path / "set")]) == 2
    assert "non-finite" in capsys.readouterr().out


@pytest.mark.parametrize(
    "kind", [pyarrow.list_(pyarrow.float64()), pyarrow.list_(pyarrow.float32(), 2), pyarrow.large_list(pyarrow.int64())]
)
def test_list_columns_of_any_type(tmp_path, kind):
    lists = pyarrow.array([[1, 2], [3, 4]], kind)
    write_parquet(tmp_path / "a.parquet", {"timesteps": [0, 1], "x": lists, "y": [5, 6]})
    data = read_states(tmp_path / "a.parquet")
    same_steps(data, [[[1, 2, 5]], [[3, 4, 6]]])
    assert data.names == ("x[0]", "x[1]", "y")


def test_lists_of_lists_and_bad_lists(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, {"timesteps": [0, 1], "x": [[[1.0], [2.0]], [[3.0], [4.0]]]})
    same_steps(read_states(path), [[[1, 2]], [[3, 4]]])
    for lists, words in (
        ([[1.0], None], ["row 1, column x has nothing, row 0 has 1"]),
        ([[1.0], []], ["row 1, column x has 0 values"]),
        ([[1.0], [None]], ["row 1, column x[0] is nan"]),
        ([[1, 1], [1, 2**53 + 1]], ["row 1, column x is 9007199254740993", "2^53"]),
    ):
        write_parquet(path, {"timesteps": [0, 1], "x": lists})
        refused(path, *words)
    write_parquet(path, {"timesteps": [[0], [1]], "x": [1, 2]})
    refused(path, "row 0, column timesteps is [0]")


# HDF5


def hdf5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values
    return path


def test_plain_arrays_in_hdf5(tmp_path):
    trajectories = np.random.default_rng(0).random((5, 3, 2)).astype(np.float32)
    path = hdf5(tmp_path / "a.hdf5", {"observations": trajectories})
    same_steps(read_states(path), trajectories.swapaxes(0, 1))
    same_steps(read_states(path, max_episodes=2), trajectories[:2].swapaxes(0, 1))
    rows = np.array(ROWS)
    arrays = {"obs/x": rows[:, 2], "obs/y": rows[:, 3:], "t": rows[:, 1], "run": rows[:, 0], "secs": rows[:, 1] / 10}
    path = hdf5(tmp_path / "a.h5", arrays)
    for options in ({"timesteps": "t"}, {"episode": "run"}, {"time": "secs", "rate": 10, "episode": "run"}):
        data = read_states(path, observations="obs/x,obs/y", **options)
        same_steps(data, BY_STEP)
        assert data.names == ("obs/x", "obs/y[0]")


def test_flat_arrays_with_ends(tmp_path):
    """D4RL: the last episode goes on where the file ends."""
    ends = np.array([i in (0, 2) and t == len(EPISODES[i]) - 1 for i, t, *_ in ROWS])
    cuts = np.array([i == 1 and t == len(EPISODES[i]) - 1 for i, t, *_ in ROWS])
    states = np.array([xy for _, _, *xy in ROWS])
    path = hdf5(tmp_path / "a.hdf5", {"observations": states, "terminals": ends, "timeouts": cuts, "rewards": ends})
    data = read_states(path)
    same_steps(data, BY_STEP)
    assert data.going == pytest.approx(share_going(np.array([9, 7, 12, 9]), np.array([True, False, True, False])))


def robomimic(path, **changes):
    with h5py.File(path, "w") as file:
        for i, episode in enumerate(EPISODES):
            demo = file.create_group(f"data/demo_{i + 9}")  # demo_10 comes after demo_9
            demo["obs/eef_pos"], demo["obs/gripper"] = episode[:, :1], episode[:, 1:]
            demo["obs/agentview"] = np.zeros((len(episode), 4, 4, 3), np.uint8)
            demo["dones"] = np.arange(len(episode)) == len(episode) - 1 - (i == 3)
            demo["states"] = np.zeros((len(episode), 7))
    return path


def test_robomimic(tmp_path):
    data = read_states(robomimic(tmp_path / "a.hdf5"))
    same_steps(data, BY_STEP)
    assert data.names == ("eef_pos[0]", "gripper[0]")
    assert "left out: agentview" in data.notes
    same_steps(read_states(tmp_path / "a.hdf5", observations="gripper", max_episodes=1), EPISODES[0][:, None, 1:])
    assert read_states(tmp_path / "a.hdf5", ignore="gripper").names == ("eef_pos[0]",)
    refused(tmp_path / "a.hdf5", "no vectors named agentview", "eef_pos, gripper", observations="agentview")
    refused(tmp_path / "a.hdf5", "leave out --episode", episode="dones")
    with h5py.File(tmp_path / "a.hdf5", "a") as file:
        file["data/demo_11/obs/gripper"][3] = np.nan
    refused(tmp_path / "a.hdf5", "/data/demo_11, row 3, column gripper[0] is nan")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"states": np.ones((2, 2))}, ["no array named observations (found states)", "--observations NAME"]),
        ({"observations": np.ones((4, 2))}, ["nothing says which step a row is", "--timesteps NAME", "--episode NAME"]),
        ({"observations/qpos": np.ones((4, 2))}, ["is a group of qpos", "observations/qpos"]),
        ({"observations": np.ones((4, 2)), "timesteps": np.arange(3)}, ["timesteps has shape (3,)", "4 rows"]),
        ({"observations": np.array([b"a"]), "timesteps": [0]}, ["observations has dtype"]),
        ({"observations": np.ones((0, 2)), "timesteps": np.arange(0)}, ["holds no states"]),
        ({"observations": np.ones((2, 2)), "timesteps": [0.0, 0.5]}, ["row 1, column timesteps is 0.5"]),
        ({"observations": h5py.SoftLink("/x"), "x": np.ones((2, 2, 2))}, ["observations is a link to another place"]),
        ({"observations": h5py.ExternalLink("b.h5", "x")}, ["observations is a link to another place"]),
    ],
)
def test_what_is_wrong_in_hdf5_is_named(tmp_path, arrays, words):
    refused(hdf5(tmp_path / "a.hdf5", arrays), *words)


def test_hdf5_bombs_and_damage(tmp_path, monkeypatch):
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("observations", (10**10, 2, 2), "f4", chunks=(10**4, 2, 2))
    refused(path, "would take", "of memory but the file has")
    whole = robomimic(path).read_bytes()
    for end in (1, 100, len(whole) // 2):
        path.write_bytes(whole[:end])
        refused(path, "cannot be read as HDF5, it may be truncated")
    refused(tmp_path / "none.h5", "no such file")
    monkeypatch.setitem(sys.modules, "h5py", None)
    refused(path, "needs h5py", "pip install 'hyrlo[hdf5]'")


# What data info says


def test_info_has_a_line_for_each_dimension(tmp_path, capsys):
    path = text(tmp_path / "a.csv", csv_of(["timesteps", "height", "mode[1]"], [(0, 1, 7), (0, 2, 7), (1, 9, 7)]))
    assert main(["data", "info", str(path)]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert ["height", "1", "2", "9"] in lines
    assert ["mode[1]", "7", "7", "7", "constant"] in lines
    assert "ends are guessed: states fall from 2 to 1" in " ".join(shown.split())


def test_dimensions_of_data_with_gaps():
    steps = (np.array([[np.nan, 1], [3, 1]], np.float32), np.array([[5, np.nan], [np.inf, np.nan]], np.float32))
    first, second = describe_dimensions(ObservationDataset(steps, check_finite=False))
    assert first == ("0", 3, 4, 5, False)
    assert second == ("1", 1, 1, 1, True)


def test_a_picture_of_the_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    logged(tmp_path / "a.csv")
    options = ["--episode", "episode", "--ignore", "t"]
    assert main(["data", "info", "a.csv", *options, "--plot"]) == 0
    assert "picture in a.png" in capsys.readouterr().out
    assert main(["data", "info", "--plot", "b.png", "a.csv", *options]) == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    assert main(["data", "info", "a.csv", *options, "--plot=b.pdf"]) == 2
    assert "ends with .png" in capsys.readouterr().err


def test_duplicates_are_counted_as_by_numpy():
    rng = np.random.default_rng(0)
    for states in (
        rng.integers(0, 3, (200, 3)).astype(np.float32),
        rng.random((50, 2)).astype(np.float32),
        np.array([[0.0], [-0.0], [np.nan], [np.nan], [1], [1], [1]], np.float32),
    ):
        assert count_duplicates(states) == len(states) - len(np.unique(states, axis=0))
