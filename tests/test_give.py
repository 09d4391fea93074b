"""What users give: episodes, data frames, Minari data sets, MultiDiscrete actions; listeners and notebooks."""

import sys
import types
from collections import OrderedDict

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from rich.console import Console

import hyrlo
from hyrlo.core.policies import Uniform
from hyrlo.data.readers import as_states, as_transitions
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs.gym.wrappers import action_converter, combinations
from hyrlo.runs.progress import Progress
from hyrlo.runs.trackers import Mlflow, WeightsAndBiases
from tests.gym_envs import Spaces, Walk
from tests.test_agent import message

RNG = np.random.default_rng(0)
EPISODES = [RNG.normal(size=(length, 2)) for length in (5, 3, 4, 5)]


class Frame:
    """A data frame as pandas has it, as far as it is used."""

    def __init__(self, columns):
        self.data = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return self.data[name]

    def to_numpy(self):
        return np.column_stack(list(self.data.values()))


def frame(**columns):
    return Frame({"x": [0.5, 1, 2, 3], "timesteps": [1, 0, 1, 0], "y": [9, 8, 7, 6], **columns})


# Data


def test_episodes_of_different_lengths_have_ended():
    data = as_states(EPISODES)
    assert [len(step) for step in data.steps] == [4, 4, 4, 3, 2]
    np.testing.assert_array_equal(data.at(3), np.float32([EPISODES[0][3], EPISODES[2][3], EPISODES[3][3]]))
    assert data.with_ended(5).at(3)[:, -1].tolist() == [0, 0, 0, 1]
    assert as_states(tuple(episode.tolist() for episode in EPISODES)).fingerprint() == data.fingerprint()


def test_a_list_of_equal_lengths_is_the_array():
    whole = RNG.normal(size=(3, 4, 2))
    assert as_states(list(whole)).fingerprint() == as_states(whole).fingerprint()
    pictures = RNG.normal(size=(3, 4, 2, 5))
    assert as_states(list(pictures)).fingerprint() == as_states(pictures).fingerprint()


def test_a_data_frame_is_a_table(tmp_path):
    file = tmp_path / "states.csv"
    file.write_text("x,timesteps,y\n0.5,1,9\n1,0,8\n2,1,7\n3,0,6\n")
    assert as_states(frame()).fingerprint() == hyrlo.read_states(file).fingerprint()
    pandas = pytest.importorskip("pandas")
    assert as_states(pandas.DataFrame(frame().data)).fingerprint() == hyrlo.read_states(file).fingerprint()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "is an empty list"),
        (
            [EPISODES[0], EPISODES[0][:, :1]],
            "episode 1 has shape (5, 1); give arrays (T+1, *obs), with the obs of episode 0",
        ),
        ([EPISODES[0], np.zeros((0, 2))], "episode 1 has shape (0, 2)"),
        ([[0.0, 1.0]], "episode 0 has shape (2,)"),
        ([["a"]], "episode 0 is no array of numbers"),
        ([np.full((3, 2), np.nan)], "is nan"),
        (Frame({"x": [1.0], "time": [0]}), "has the columns x, time; give timesteps"),
        (Frame({"timesteps": [0, 1]}), "has the columns timesteps"),
        (frame(name=["a", "b", "c", "d"]), "column name holds"),
        (frame(timesteps=[0, 1.5, 0, 1]), "row 1, column timesteps is 1.5"),
        (frame(timesteps=[0, 1, 0, np.nan]), "row 3, column timesteps is nan"),
        (frame(timesteps=[0, 1, 0, -1]), "timesteps"),
        (frame(x=[0, 1, np.inf, 2]), "inf"),
        ({"x": 1}, "data: got a dict; give a path"),
    ],
)
def test_data_that_cannot_be_used_are_one_line(given, said):
    assert said in message(as_states, given)


def test_training_takes_a_list_of_episodes(monkeypatch):
    seen = []

    def fail(model, source, config, key, run):
        seen.append(source)
        return model.spec.uniform()

    monkeypatch.setattr("hyrlo.forward.fail.fail", fail)
    world = hyrlo.make(lambda: Walk(ends=4), 4, num_envs=2)
    hyrlo.train("fail", world, EPISODES, eval_episodes=2)
    assert [int(step[:, -1].sum()) for step in seen[0].steps] == [0, 0, 0, 1, 2]  # ended episodes


# Minari


@pytest.fixture
def minari_data(minari_home):
    """A local data set of MultiDiscrete actions and dict observations whose keys are not in order."""
    minari = pytest.importorskip("minari")
    inner = Spaces("dict", "many")
    inner.observation_space = spaces.Dict(OrderedDict(reversed(list(inner.observation_space.items()))))
    env = minari.DataCollector(gymnasium.wrappers.TimeLimit(inner, 3), data_format="hdf5")
    env.action_space.seed(0)
    for episode in range(4):
        env.reset(seed=episode)
        for _ in range(3):
            env.step(env.action_space.sample())
    env.create_dataset("spaces-v0", algorithm_name="any")
    return minari.load_dataset("spaces-v0")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_minari_data_set_is_read_as_by_its_name(minari_data):
    named = hyrlo.read_states("minari:spaces-v0")
    assert as_states(minari_data).fingerprint() == named.fingerprint()
    part = as_states(minari_data.filter_episodes(lambda episode: episode.id in (1, 3)))
    np.testing.assert_array_equal(part.at(2), named.at(2)[[1, 3]])
    tuples = as_transitions(minari_data)
    assert isinstance(tuples, TransitionDataset)
    assert tuples.fingerprint() == hyrlo.read_transitions("minari:spaces-v0").fingerprint()
    assert as_transitions(tuples) is tuples


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_actions_of_a_data_set_are_those_of_the_environment(minari_data):
    convert, space = action_converter(minari_data.action_space)
    taken = [episode.actions for episode in minari_data.iterate_episodes()]
    for h, step in enumerate(as_transitions(minari_data).steps):
        assert int(step.actions.max()) < space.n
        np.testing.assert_array_equal(convert(np.asarray(step.actions)), np.stack([actions[h] for actions in taken]))


