"""Logs in every format, written for tests; and how a refusal is read."""

import csv
import gzip

import minari
import numpy as np
import pyarrow
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyarrow import parquet

from hyrlo.cli.main import main
from hyrlo.core.errors import DataError
from hyrlo.data.readers import read_states

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
