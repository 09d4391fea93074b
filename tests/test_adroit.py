"""Experts of Adroit tasks and their logs, and the runs that learn from them."""

import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

import hyrlo
from hyrlo.core.keys import Keys
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs.gym.model import episode_seeds
from hyrlo.envs.gym.wrappers import Start
from hyrlo.envs.hammer import NAME
from hyrlo.experiments import adroit
from hyrlo.experiments.adroit_expert import (
    ARRAYS,
    VARIABLE,
    expert_file,
    expert_states,
    expert_transitions,
    load_expert,
)
from hyrlo.experiments.adroit_logs import main as record
from hyrlo.experiments.recipes import seeds_of
from hyrlo.experiments.runner import Finished
from hyrlo.foobar import MOST_HORIZON, STEPS
from tests.walks import KEY, message

HAMMER, PEN = (46, 26), (45, 24)
"""Sizes of states and actions."""


def weights(path, states, actions, **changed):
    """An expert of random weights."""
    rng = np.random.default_rng(0)
    shapes = [(8, states), (8,), (8, 8), (8,), (actions, 8), (actions,), (actions,), (states,), (states,)]
    shapes += [(actions,), (actions,)]
    arrays = {name: rng.uniform(0.5, 1.5, shape) for name, shape in zip(ARRAYS, shapes, strict=True)}
    arrays = {name: array for name, array in {**arrays, **changed}.items() if array is not None}
    np.savez(path, **arrays)
    return arrays


@pytest.fixture(scope="module")
def hammer():
    return hyrlo.make(NAME, 3, num_envs=4)


@pytest.fixture(scope="module")
def pen():
    return hyrlo.make(adroit.TASKS["pen"].env, 3, num_envs=4)


def test_an_expert_is_the_network_of_its_weights(tmp_path, hammer):
    path, states = tmp_path / "expert.npz", np.random.default_rng(1).normal(size=(3, 46))
    w = weights(path, *HAMMER, log_std=np.full(26, -2.0))
    x = (states - w["in_shift"]) / (w["in_scale"] + 1e-8)
    x = np.tanh(np.tanh(x @ w["W0"].T + w["b0"]) @ w["W1"].T + w["b1"]) @ w["W2"].T + w["b2"]
    mean = x * w["out_scale"] + w["out_shift"]
    np.testing.assert_allclose(load_expert(path, hammer, noise=False).act(KEY, states, 0), mean, rtol=1e-4)
    expert, keys = load_expert(path, hammer), jax.random.split(KEY, 400)
    noise = np.asarray(jax.vmap(lambda key: expert.act(key, states, 0))(keys)) - mean
    assert np.std(noise) == pytest.approx(np.exp(-2.0), rel=0.03)
    assert abs(noise.mean()) < 0.005
    for changed, said in (
        ({"b1": None}, "has no array named b1"),
        ({"W2": np.zeros((3, 8))}, "W2 has shape (3, 8), not (26, 8)"),
        ({"in_scale": np.full(46, np.nan)}, "in_scale[0] is not finite"),
    ):
        weights(path, *HAMMER, **changed)
        assert said in message(lambda: load_expert(path, hammer))


def test_an_expert_ignores_the_flag_and_is_of_one_task(tmp_path, hammer, pen):
    path = tmp_path / "expert.npz"
    weights(path, *PEN)
    expert, states = load_expert(path, pen), np.random.default_rng(1).normal(size=(3, 45))
    assert pen.spec.observation_size == 46
    for flag in (0.0, 1.0):
        flagged = np.pad(states, ((0, 0), (0, 1)), constant_values=flag)
        np.testing.assert_array_equal(expert.act(KEY, flagged, 0), expert.act(KEY, states, 0))
    said = message(lambda: load_expert(path, hammer))
    assert said == f"{path}: W0 has shape (8, 45), not (8, 46); give weights for hammer-binary"
    weights(path, *HAMMER)
    assert "W0 has shape (8, 46), not (8, 45); give weights for gym:Adroit" in message(lambda: load_expert(path, pen))
    weights(path, 45, 26)
    assert "W2 has shape (26, 8), not (24, 8)" in message(lambda: load_expert(path, pen))


def test_experts_are_found_by_task(tmp_path, monkeypatch):
    assert expert_file("pen", tmp_path) == tmp_path / "pen_expert_policy.npz"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "experts"))
    assert expert_file("relocate") == tmp_path / "experts" / "relocate_expert_policy.npz"
    monkeypatch.delenv(VARIABLE)
    assert "set HYRLO_ADROIT_EXPERTS, or give --experts" in message(lambda: expert_file("hammer"))