# MultiDiscrete actions


def test_a_multi_discrete_action_is_one_of_all_combinations():
    space = spaces.MultiDiscrete([[2, 3], [1, 2]], start=[[0, 1], [5, 0]])
    convert, discrete = action_converter(space)
    actions = [convert(action) for action in range(discrete.n)]
    assert discrete.n == len({tuple(action.ravel()) for action in actions}) == 12
    assert all(space.contains(action) for action in actions)
    np.testing.assert_array_equal(convert(np.array([3, 0])), np.stack([actions[3], actions[0]]))


def test_an_environment_with_multi_discrete_actions_is_played():
    world = hyrlo.make(lambda: Spaces("discrete", "many"), 20, num_envs=2)
    assert (world.spec.actions, world.spec.action_size) == (6, 0)
    batch = world.trace_model().record(jax.random.key(0), Uniform(6), 30, tuple(range(20)))
    rewards = {int(a): float(r) for a, r in zip(np.ravel(batch.actions), np.ravel(batch.rewards), strict=True)}
    assert rewards == {0: 0, 1: 1, 2: 2, 3: 1, 4: 2, 5: 3}  # the reward is the sum of the choices


def test_too_many_combinations_are_one_line():
    assert len(combinations(spaces.MultiDiscrete([10, 10, 10]))) == 1000
    assert "it has 1,001 combinations" in message(action_converter, spaces.MultiDiscrete([7, 11, 13]))
    assert "it has 10,000,000,000" in message(action_converter, spaces.MultiDiscrete([10] * 10))


# Environments


def test_an_environment_object_a_function_and_a_name_are_the_same_world():
    given = ("gym:CartPole-v1", gymnasium.make("CartPole-v1"), lambda: gymnasium.make("CartPole-v1"))
    returns = [
        np.asarray(hyrlo.make(one, 10).trace_model().rollout(jax.random.key(0), Uniform(2), 4).returns) for one in given
    ]
    assert all(np.array_equal(returns[0], other) for other in returns)


# Listeners


def line(phase, h, **more):
    return {"phase": phase, "horizon": h, "steps": 100 * h, "success_rate": None, **more}


LINES = [line("forward", 1, mmd=0.5), line("forward", 2, mmd=0.25), line("backward", 3, loss=1.0)]


def check_listener(tracker):
    """As a resumed run uses it: lines of an earlier session, twice, and a new one."""
    tracker.replay(LINES[:1])
    tracker.replay(LINES[:2])
    tracker(LINES[2])
    return tracker


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = check_listener(WeightsAndBiases(project="test", mode="offline", dir=str(tmp_path)))
    summary = dict(tracker.run.summary)
    tracker.run.finish()
    assert (summary["forward/mmd"], summary["backward/loss"], summary["steps"]) == (0.25, 1.0, 300)
    assert not any("success" in name for name in summary)
    assert list(tmp_path.rglob("*.wandb"))


def test_mlflow_offline(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    tracker = check_listener(Mlflow(experiment="test", run_name="first"))
    history = tracker.client.get_metric_history(tracker.run_id, "forward/mmd")
    assert sorted((entry.step, entry.value) for entry in history) == [(100, 0.5), (200, 0.25)]
    assert tracker.client.get_run(tracker.run_id).data.metrics["backward/loss"] == 1.0


def test_each_line_is_sent_once_and_missing_libraries_are_one_line(monkeypatch):
    logged = []
    fake = types.SimpleNamespace(init=lambda **given: types.SimpleNamespace(log=logged.append, given=given))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    assert check_listener(WeightsAndBiases(project="p")).run.given == {"project": "p"}
    assert logged[0] == {"forward/horizon": 1, "forward/steps": 100, "forward/mmd": 0.5, "steps": 100}
    assert [entry["steps"] for entry in logged] == [100, 200, 300]
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "pip install 'hyrlo[wandb]'" in message(WeightsAndBiases)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert "pip install 'hyrlo[mlflow]'" in message(Mlflow)


# Notebooks


def bars(monkeypatch, widgets):
    """What is shown for a phase of two steps in a notebook: what is displayed, and what is printed."""
    shown = []

    class Output:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def clear_output(self, wait=False):
            pass

    module = types.ModuleType("ipywidgets")
    module.Output, module.__spec__ = Output, types.SimpleNamespace()
    display = types.ModuleType("IPython.display")
    display.display = lambda what: shown.append(getattr(what, "text", what))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    if widgets:
        monkeypatch.setitem(sys.modules, "ipywidgets", module)
    progress = Progress(console=Console(force_jupyter=True, stderr=True))
    with progress.phase("forward", 2, 0) as bar:
        bar.note("one")
        bar.note("two")
    return shown


def test_bars_are_shown_in_notebooks(monkeypatch, capsys):
    shown = bars(monkeypatch, widgets=True)
    assert shown
    assert "forward 2/2" not in capsys.readouterr().err


def test_without_widgets_a_notebook_shows_lines(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not bars(monkeypatch, widgets=False)
    assert "forward 2/2  two" in capsys.readouterr().err
