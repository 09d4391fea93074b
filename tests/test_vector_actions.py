"""Canonical data whose actions are vectors: both layouts there and back, and every misfit refused in words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyrlo.core.errors import DataError
from hyrlo.data.transitions import TransitionDataset, Transitions


def trajectories(n=3, horizon=2, size=4, action_size=5, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (n, horizon + 1, size), (n, horizon, action_size), (n, horizon)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_either_layout_comes_back_bit_for_bit(tmp_path_factory, n, horizon, size, action_size, paired):
    path = tmp_path_factory.mktemp("vectors") / "data.npz"
    data = TransitionDataset.from_trajectories(*trajectories(n, horizon, size, action_size))
    if not paired:  # next states that nothing follows from
        steps = (step._replace(next_states=step.next_states + 1) for step in data.steps)
        data = TransitionDataset(tuple(steps))
    data.save(path)
    again = TransitionDataset.load(path)
    assert again.fingerprint() == data.fingerprint()
    assert (again.action_size, again.at(0).actions.dtype) == (action_size, np.float32)
    with np.load(path) as archive:
        assert ("timesteps" in archive) == (not paired and horizon > 1)


def test_a_vector_belongs_to_its_tuple():
    observations, actions, rewards = trajectories()
    data = TransitionDataset.from_trajectories(observations, actions, rewards)
    np.testing.assert_array_equal(data.at(1).actions, actions[:, 1])
    picked = data.subsample(2, seed=1).at(0)
    for state, action in zip(picked.states, picked.actions, strict=True):
        row = int(np.argmax((observations[:, 0] == state).all(axis=1)))
        np.testing.assert_array_equal(action, actions[row, 0])
    flat = observations[:, :-1].reshape(-1, 4), actions.reshape(-1, 5), rewards.reshape(-1)
    timesteps = np.tile([0, 1], 3)
    unpaired = TransitionDataset.from_unpaired(*flat, observations[:, 1:].reshape(-1, 4), timesteps)
    assert unpaired.fingerprint() == data.fingerprint()


def test_misfits_are_refused():
    observations, actions, rewards = trajectories()
    data = TransitionDataset.from_trajectories(observations, actions, rewards)
    small = TransitionDataset.from_trajectories(observations, np.clip(actions, -1, 1), rewards)
    assert small.for_horizon(1, 4, 0, 5).horizon == 1
    numbers = TransitionDataset.from_trajectories(observations, np.zeros((3, 2), int), rewards)
    for call, said in (
        (lambda: data.for_horizon(2, 4, 0, 6), "actions are vectors of 5 but the environment's are vectors of 6"),
        (lambda: data.for_horizon(2, 4, 10), "actions are vectors of 5 but the environment's are whole numbers"),
        (lambda: data.for_horizon(2, 4, 0, 5), "action is .* but action vectors are from -1 to 1; scale them"),
        (lambda: numbers.for_horizon(2, 4, 0, 5), "actions are whole numbers but the environment's are vectors of 5"),
    ):
        with pytest.raises(DataError, match=said):
            call()
    with pytest.raises(DataError, match=r"actions has shape \(3, 1, 5\)"):
        TransitionDataset.from_trajectories(observations, actions[:, :1], rewards)
    with pytest.raises(DataError, match=r"actions has shape \(3, 2, 5, 1\)"):
        TransitionDataset.from_trajectories(observations, actions[..., None], rewards)
    with pytest.raises(DataError, match="actions are vectors of no dimension"):
        TransitionDataset.from_trajectories(observations, actions[..., :0], rewards)
    actions[1, 1, 3] = np.nan
    with pytest.raises(DataError, match="timestep 1, tuple 1: action dimension 3 is nan"):
        TransitionDataset.from_trajectories(observations, actions, rewards)
    mixed = Transitions(*(array[:, 0] for array in trajectories(action_size=2)), observations[:, 1])
    with pytest.raises(DataError, match=r"timestep 1 has actions of shape \(3, 2\), not \(3, 5\)"):
        TransitionDataset((data.at(0), mixed))