def test_its_logs_are_states_or_transitions_of_the_same_episodes(tmp_path, hammer):
    weights(tmp_path / "hammer_expert_policy.npz", *HAMMER)
    expert = load_expert(expert_file("hammer", tmp_path), hammer)
    states, transitions = expert_states(hammer, expert, 6, seed=1), expert_transitions(hammer, expert, 6, seed=1)
    assert states.fingerprint() == transitions.observations().fingerprint()
    assert (transitions.horizon, transitions.action_size) == (3, 26)
    played = transitions.at(0).actions
    assert np.abs(played).max() == 1.0  # clipped, as these weights leave the box
    vector = hammer.vector()
    vector.reset(episode_seeds(jax.random.split(jax.random.fold_in(Keys.of_seed(1).data, 0))[0], 4), Start(4))
    np.testing.assert_array_equal(vector.step(played[:4], 0)[0], transitions.at(0).next_states[:4])
    assert set(transitions.at(2).rewards.tolist()) == {-1.0}
    record("hammer", tmp_path / "t.npz", tmp_path, episodes=2, horizon=2, transitions=True)
    assert TransitionDataset.load(tmp_path / "t.npz").at(1).actions.shape == (2, 26)


def test_logs_of_gym_worlds_have_no_flag(tmp_path, pen):
    weights(tmp_path / "expert.npz", *PEN)
    expert = load_expert(tmp_path / "expert.npz", pen)
    states, transitions = expert_states(pen, expert, 5, seed=1), expert_transitions(pen, expert, 5, seed=1)
    assert [step.shape for step in states.steps] == [(5, 45)] * 4
    assert states.fingerprint() == transitions.observations().fingerprint()
    assert not any(step.terminals.any() for step in transitions.steps)
    assert pen.prepare(states).observation_size == pen.prepare_transitions(transitions).observation_size == 46
    assert not pen.prepare(states).at(3)[:, -1].any()


@pytest.mark.slow
def test_logs_are_refused_in_one_line_before_anything_is_played(tmp_path):
    """As a script: no warning of Python's either."""
    command = [sys.executable, "-m", "hyrlo.experiments.adroit_logs", "--task", "pen", "--out"]
    for out in (tmp_path, tmp_path / "no" / "states.npz"):
        told = subprocess.run([*command, str(out)], capture_output=True, text=True)
        assert told.returncode == 2
        assert len(told.stderr.splitlines()) == 1
        assert told.stderr.startswith(f"error: {out}: ")


def test_the_default_is_compared_at_equal_environment_steps():
    specs = adroit.runs("paper", seeds_of("paper", 6))
    for name, task in adroit.TASKS.items():
        mine = {s.group.removesuffix(f"-{name}"): s.config for s in specs if s.group.endswith(f"-{name}")}
        assert set(mine) == set(task.methods)
        assert mine["foobar"] == hyrlo.config("foobar", world=hyrlo.make(task.env, task.horizon))  # no options
        assert task.horizon <= MOST_HORIZON
        for other in (mine["rlpd"], mine["sac"]):
            assert other.steps + other.race_episodes * task.horizon == STEPS * task.horizon
        assert mine["rlpd"].utd == 0.5
        seeds = [s.seed for s in specs if s.group == f"foobar-{name}"]
        assert len(seeds) == (6 if name == "hammer" else 3)
    units = [s for s in specs if s.group == "units-hammer"]
    assert units[0].options == {"reward": "scaled"}
    assert units[0].config == specs[0].config


def test_a_row_says_how_many_seeds_are_as_good_as_the_data():
    spec = adroit.spec_of("sac", "hammer", 0, "smoke")
    result = {"success_rate": 0.9, "steps": 100, "wall_seconds": 60.0, "warnings": []}
    runs = [
        Finished(replace(spec, seed=seed), result | {"success_rate": rate, "warnings": warnings}, [])
        for seed, (rate, warnings) in enumerate([(0.9, []), (0.5, ["lost at step 7"]), (0.8, [])])
    ]
    row = adroit.line(adroit.Result("hammer", {"sac": runs}, 0.8, {}, []), "sac")
    assert row[:6] == ["hammer", "SAC from scratch", "nothing", "3", "0.8", ""]
    assert row[7:9] == ["0.5", "2 of 3"]
    assert row[-1] == "1"
