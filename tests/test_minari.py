"""Minari data sets: states from observations alone, tuples with their ends, and what is wrong is said in one line."""

import json
import shutil
from pathlib import Path

import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from hypothesis import given
from hypothesis import strategies as st
from minari.data_collector import EpisodeBuffer
from pyarrow import parquet

from hyrlo.cli.main import main
from hyrlo.data.minari import write_minari
from hyrlo.data.readers import read_states, read_transitions
from hyrlo.data.states import ObservationDataset
from hyrlo.envs.gym.wrappers import action_converter
from tests.logs import BOX, BY_STEP, EPISODES, command_refused, episodes_of_any_length, few, record, refused, same_steps

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*None:UserWarning"),  # Minari asks for author, e-mail and so on
    pytest.mark.usefixtures("minari_home"),
]


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


@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
def test_step_h_holds_the_states_of_the_episodes_that_got_that_far(data_format):
    record("walk-v0", EPISODES, BOX, data_format)
    same_steps(read_states("minari:walk-v0"), BY_STEP)


# Tuples


def tuples(actions, space, data_format="hdf5"):
    """Record episodes of 3, 1 and 2 steps: the first terminated, the second cut, the third both."""
    ends = {0: (True, False), 1: (False, True), 2: (True, True)}
    states = [np.random.default_rng(n).random((n + 1, 3)).astype(np.float32) for n in (3, 1, 2)]
    buffers = []
    for i, episode in enumerate(states):
        last = np.arange(len(episode) - 1) == len(episode) - 2
        terminated, truncated = (last & end for end in ends[i])
        about = {"rewards": 10.0 * i + np.arange(len(last)), "terminations": terminated, "truncations": truncated}
        buffers.append(EpisodeBuffer(observations=episode, actions=actions[i], **about))
    about = {"observation_space": BOX, "action_space": space, "data_format": data_format}
    minari.create_dataset_from_buffers("walk-v0", buffers, **about)
    return states


@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
def test_tuples_of_all_episodes_are_read_and_only_terminations_are_ends(data_format):
    numbers = [np.array([-1, 0, 1]), np.array([1]), np.array([0, -1])]
    states = tuples(numbers, spaces.Discrete(3, start=-1), data_format)
    data = read_transitions("minari:walk-v0")
    assert data.source == "minari:walk-v0"
    for h, (rows, ends) in enumerate([([0, 1, 2], [0, 0, 0]), ([0, 2], [0, 1]), ([0], [1])]):
        step = data.at(h)
        np.testing.assert_array_equal(step.states, [states[i][h] for i in rows])
        np.testing.assert_array_equal(step.next_states, [states[i][h + 1] for i in rows])
        np.testing.assert_array_equal(step.actions, [numbers[i][h] + 1 for i in rows])
        np.testing.assert_array_equal(step.rewards, [10 * i + h for i in rows])
        np.testing.assert_array_equal(step.terminals, ends)
    assert data.horizon == 3
    assert [len(step.states) for step in read_transitions("minari:walk-v0", max_episodes=2).steps] == [2, 1, 1]


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_action_vectors_are_scaled_as_the_environment_scales_them_back(data_format):
    space = spaces.Box(np.array([[-2.0, 0.0]], np.float32), np.array([[2.0, 10.0]], np.float32))
    units = [np.array([[-1.0, 1.0], [0.25, 0.5], [0, 0]]), np.array([[1.0, -1.0]]), np.array([[0.5, 0], [-0.5, 0]])]
    convert, _ = action_converter(space)
    tuples([np.stack([convert(unit) for unit in episode]) for episode in units], space, data_format)
    data = read_transitions("minari:walk-v0")
    np.testing.assert_allclose(data.at(0).actions, [episode[0] for episode in units], atol=1e-6)
    np.testing.assert_allclose(data.at(1).actions, [units[0][1], units[2][1]], atol=1e-6)


def test_tuples_without_usable_actions_are_refused():
    write_minari(EPISODES, "states-v0")
    refused("minari:states-v0", "actions are vectors of no dimension", read=read_transitions)
    unbounded = spaces.Box(-np.inf, np.inf, (2,))
    tuples([np.zeros((n, 2), np.float32) for n in (3, 1, 2)], unbounded)
    refused("minari:walk-v0", "episode 0", "cannot use actions in Box", read=read_transitions)
    refused("minari:nowhere-v0", "not among the local data sets", read=read_transitions)


# Nothing but observations is needed for states


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


def test_minari_has_no_names_to_give():
    write_minari(EPISODES, "walk-v0")
    for options in ({"observations": "states"}, {"timesteps": "t"}):
        refused("minari:walk-v0", "leave out --observations and --timesteps", **options)
