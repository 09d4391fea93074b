"""State data: both layouts there and back, and every bad file refused in words."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hyrlo.core.errors import DataError
from hyrlo.data.states import ObservationDataset, describe_steps

values = st.floats(allow_nan=False, allow_infinity=False, width=32)
sizes = st.integers(1, 4)


@st.composite
def trajectories(draw):
    shape = (draw(sizes), draw(st.integers(2, 5)), draw(sizes))
    return draw(arrays(np.float32, shape, elements=values))


@st.composite
def step_tuples(draw):
    """Steps of any sizes, at least two of them different."""
    size, counts = draw(sizes), draw(st.lists(sizes, min_size=2, max_size=5).filter(lambda c: len(set(c)) > 1))
    return tuple(draw(arrays(np.float32, (n, size), elements=values)) for n in counts)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data") / "states.npz"


def same_steps(one: ObservationDataset, other: ObservationDataset) -> None:
    assert one.horizon == other.horizon
    for a, b in zip(one.steps, other.steps, strict=True):
        assert a.dtype == b.dtype == np.float32
        np.testing.assert_array_equal(a, b)


def unequal() -> ObservationDataset:
    rng = np.random.default_rng(0)
    return ObservationDataset(tuple(rng.standard_normal((n, 3)).astype(np.float32) for n in (7, 2, 5, 1)))


def refused(path: Path, *words: str, **options) -> str:
    """The message with which loading `path` is refused; it names the file and has all `words`, on one line."""
    with pytest.raises(DataError) as error:
        ObservationDataset.load(path, **options)
    message = str(error.value)
    for word in (str(path), *words):
        assert word in message, message
    assert "\n" not in message
    return message


# There and back


@settings(max_examples=50, deadline=None)
@given(observations=trajectories())
def test_trajectories_survive_saving(path, observations):
    data = ObservationDataset.from_trajectories(observations)
    data.save(path)
    with np.load(path) as file:
        assert file.files == ["observations"]
        np.testing.assert_array_equal(file["observations"], observations)
    same_steps(ObservationDataset.load(path), data)


@settings(max_examples=50, deadline=None)
@given(steps=step_tuples())
def test_unpaired_states_survive_saving(path, steps):
    data = ObservationDataset(steps)
    data.save(path)
    with np.load(path) as file:
        assert sorted(file.files) == ["observations", "timesteps"]
        assert file["timesteps"].dtype.kind == "i"
    loaded = ObservationDataset.load(path)
    same_steps(loaded, data)
    assert loaded.fingerprint() == data.fingerprint()


@settings(max_examples=30, deadline=None)
@given(steps=step_tuples(), seed=st.integers(0, 100))
def test_unpaired_states_may_come_in_any_order(steps, seed):
    timesteps = np.repeat(np.arange(len(steps)), [len(s) for s in steps])
    order = np.random.default_rng(seed).permutation(len(timesteps))
    data = ObservationDataset.from_unpaired(np.concatenate(steps)[order], timesteps[order])
    for found, expected in zip(data.steps, steps, strict=True):
        np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(expected, axis=0))


def test_observations_of_many_axes_are_flattened(path):
    observations = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    np.savez(path, observations=observations)
    data = ObservationDataset.load(path)
    assert (data.horizon, data.observation_size) == (2, 20)
    np.testing.assert_array_equal(data.at(1)[1], observations[1, 1].ravel())
    unpaired = ObservationDataset.from_unpaired(observations.reshape(6, 4, 5), np.tile(np.arange(3), 2))
    same_steps(unpaired, data)


def test_arrays_may_have_other_names(path):
    np.savez(path, states=np.ones((4, 2)), t=np.array([0, 1, 1, 2], np.uint8))
    data = ObservationDataset.load(path, observations="states", timesteps="t")
    assert [len(s) for s in data.steps] == [1, 2, 1]
    refused(path, "no array named observations", "states", "t")


def test_whole_numbers_and_doubles_become_single_precision(path):
    for dtype in (np.int64, np.float64, np.float16, np.uint8, bool):
        np.savez(path, observations=np.ones((2, 3, 4), dtype))
        data = ObservationDataset.load(path)
        assert all(s.dtype == np.float32 and (s == 1).all() for s in data.steps)


# Steps as algorithms use them


def test_padded_weights_leave_the_filling_out():
    data = unequal()
    for h in range(4):
        states, weights = data.padded(h)
        assert states.shape == (7, 3)
        assert weights.shape == (7,)
        assert float(weights.sum()) == pytest.approx(1.0, abs=1e-6)
        np.testing.assert_allclose(weights @ states, data.at(h).mean(axis=0), atol=1e-6)
        n = len(data.at(h))
        np.testing.assert_array_equal(states[:n], data.at(h))
        assert not weights[n:].any()
        assert np.isfinite(states).all()


def test_subsample_is_deterministic_and_draws_without_replacement():
    data = ObservationDataset(tuple(np.arange(3.0 * n, dtype=np.float32).reshape(n, 3) for n in (50, 4, 30)))
    some, again, others = data.subsample(10, 1), data.subsample(10, 1), data.subsample(10, 2)
    same_steps(some, again)
    assert [len(s) for s in some.steps] == [10, 4, 10]
    assert some.fingerprint() != others.fingerprint()
    for picked, whole in zip(some.steps, data.steps, strict=True):
        assert len(np.unique(picked, axis=0)) == len(picked)
        assert {tuple(s) for s in picked} <= {tuple(s) for s in whole}
    same_steps(data.subsample(50, 1), data)


def test_fingerprint_changes_with_any_value():
    data = unequal()
    assert data.fingerprint() == unequal().fingerprint()
    for h, row, column in [(0, 0, 0), (0, 6, 2), (3, 0, 1)]:
        steps = [s.copy() for s in data.steps]
        steps[h][row, column] = np.nextafter(steps[h][row, column], np.float32(9))
        assert ObservationDataset(tuple(steps)).fingerprint() != data.fingerprint()
    steps = [*data.steps[:2], data.steps[3], data.steps[2]]
    assert ObservationDataset(tuple(steps)).fingerprint() != data.fingerprint()
    moved = [data.steps[0][:-1], np.concatenate([data.steps[0][-1:], data.steps[1]]), *data.steps[2:]]
    assert ObservationDataset(tuple(moved)).fingerprint() != data.fingerprint()


def test_fingerprint_tells_shapes_apart():
    flat = np.arange(12, dtype=np.float32)
    wide, tall = (ObservationDataset.from_unpaired(flat.reshape(s), np.arange(s[0]) % 2) for s in ((2, 6), (4, 3)))
    two, three = ObservationDataset((wide.steps[0],) * 2), ObservationDataset((wide.steps[0].reshape(3, 2),) * 2)
    assert two.fingerprint() != three.fingerprint()
    assert wide.fingerprint() != tall.fingerprint()


def test_for_horizon_takes_the_first_steps():
    data = unequal()
    short = data.for_horizon(2, 3)
    assert short.horizon == 2
    for h in range(3):
        np.testing.assert_array_equal(short.at(h), data.at(h))
    assert data.for_horizon(3, 3).fingerprint() == data.fingerprint()


def test_for_horizon_says_what_does_not_fit():
    data = unequal()
    with pytest.raises(DataError, match=r"timesteps 0 … 3 but the horizon is 4.*--horizon 3"):
        data.for_horizon(4, 3)
    with pytest.raises(DataError, match=r"3 dimensions.*16"):
        data.for_horizon(3, 16)


def test_describe_steps_counts_what_may_be_wrong():
    step = np.array([[0, 5], [0, 5], [0, np.nan]], np.float32)
    row = describe_steps(ObservationDataset((step, step), check_finite=False))[0]
    assert (row["timestep"], row["states"], row["duplicates"], row["non_finite"]) == (0, 3, 1, 1)
    assert (row["min"], row["mean"], row["max"], row["constant_dimensions"]) == (0, 2, 5, 1)


# Saving


def test_saving_leaves_nothing_else_behind(tmp_path):
    unequal().save(tmp_path / "data.npz")
    unequal().save(tmp_path / "data.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["data.npz"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "data.npz"
    unequal().save(target)
    before = target.read_bytes()

    def half_written(file, **_):
        file.write(b"PK\x03\x04")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", half_written)
    with pytest.raises(OSError, match="disk full"):
        unequal().save(target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["data.npz"]


# Files that are refused


def test_a_missing_file(tmp_path):
    refused(tmp_path / "none.npz", "no such file")


def test_a_directory(tmp_path):
    refused(tmp_path, "directory")


def test_a_single_array(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4)))
    refused(tmp_path / "a.npy", "single array", "savez")


def test_text(tmp_path):
    (tmp_path / "a.npz").write_text("h,x,y\n0,1,2\n")
    refused(tmp_path / "a.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_truncated_file_at_any_place(path, save):
    save(path, observations=np.random.default_rng(0).random((4, 3, 2)))
    whole = path.read_bytes()
    for end in [0, 1, 3, 4, 30, 60, 128, len(whole) // 2, len(whole) - 23, len(whole) - 22, len(whole) - 1]:
        path.write_bytes(whole[:end])
        refused(path)


def test_a_truncated_file_says_so(path):
    unequal().save(path)
    path.write_bytes(path.read_bytes()[:-10])
    refused(path, "truncated")


def test_changed_bytes_are_noticed(path):
    np.savez(path, observations=np.ones((4, 3, 2)))
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(1).tobytes())] ^= 1
    path.write_bytes(bytes(content))
    refused(path, "cannot be read")


def test_an_encrypted_archive_or_one_of_a_later_version(path):
    np.savez(path, observations=np.ones((4, 3, 2)))
    whole = path.read_bytes()
    entry = whole.index(b"PK\x01\x02")
    for offset, value in [(6, 210), (8, 1), (10, 99)]:  # version needed, flags, compression method
        content = bytearray(whole)
        content[entry + offset] = value
        path.write_bytes(bytes(content))
        refused(path)


@pytest.mark.parametrize(
    "content",
    [b"hello", b"", b"\x93NUMPY"],
    ids=["text", "nothing", "cut"],
)
def test_an_archive_of_something_else_than_arrays(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("observations.npy", content)
    refused(path)


def test_object_arrays(path):
    np.savez(path, observations=np.array([[1, 2], None], dtype=object))
    refused(path, "object arrays")
    np.savez(path, observations=np.ones((2, 2)), timesteps=np.array([0, "x"], dtype=object))
    refused(path, "object arrays")


def test_object_arrays_are_never_unpickled(path):
    unpickled = []

    class Trap:
        def __reduce__(self):
            return (unpickled.append, (1,))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap()], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("observations.npy", buffer.getvalue())
    refused(path, "object arrays")
    assert unpickled == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_values_that_are_not_finite_are_named_with_their_place(path, bad):
    """1e300 is finite, but not in single precision."""
    observations = np.zeros((4, 3, 5))
    observations[2, 1, 3] = bad
    np.savez(path, observations=observations)
    refused(path, "timestep 1", "state 2", "dimension 3", str(np.float64(bad)) if bad != 1e300 else "inf")
    lenient = ObservationDataset.load(path, check_finite=False)
    assert not np.isfinite(lenient.at(1)[2, 3])


def test_unpaired_values_that_are_not_finite_are_named_with_their_place(path):
    observations = np.zeros((5, 2))
    observations[3, 1] = np.nan
    np.savez(path, observations=observations, timesteps=np.array([1, 0, 0, 1, 2]))
    refused(path, "timestep 1", "state 1", "dimension 1", "nan")


@pytest.mark.parametrize(
    ("timesteps", "missing", "horizon"),
    [([0, 0, 2, 3], 1, 3), ([1, 2, 3, 3], 0, 3), ([0, 1, 3, 4], 2, 4), ([0, 1, 2, 10**12], 3, 10**12)],
)
def test_a_missing_timestep(path, timesteps, missing, horizon):
    np.savez(path, observations=np.zeros((4, 2)), timesteps=np.array(timesteps))
    refused(path, f"timestep {missing} has no states", f"horizon is {horizon}")


def test_a_horizon_of_zero(path):
    np.savez(path, observations=np.zeros((4, 2)), timesteps=np.zeros(4, int))
    refused(path, "timesteps 0 and 1")
    np.savez(path, observations=np.zeros((4, 1, 2)))
    refused(path, "timesteps 0 and 1")


def test_negative_timesteps(path):
    np.savez(path, observations=np.zeros((4, 2)), timesteps=np.array([0, 1, -3, 2]))
    refused(path, "timesteps[2] is -3")


@pytest.mark.parametrize("timesteps", [np.array([0.0, 1.0]), np.array(["0", "1"]), np.array([False, True])])
def test_timesteps_that_are_not_whole_numbers(path, timesteps):
    np.savez(path, observations=np.zeros((2, 2)), timesteps=timesteps)
    refused(path, "timesteps", str(timesteps.dtype), "integer")


@pytest.mark.parametrize(
    ("observations", "timesteps"), [((4, 2), (3,)), ((4, 2), (4, 1)), ((4,), (4,)), ((4, 2), ()), ((), (1,))]
)
def test_unpaired_arrays_that_do_not_fit(path, observations, timesteps):
    np.savez(path, observations=np.zeros(observations), timesteps=np.zeros(timesteps, int))
    refused(path, str(observations), str(timesteps), "(M, *obs) and (M,)")


@pytest.mark.parametrize("shape", [(), (5,), (5, 3)])
def test_trajectories_of_too_few_axes(path, shape):
    np.savez(path, observations=np.zeros(shape))
    refused(path, str(shape), "(N, H+1, *obs)", "timesteps")


@pytest.mark.parametrize(
    "observations", [np.full((2, 3, 4), "x"), np.zeros((2, 3, 4), complex), np.zeros((2, 3, 4), "datetime64[s]")]
)
def test_observations_that_are_not_numbers(path, observations):
    np.savez(path, observations=observations)
    refused(path, "observations", str(observations.dtype), "numeric")


def test_empty_arrays(path):
    np.savez(path, observations=np.zeros((0, 3, 4)))
    refused(path, "timestep 0 has no states")
    np.savez(path, observations=np.zeros((3, 0, 4)))
    refused(path, "timesteps 0 and 1")
    np.savez(path, observations=np.zeros((0, 4)), timesteps=np.zeros(0, int))
    refused(path, "holds no states")
    np.savez(path)
    refused(path, "no array named observations", "found nothing")


def test_states_of_no_dimensions(path):
    np.savez(path, observations=np.zeros((2, 3, 0)))
    refused(path)
    np.savez(path, observations=np.zeros((4, 0)), timesteps=np.array([0, 0, 1, 1]))
    refused(path)


def test_steps_of_unlike_sizes():
    with pytest.raises(DataError, match=r"mine: timestep 1 .*\(4,\), not \(3,\)"):
        ObservationDataset((np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)), "mine")
