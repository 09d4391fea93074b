"""Canonical data: both layouts there and back, every bad tuple refused in words, and the lock's behaviour episodes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hyrlo.cli.main import main
from hyrlo.core.errors import DataError
from hyrlo.data.readers import read_states, read_transitions
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset, Transitions, has_actions_and_rewards
from hyrlo.envs import make
from hyrlo.envs.lock import BAD

values = st.floats(allow_nan=False, allow_infinity=False, width=32)
whole = st.integers(0, 2**31 - 1)
sizes = st.integers(1, 4)


@st.composite
def trajectories(draw):
    n, horizon, size = draw(sizes), draw(sizes), draw(sizes)
    return (
        draw(arrays(np.float32, (n, horizon + 1, size), elements=values)),
        draw(arrays(np.int32, (n, horizon), elements=whole)),
        draw(arrays(np.float32, (n, horizon), elements=values)),
    )


@st.composite
def step_tuples(draw):
    """Steps of any sizes, which need not belong together."""
    size = draw(sizes)

    def step(n: int) -> Transitions:
        states, next_states = (draw(arrays(np.float32, (n, size), elements=values)) for _ in range(2))
        actions, rewards = draw(arrays(np.int32, n, elements=whole)), draw(arrays(np.float32, n, elements=values))
        return Transitions(states, actions, rewards, next_states, draw(arrays(bool, n)))

    return tuple(step(n) for n in draw(st.lists(sizes, min_size=1, max_size=4)))


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("transitions") / "data.npz"


def some_step(n: int, size: int = 2, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    states, next_states = (rng.standard_normal((n, size)).astype(np.float32) for _ in range(2))
    return Transitions(states, rng.integers(5, size=n), rng.random(n), next_states, rng.random(n) < 0.5)


def with_ends(terminals, horizon=3):
    """Trajectories of two dimensions, (row, timestep), with a reward of 10 · row + timestep."""
    row, h = np.meshgrid(np.arange(len(terminals)), np.arange(horizon + 1), indexing="ij")
    observations, rewards = np.stack([row, h], axis=2).astype(float), (10.0 * row + h)[:, :-1]
    return {"observations": observations, "actions": h[:, :-1], "rewards": rewards, "terminals": np.array(terminals)}


def some_data(*counts: int) -> TransitionDataset:
    return TransitionDataset(tuple(some_step(n, seed=h) for h, n in enumerate(counts)))


def same(one: TransitionDataset, other: TransitionDataset) -> None:
    assert one.horizon == other.horizon
    for a, b in zip(one.steps, other.steps, strict=True):
        for x, y, dtype in zip(a, b, (np.float32, np.int32, np.float32, np.float32, bool), strict=True):
            assert x.dtype == y.dtype == dtype
            np.testing.assert_array_equal(x, y)
    assert one.fingerprint() == other.fingerprint()


def refused(build, *words: str) -> None:
    """`build()` is refused with one line that has all `words`."""
    with pytest.raises(DataError) as error:
        build()
    for word in words:
        assert word in str(error.value), str(error.value)
    assert "\n" not in str(error.value)


# There and back


@settings(max_examples=50, deadline=None)
@given(whole_episodes=trajectories())
def test_trajectories_survive_saving(path, whole_episodes):
    observations, actions, rewards = whole_episodes
    data = TransitionDataset.from_trajectories(*whole_episodes)
    assert (data.horizon, data.observation_size) == (actions.shape[1], observations.shape[2])
    data.save(path)
    with np.load(path, allow_pickle=False) as file:
        assert file.files == ["observations", "actions", "rewards"]
        np.testing.assert_array_equal(file["observations"], observations)
        np.testing.assert_array_equal(file["actions"], actions)
        np.testing.assert_array_equal(file["rewards"], rewards)
    same(TransitionDataset.load(path), data)
    states = ObservationDataset.from_trajectories(observations)
    assert data.observations().fingerprint() == read_states(path).fingerprint() == states.fingerprint()
    assert has_actions_and_rewards(path)


@settings(max_examples=50, deadline=None)
@given(steps=step_tuples())
def test_unpaired_tuples_survive_saving(path, steps):
    data = TransitionDataset(steps)
    data.save(path)
    same(TransitionDataset.load(path), data)
    states = read_states(path)
    assert states.horizon == data.horizon == len(steps)
    assert states.fingerprint() == data.observations().fingerprint()
    np.testing.assert_array_equal(states.at(data.horizon), steps[-1].next_states)


@settings(max_examples=30, deadline=None)
@given(steps=step_tuples(), seed=st.integers(0, 100))
def test_unpaired_tuples_may_come_in_any_order(steps, seed):
    """Their parts stay together: a tuple is found again by its place in the original order, kept as its reward."""
    counts = [len(step.states) for step in steps]
    timesteps = np.repeat(np.arange(len(steps)), counts)
    order = np.random.default_rng(seed).permutation(len(timesteps))
    *columns, terminals = (np.concatenate(column)[order] for column in zip(*steps, strict=True))
    columns[2] = order
    data = TransitionDataset.from_unpaired(*columns, timesteps[order], terminals=terminals)
    for step, original, start in zip(data.steps, steps, np.cumsum([0, *counts]), strict=False):
        place = step.rewards.astype(int) - start
        assert sorted(place) == list(range(len(place)))
        for found, expected in ((step.states, original.states), (step.next_states, original.next_states)):
            np.testing.assert_array_equal(found, expected[place])
        np.testing.assert_array_equal(step.actions, original.actions[place])
        np.testing.assert_array_equal(step.terminals, original.terminals[place])


def test_only_steps_that_follow_each_other_are_saved_as_trajectories(path):
    one, two = (some_step(4, seed=seed)._replace(terminals=np.zeros(4, bool)) for seed in (0, 1))
    follows, ends = two._replace(states=one.next_states), np.array([True, False, False, False])
    for steps, files in [
        ((one, two), 5),
        ((one, follows), 3),
        ((one, follows._replace(terminals=ends)), 4),
        ((one._replace(terminals=ends), follows), 6),  # what follows an end would not be read from trajectories
    ]:
        data = TransitionDataset(steps)
        data.save(path)
        with np.load(path) as file:
            assert len(file.files) == files
        same(TransitionDataset.load(path), data)
    signed = TransitionDataset((one._replace(next_states=0 * two.states), two._replace(states=-0.0 * abs(two.states))))
    signed.save(path)
    assert TransitionDataset.load(path).fingerprint() == signed.fingerprint()


def test_numbers_of_other_types_are_converted():
    step = Transitions(np.ones((2, 3)), np.array([1.0, 4.0]), np.array([True, False]), np.zeros((2, 3), int))
    kept = TransitionDataset((step,)).at(0)
    assert [x.dtype for x in kept] == [np.float32, np.int32, np.float32, np.float32, bool]
    np.testing.assert_array_equal(kept.actions, [1, 4])


def test_observations_of_many_axes_are_flattened(path):
    observations = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    actions, rewards = np.zeros((2, 2), int), np.zeros((2, 2))
    np.savez(path, observations=observations, actions=actions, rewards=rewards)
    data = TransitionDataset.load(path)
    assert (data.horizon, data.observation_size) == (2, 20)
    before, after = (observations[:, h : h + 2].reshape(4, 4, 5) for h in (0, 1))
    timesteps = np.tile(np.arange(2), 2)
    same(TransitionDataset.from_unpaired(before, actions.ravel(), rewards.ravel(), after, timesteps), data)


def test_saving_leaves_nothing_else_behind_and_the_old_file_if_it_fails(tmp_path, monkeypatch):
    target = tmp_path / "data.npz"
    some_data(3, 2).save(target)
    before = target.read_bytes()

    def half_written(file, **_):
        file.write(b"PK\x03\x04")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", half_written)
    with pytest.raises(OSError, match="disk full"):
        some_data(3, 2).save(target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["data.npz"]


# Episodes that end


def test_nothing_after_a_terminal_is_read_from_trajectories(path):
    """Rows end after steps 0, 2 and 1, and one never. What the arrays hold after an end does not matter."""
    arrays = with_ends([[1, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]])
    for row, end in ((0, 1), (2, 2)):
        arrays["observations"][row, end + 1 :] = np.nan
        arrays["rewards"][row, end:] = np.inf
        arrays["actions"][row, end:] = -7
    np.savez(path, **arrays)
    data = TransitionDataset.load(path)
    for step, rows, ends in zip(data.steps, ([0, 1, 2, 3], [1, 2, 3], [1, 3]), ([0], [2], [1]), strict=True):
        np.testing.assert_array_equal(step.states[:, 0], rows)
        np.testing.assert_array_equal(step.next_states[:, 0], rows)
        np.testing.assert_array_equal(step.rewards // 10, rows)
        np.testing.assert_array_equal(step.states[step.terminals, 0], ends)
    states = data.observations()
    assert [sorted(step[:, 0]) for step in states.steps] == [[0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3], [1, 3]]
    assert all((step[:, 1] == h).all() for h, step in enumerate(states.steps))
    assert read_states(path).fingerprint() == states.fingerprint()
    assert [len(step.states) for step in read_transitions(path, max_episodes=2).steps] == [2, 1, 1]
    assert [len(step) for step in read_states(path, max_episodes=1).steps] == [1, 1]
    data.save(path)
    same(TransitionDataset.load(path), data)
    assert read_states(path).fingerprint() == states.fingerprint()


def test_the_flag_is_added_and_later_steps_stay_in_the_absorbing_state():
    data = TransitionDataset.from_trajectories(**with_ends([[0, 1, 0], [1, 0, 0]]))
    assert data.horizon == 2
    flagged = data.with_ended(4)
    for step, plain in zip(flagged.steps, data.steps, strict=False):
        np.testing.assert_array_equal(step.states, np.pad(plain.states, ((0, 0), (0, 1))))
        np.testing.assert_array_equal(step.next_states, np.pad(plain.next_states, ((0, 0), (0, 1))))
        np.testing.assert_array_equal(step.terminals, plain.terminals)
    for step in flagged.steps[2:]:
        for found, expected in zip(step, ([[0, 0, 1]], [0], [0], [[0, 0, 1]], [True]), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert data.with_ended(1).horizon == 1
    running = TransitionDataset.from_trajectories(**with_ends([[0, 0, 1], [0, 0, 0]]))
    refused(lambda: running.with_ended(4).for_horizon(4, 3, 5), "timesteps 0 … 2 but the horizon is 4")


@pytest.mark.parametrize("shape", [(2, 2), (2, 3, 1), (3, 3)])
def test_terminals_that_do_not_fit(shape):
    arrays = with_ends(np.zeros((2, 3))) | {"terminals": np.zeros(shape)}
    refused(lambda: TransitionDataset.from_trajectories(**arrays), f"terminals has shape {shape}", "need (2, 3)")


# As algorithms use them


def test_for_horizon_takes_the_first_steps_and_checks_the_environment():
    data = some_data(4, 3, 5)
    same(data.for_horizon(3, 2, 5), data)
    same(data.for_horizon(2, 2, 5), TransitionDataset(data.steps[:2]))
    refused(lambda: data.for_horizon(4, 2, 5), "timesteps 0 … 2 but the horizon is 4", "--horizon 3")
    refused(lambda: data.for_horizon(3, 16, 5), "2 dimensions", "16")
    beyond = data.steps[1]._replace(actions=np.array([0, 7, 8]))
    other = TransitionDataset((data.steps[0], beyond))
    refused(lambda: other.for_horizon(2, 2, 7), "timestep 1, tuple 1: action is 7", "0 … 6")
    assert other.for_horizon(1, 2, 7).horizon == 1
    assert other.for_horizon(2, 2, 9).horizon == 2


def test_subsample_is_deterministic_and_keeps_tuples_whole():
    data = some_data(50, 4, 30)
    some, again, others = data.subsample(10, 1), data.subsample(10, 1), data.subsample(10, 2)
    same(some, again)
    assert [len(step.states) for step in some.steps] == [10, 4, 10]
    assert some.fingerprint() != others.fingerprint()
    for picked, everything in zip(some.steps, data.steps, strict=True):
        rows = [np.flatnonzero((everything.states == state).all(axis=1)).item() for state in picked.states]
        assert len(set(rows)) == len(rows)
        for found, expected in zip(picked, everything, strict=True):
            np.testing.assert_array_equal(found, expected[rows])
    same(data.subsample(50, 1), data)


@pytest.mark.parametrize("field", Transitions._fields)
def test_fingerprint_changes_with_any_part(field):
    data = some_data(3, 2)
    changed = getattr(data.at(1), field).copy()
    changed.flat[1] = not changed.flat[1] if field == "terminals" else changed.flat[1] + 1
    other = TransitionDataset((data.at(0), data.at(1)._replace(**{field: changed})))
    assert other.fingerprint() != data.fingerprint() == some_data(3, 2).fingerprint()


# What is refused


@settings(max_examples=50, deadline=None)
@given(
    place=st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)),
    field=st.sampled_from(["states", "next_states", "rewards"]),
    bad=st.sampled_from([np.nan, np.inf, -np.inf, 1e300]),
)
def test_values_that_are_not_finite_are_named_with_their_place(place, field, bad):
    """1e300 is finite, but not in single precision."""
    h, row, column = place
    steps = list(some_data(4, 4, 4).steps)
    array = getattr(steps[h], field).astype(float)
    array[(row, column)[: array.ndim]] = bad
    steps[h] = steps[h]._replace(**{field: array})
    where = {
        "states": f"state dimension {column}",
        "next_states": f"next state dimension {column}",
        "rewards": "reward",
    }
    refused(lambda: TransitionDataset(tuple(steps)), f"timestep {h}, tuple {row}: {where[field]} is", "finite")
    assert TransitionDataset(tuple(steps), check_finite=False).first_non_finite() is not None


@settings(max_examples=50, deadline=None)
@given(
    h=st.integers(0, 2),
    row=st.integers(0, 3),
    bad=st.one_of(
        st.integers(-(2**31), -1), st.integers(2**31, 2**40), st.sampled_from([0.5, -1.0, 1e-3, np.nan, np.inf])
    ),
)
def test_actions_that_are_not_whole_numbers_from_0_are_named_with_their_place(h, row, bad):
    steps = list(some_data(4, 4, 4).steps)
    actions = steps[h].actions.astype(type(bad))
    actions[row] = bad
    steps[h] = steps[h]._replace(actions=actions)
    refused(lambda: TransitionDataset(tuple(steps)), f"timestep {h}, tuple {row}: action is {bad}", "whole numbers")


def test_steps_that_do_not_fit():
    step = some_step(3)
    refused(lambda: TransitionDataset(()), "no transitions")
    refused(lambda: some_data(3, 0, 2), "timestep 1 has no transitions", "horizon is 3", "0 … 2")
    for field in ("actions", "rewards", "next_states", "terminals"):
        short = step._replace(**{field: getattr(step, field)[:-1]})
        refused(lambda short=short: TransitionDataset((step, short)), f"timestep 1 has {field} of shape (2", "not (3")
    wide = some_step(3, size=4)
    refused(lambda: TransitionDataset((step, wide)), "timestep 1 has states of shape (3, 4), not (3, 2)")
    refused(lambda: TransitionDataset((some_step(3, size=0),)), "at least one dimension")
    text = step._replace(actions=np.array(["a", "b", "c"]))
    refused(lambda: TransitionDataset((text,), "log.npz"), "log.npz", "actions", "<U1", "numeric")


@pytest.mark.parametrize(
    ("observations", "actions", "rewards", "words"),
    [
        ((5, 4, 2), (5, 4), (5, 3), ["actions has shape (5, 4)", "need (5, 3)"]),
        ((5, 4, 2), (5, 3), (4, 3), ["rewards has shape (4, 3)", "need (5, 3)"]),
        ((5, 4, 2), (5, 3, 6, 1), (5, 3), ["actions has shape (5, 3, 6, 1)"]),
        ((5, 4), (5, 3), (5, 3), ["(N, H+1, *obs)"]),
        ((5, 1, 2), (5, 0), (5, 0), ["timesteps 0 and 1"]),
        ((0, 4, 2), (0, 3), (0, 3), ["timestep 0 has no states"]),
    ],
)
def test_trajectories_that_do_not_fit(path, observations, actions, rewards, words):
    np.savez(path, observations=np.zeros(observations), actions=np.zeros(actions, int), rewards=np.zeros(rewards))
    refused(lambda: TransitionDataset.load(path), str(path), *words)


UNPAIRED = {
    "observations": np.zeros((4, 2)),
    "actions": np.zeros(4, int),
    "rewards": np.zeros(4),
    "next_observations": np.zeros((4, 2)),
    "timesteps": np.array([0, 1, 1, 2]),
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"timesteps": np.array([0, 0, 2, 2])}, ["timestep 1 has no transitions", "horizon is 3"]),
        ({"timesteps": np.array([0, 1, 2, 10**12])}, ["timestep 3 has no transitions", f"horizon is {10**12 + 1}"]),
        ({"timesteps": np.array([0, 1, -3, 2])}, ["timesteps[2] is -3"]),
        ({"timesteps": np.zeros(4)}, ["timesteps", "float64", "integer"]),
        ({"timesteps": np.zeros(3, int)}, ["timesteps (3,)", "(M, *obs) and (M,)"]),
        ({"actions": np.zeros((4, 6, 1))}, ["actions (4, 6, 1)", "do not fit"]),
        ({"next_observations": np.zeros((4, 3))}, ["next_observations (4, 3)", "do not fit"]),
        ({"terminals": np.zeros(3, bool)}, ["terminals (3,)", "do not fit"]),
        ({"terminals": np.array([0, 0, 2, 0])}, ["timestep 1, tuple 1: terminal is 2.0", "true or false"]),
        ({"terminals": np.array(["no"] * 4)}, ["terminals has dtype <U2"]),
        ({"rewards": np.array([0, 0, np.nan, 0])}, ["timestep 1, tuple 1: reward is nan"]),
        ({name: array[:0] for name, array in UNPAIRED.items()}, ["holds no transitions"]),
    ],
)
def test_unpaired_files_that_do_not_fit(path, changes, words):
    np.savez(path, **UNPAIRED | changes)
    refused(lambda: TransitionDataset.load(path), str(path), *words)


@pytest.mark.parametrize("missing", UNPAIRED)
def test_arrays_that_are_missing_are_named(path, missing):
    np.savez(path, **{name: array for name, array in UNPAIRED.items() if name != missing})
    refused(lambda: TransitionDataset.load(path), str(path), f"no array named {missing}")


def test_files_that_are_no_transitions(path):
    refused(lambda: TransitionDataset.load(path.parent / "none.npz"), "no such file")
    np.savez(path, observations=np.zeros((4, 3, 2)))
    refused(lambda: TransitionDataset.load(path), "no array named actions", "observations, actions, rewards")
    np.savez(path, **UNPAIRED | {"actions": np.array([0, None, 1, 2], dtype=object)})
    refused(lambda: TransitionDataset.load(path), "object arrays")
    path.write_bytes(path.read_bytes()[:-10])
    refused(lambda: TransitionDataset.load(path), "truncated")


def test_states_load_whether_or_not_there_is_more(path):
    states = ObservationDataset.from_trajectories(np.random.default_rng(0).random((3, 4, 2)))
    states.save(path)
    assert read_states(path).fingerprint() == states.fingerprint()
    assert not has_actions_and_rewards(path)
    one_step = some_data(3)
    np.savez(path, **dict(zip(UNPAIRED, (*one_step.at(0)[:4], np.zeros(3, int)), strict=True)))
    assert read_states(path).fingerprint() == one_step.observations().fingerprint()


# The lock's behaviour


@pytest.mark.parametrize(("horizon", "epsilon"), [(1, None), (5, None), (5, 0.5)])
def test_behaviour_transitions_have_the_states_of_behaviour_data(horizon, epsilon):
    world = make("lock", horizon=horizon)
    data = world.behaviour_transitions(3, 200, epsilon)
    assert data.observations().fingerprint() == world.behaviour_data(3, 200, epsilon).fingerprint()
    spec = world.spec
    same(data.for_horizon(spec.horizon, spec.observation_size, spec.actions), data)
    assert world.behaviour_transitions(4, 200, epsilon).fingerprint() != data.fingerprint()


def test_behaviour_transitions_are_what_the_lock_does():
    n, horizon = 3000, 5
    world = make("lock", horizon=horizon)
    data = world.behaviour_transitions(0, n, epsilon=0.5)
    correct = np.asarray(world.env.correct)
    for h, step in enumerate(data.steps):
        latent, following = (np.asarray(world.env.decode(x)) for x in (step.states, step.next_states))
        good = latent != BAD
        right = good & (step.actions == correct[h, np.minimum(latent, 1)])
        np.testing.assert_array_equal(following != BAD, right)
        np.testing.assert_array_equal(step.rewards == 1, right & (h == horizon - 1))
        paid = step.rewards == np.float32(0.1)
        assert not (paid & ~(good & ~right)).any()
        assert abs(paid[good & ~right].mean() - 0.5) < 2.5 / (good & ~right).sum() ** 0.5
        assert abs(right[good].mean() - 0.55) < 2.5 / good.sum() ** 0.5


def test_the_command_line_collects_and_describes_transitions(tmp_path, capsys):
    path, states = tmp_path / "transitions.npz", tmp_path / "states.npz"
    collect = ["data", "collect", "lock", "--horizon", "3", "--episodes", "60", "--seed", "1"]
    assert main([*collect, "--transitions", "--out", str(path)]) == 0
    assert "180 transitions" in capsys.readouterr().out
    assert main([*collect, "--out", str(states)]) == 0
    with np.load(path, allow_pickle=False) as archive:
        shapes = {name: archive[name].shape for name in archive.files}
    assert shapes == {"observations": (60, 4, 8), "actions": (60, 3), "rewards": (60, 3)}
    assert ObservationDataset.load(path).fingerprint() == ObservationDataset.load(states).fingerprint()
    same(TransitionDataset.load(path), make("lock", horizon=3).behaviour_transitions(1, 60))
    capsys.readouterr()
    assert main(["data", "info", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "horizon 3" in text
    assert "has actions and rewards too" in text
    assert main(["data", "info", str(states)]) == 0
    assert "actions" not in capsys.readouterr().out


def test_info_counts_the_last_states_of_unpaired_transitions(path, capsys):
    endless = [step._replace(terminals=np.zeros(len(step.states), bool)) for step in some_data(4, 2, 3).steps]
    ending = [step._replace(terminals=np.ones(len(step.states), bool)) for step in endless]
    for steps, states in ((endless, 12), (ending, 18)):  # 4 + 2 episodes end before the last step
        TransitionDataset(tuple(steps)).save(path)
        assert main(["data", "info", str(path)]) == 0
        assert f"horizon 3, 2 dimensions, {states} states" in " ".join(capsys.readouterr().out.split())
