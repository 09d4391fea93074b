"""Data that would fill the memory, lead out of their folder or lose their meaning are refused in one line, before work.

Bombs are small files made here. The largest of them are read in a process with little memory.
"""

import gzip
import json
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from hyrlo.core.errors import HyrloError
from hyrlo.core.memory import free_memory, readable, require_memory
from hyrlo.data import bounds
from hyrlo.data.minari import write_minari
from hyrlo.data.readers import as_states, read_states, read_transitions
from hyrlo.data.states import ObservationDataset
from tests.logs import BOX, EPISODES, command_refused, record, refused, table, text, write_csv, write_parquet

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*None:UserWarning"),
    pytest.mark.usefixtures("minari_home"),
]
GIB = 2**30


def header(shape, descr="<f4", version=1):
    """The beginning of an npy file that declares any shape."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text


def zipped(path, name="observations.npy", content=b"", **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content, **options)
    return path


def zeros(path, shape, dtype="<f4"):
    """An npz file of zeros, written piece by piece: as small as zip makes it."""
    left = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("observations.npy", "w") as file,
    ):
        file.write(header(shape, dtype))
        for begin in range(0, left, 2**24):
            file.write(bytes(min(2**24, left - begin)))
    return path


# Bombs


def test_a_zip_bomb_is_refused_by_its_estimate(tmp_path, capsys):
    path = zeros(tmp_path / "a.npz", (2**15, 3, 768))  # 288 MiB of zeros
    words = ["its arrays would take 288 MiB of memory but the file has 1"]
    refused(path, *words)
    command_refused(capsys, tmp_path, path, *words)


def test_states_that_compress_well_are_no_bomb(tmp_path):
    """Large files may shrink a hundredfold, small ones as much as they like."""
    assert read_states(zeros(tmp_path / "a.npz", (1000, 11, 512))).horizon == 10
    assert bounds.most_expanded(2 * GIB) > 100 * 2 * GIB


@pytest.mark.parametrize(
    ("shape", "descr", "words"),
    [
        ((10**9, 11, 512), "<f4", ["has 0 bytes where its shape", "needs 22,528,000,000,000"]),
        ((-1, 3, 2), "<f4", ["has shape (-1, 3, 2)"]),
        ((-(10**9), -(10**9), 2), "<f4", ["has shape (-1000000000"]),
        ((2**62, 2**62, 2**62), "<f8", ["needs"]),
        ((2, 3, 1), "|O", ["object arrays, which are never loaded"]),
        ((2, 3, 1), "<U100000000", ["needs 2,400,000,000"]),
        ((10**30, 2, 0), "<f4", ["cannot be read as npz"]),
        ((3, 2**50, 0), "<f4", ["shape (0,)"]),
        ((0, 2**50, 4), "<f4", ["timestep 0 has no states"]),
        ((True, 2, 2), "<f4", ["needs"]),
        ((2, 3.0, 2), "<f4", ["cannot be read as npz"]),
        ("__import__('os').abort()", "<f4", ["cannot be read as npz"]),
        ("(" * 3000, "<f4", ["cannot be read as npz"]),
        ((2, 3, 1), "<M8[s]", ["has 0 bytes"]),
        ((2, 3, 0), "<c8", ["complex64"]),
    ],
    ids=str,
)
def test_headers_that_lie(tmp_path, shape, descr, words):
    refused(zipped(tmp_path / "a.npz", content=header(shape, descr)), *words)


def test_other_zip_files(tmp_path):
    inner = zipped(tmp_path / "inner.npz", content=header((2, 3, 1)) + bytes(24))
    assert read_states(inner).horizon == 2
    refused(zipped(tmp_path / "a.npz", content=inner.read_bytes()), "observations is not an array")
    refused(zipped(tmp_path / "b.npz", content=header((2, 3, 1), version=3)), "npy version (3, 0)")
    path = tmp_path / "c.npz"
    path.write_bytes(header((10**9, 11, 512)))
    refused(path, "is a single array, not an npz archive")
    longer = inner.read_bytes().replace((len(header((2, 3, 1))) + 24).to_bytes(4, "little"), b"\xff\xff\xff\x7f")
    path.write_bytes(longer)
    refused(path, "has 2,147,48", "needs 24")
    path.write_bytes(b"PK\x05\x06" + bytes(18))
    refused(path, "has no array named observations (found nothing)")


@pytest.mark.parametrize("limit", ["small", "memory"])
def test_a_gzip_bomb_of_rows(tmp_path, monkeypatch, limit):
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("timesteps,x\n")
        for _ in range(40):
            file.write("0,0\n" * 5000)
    if limit == "small":
        monkeypatch.setattr(bounds, "SMALL", 2**18)
        refused(path, "its text would take 25", "KiB of memory but the file has")
    else:
        monkeypatch.setattr("hyrlo.core.memory._system", lambda: 2**20)
        refused(path, "its first 131,072 rows", "2.0 MiB of memory would be needed, 1.0 MiB is free", "fewer rows")


def test_a_line_without_an_end(tmp_path):
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("timesteps,x\n" + "0," * 2**23)
    refused(path, "has a line of more than 16 MiB")


def test_a_parquet_file_of_zeros(tmp_path, capsys):
    path, rows = tmp_path / "a.parquet", 2**16
    columns = {"timesteps": np.zeros(rows, int), **{f"x{i}": np.zeros(rows) for i in range(4)}}
    with parquet.ParquetWriter(path, pyarrow.table(columns).schema) as file:
        for _ in range(128):
            file.write_table(pyarrow.table(columns))
    words = ["its columns would take 320 MiB of memory but the file has"]
    refused(path, *words)
    command_refused(capsys, tmp_path, path, *words)


def test_a_huge_text_in_a_cell_is_shortened(tmp_path):
    for path in (tmp_path / "a.csv", tmp_path / "a.parquet"):
        writer = write_csv if path.suffix == ".csv" else write_parquet
        writer(path, {"timesteps": np.arange(2), "x": np.array(["up" * 50_000] * 2)})
        assert len(refused(path, "which is not a number")) < 600


def resized(path, change):
    with h5py.File(path, "a") as file:
        del file["episode_0/observations"]
        change(file["episode_0"])
    return path


HDF5_BOMBS = {
    "declared alone": (lambda e: e.create_dataset("observations", (10**12, 3), "f4", chunks=(100, 3)), "11 TiB"),
    "zeros": (
        lambda e: e.create_dataset("observations", (10**8, 3), "f4", chunks=(10**4, 3), compression="gzip"),
        "1.1 GiB",
    ),
    "one large chunk": (
        lambda e: e.create_dataset("observations", (2, 3), "f4", maxshape=(None, 3), chunks=(10**8, 3)),
        "1.1 GiB",
    ),
}


@pytest.mark.parametrize("kind", HDF5_BOMBS)
def test_hdf5_bombs(kind, minari_home, tmp_path, capsys):
    write_minari(EPISODES, "walk-v0")
    change, size = HDF5_BOMBS[kind]
    resized(minari_home / "walk-v0/data/main_data.hdf5", change)
    refused("minari:walk-v0", f"its episodes would take {size} of memory but the file has")
    command_refused(capsys, tmp_path, "minari:walk-v0", "would take")


def rewritten(home, **changes):
    path = home / "walk-v0/data/metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"total_episodes": 10**15}, "cannot be read"),
        ({"total_episodes": -1}, "holds no episodes"),
        ({"total_episodes": "4"}, "cannot be read"),
        ({"total_episodes": None}, "cannot be read"),
        ({"data_format": "csv"}, "stored as 'csv'"),
        ({"data_format": ["hdf5"]}, "stored as"),
        ({"minari_version": {}}, "cannot be read"),
        ({"observation_space": "[" * 10**5}, "cannot be read"),
        ({"observation_space": '{"type": "Discrete", "n": 1000000000000, "start": 0}'}, "episode 0"),
        (
            {"observation_space": '{"type": "Box", "shape": [9999999999, 9], "low": 0, "high": 1, "dtype": "float32"}'},
            "",
        ),
    ],
    ids=str,
)
def test_metadata_that_lie(minari_home, changes, said):
    write_minari(EPISODES, "walk-v0")
    rewritten(minari_home, **changes)
    refused("minari:walk-v0", said)


def test_one_hot_observations_of_a_huge_space_are_not_made(minari_home):
    space = '{"type": "Discrete", "n": 1000000000000, "start": 0}'
    write_minari([np.zeros((3, 1), np.float32)], "walk-v0")
    rewritten(minari_home, observation_space=space)
    refused("minari:walk-v0", "one-hot observations in Discrete", "22 TiB of memory would be needed")


def test_in_little_memory_every_bomb_is_one_line(tmp_path):
    """A process that may take 600 MiB besides its libraries reads files whose content would be within their bounds."""
    states = zeros(tmp_path / "a.npz", (2**16, 2, 128), "<f8")
    rows = text(tmp_path / "b.csv", "timesteps,x\n" + "0,1\n1,2\n" * 10)
    code = """
import resource, sys
from hyrlo.core.errors import DataError
from hyrlo.data.readers import read_states
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, used + 2**27))
for path in sys.argv[1:]:
    try:
        print(read_states(path).horizon)
    except DataError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, states, rows], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{states}: its arrays: about 256 MiB of memory would be needed, 1")
    assert first.endswith("MiB is free; give fewer states")
    assert second == "1"


def test_free_memory_is_the_least_of_all_limits(monkeypatch, tmp_path):
    assert 2**20 < free_memory() < 2**50
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr("hyrlo.core.memory.GROUP", tmp_path)
    assert free_memory() == 600
    with pytest.raises(HyrloError, match="x: about 601 B of memory would be needed, 600 B is free"):
        require_memory(601, "x")
    require_memory(600, "x")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory() > 2**20
    assert [readable(n) for n in (0, 1023, 1536, 22 * 2**40, 2**70)] == [
        "0 B", "1,023 B", "1.5 KiB", "22 TiB", "1,048,576 PiB",
    ]  # fmt: skip


# Numbers keep their meaning

STAMPS = 1.7e9 + np.linspace(0, 1, 12)
LOST = {
    "timestamps of a second": STAMPS,
    "steps of 1 far away": 1e8 + np.arange(12),
    "whole numbers": (2**40 + np.arange(12)).astype(np.int64),
    "unsigned whole numbers": np.arange(12).astype(np.uint64) + np.uint64(2**63 + 2**40),
    "metres on a map": 4e6 + np.linspace(0, 1, 12),
    "close to one": 1 + np.linspace(0, 1e-8, 12),
    "32 bits": (2**30 + np.arange(12)).astype(np.int32),
}
KEPT = {
    "ordinary numbers": np.random.default_rng(0).normal(size=12),
    "a constant": np.full(12, 1.7e9 + 1),
    "rounding errors of a constant": 0.05 + np.arange(12) * 1e-17,
    "large but far apart": 1.7e9 + np.linspace(0, 1e8, 12),
    "small": np.linspace(0, 1e-30, 12),
    "physical units": 1e19 * np.append(np.linspace(1, 2, 11), 1 + 1e-15),  # two of them become equal
    "whole numbers": (2**40 * np.arange(12)).astype(np.int64),
    "truth values": np.arange(12) % 2 == 0,
}


def all_layouts(tmp_path, column):
    """The same column as second dimension in every format."""
    states = np.stack([np.zeros(12, column.dtype), column], axis=1)
    np.savez(tmp_path / "a.npz", observations=states.reshape(4, 3, 2))
    np.savez(tmp_path / "b.npz", observations=states, timesteps=np.arange(12) % 3)
    columns = {"timesteps": np.arange(12) % 3, "x": column * 0, "y": column}
    write_parquet(tmp_path / "c.parquet", {name: pyarrow.array(values) for name, values in columns.items()})
    return [tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "c.parquet"]


@pytest.mark.parametrize("kind", LOST)
def test_numbers_that_float32_cannot_tell_apart_are_refused_by_name(kind, tmp_path):
    for path in all_layouts(tmp_path, LOST[kind]):
        name = "column y" if path.suffix == ".parquet" else "dimension 1"
        refused(path, name, "subtract an offset")


@pytest.mark.parametrize("kind", KEPT)
def test_numbers_that_float32_can_tell_apart_are_read(kind, tmp_path):
    for path in all_layouts(tmp_path, KEPT[kind] if KEPT[kind].dtype != bool else KEPT[kind].astype(float)):
        np.testing.assert_array_equal(
            np.sort(np.concatenate(read_states(path).steps)[:, 1]), np.sort(KEPT[kind].astype(np.float32))
        )


def test_timestamps_in_csv_minari_arrays_and_tuples(tmp_path, capsys):
    states = np.stack([np.zeros(12), STAMPS], axis=1)
    steps = [states[h::3] for h in range(3)]
    write_csv(tmp_path / "a.csv", table(steps))
    refused(tmp_path / "a.csv", "column x1 is from 1700000000 to 1700000001", "float32")
    command_refused(capsys, tmp_path, tmp_path / "a.csv", "column x1")
    box = type(BOX)(-np.inf, np.inf, (2,), np.float64)
    record("stamps-v0", [states[:4], states[4:8], states[8:]], box)
    refused("minari:stamps-v0", "dimension 1 is from 1700000000 to 1700000001")
    refused("minari:stamps-v0", "dimension 1", read=read_transitions)
    with pytest.raises(HyrloError, match="dimension 1"):
        as_states(states.reshape(4, 3, 2))
    path, flat = tmp_path / "a.npz", {"actions": np.zeros(12, int), "timesteps": np.arange(12) % 3}
    small = states - [0, 1.7e9]
    for name in ("observations", "next_observations", "rewards"):
        arrays = {"observations": small, "next_observations": small, "rewards": np.zeros(12), **flat}
        arrays[name] = STAMPS if name == "rewards" else states
        np.savez(path, **arrays)
        refused(path, "rewards is from" if name == "rewards" else "dimension 1", read=read_transitions)
    np.savez(path, observations=small.reshape(4, 3, 2), actions=np.zeros((4, 2), int), rewards=STAMPS[:8].reshape(4, 2))
    refused(path, "rewards is from 1700000000", read=read_transitions)


def test_a_spread_within_one_step_alone_is_no_reason(tmp_path):
    """Initial states may lie close together; the dimension as a whole counts."""
    states = 1000 + np.array([0, 0, 0, 1e-6, 2e-6, 3e-6]).reshape(2, 3, 1) + np.arange(3)[None, :, None] * 100.0
    assert ObservationDataset.from_trajectories(states).horizon == 2


@pytest.mark.parametrize("value", ["1_5", "１５", "١٥", "1\u00a0", "0x10", "True", "1,5", "--1", "1e", "∞", "½", "²"])
def test_what_only_python_reads_is_no_number(tmp_path, value):
    for line in (f'0,0,"{value}"', f'"{value}",0,0'):
        path = text(tmp_path / "a.csv", f"timesteps,w,x\n0,1,2\n{line}\n")
        refused(path, "line 3, column", f"is {value!r}, which is not a number")


def test_columns_that_are_not_read_may_hold_anything(tmp_path):
    path = text(tmp_path / "a.csv", "timesteps,nämé_1,x\n0,1_5,0\n1,１,2\n")
    assert read_states(path, observations="x").horizon == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1e400", "is inf"),
        ("-inf", "is -inf"),
        ("nan", "is nan"),
        ("9" * 500, "is inf"),
        ("9" * 5000, "is inf"),
        ("1700000000000000001", "1700000000000000001; whole numbers beyond 2^53 lose digits"),
        ("-9007199254740993", "lose digits"),
    ],
)
def test_numbers_that_are_too_large(tmp_path, value, said):
    path = text(tmp_path / "a.csv", f"timesteps,x\n0,1\n1,{value}\n")
    refused(path, "line 3, column x", said)


def test_long_numbers_that_are_exact_are_read(tmp_path):
    path = text(tmp_path / "a.csv", "timesteps,x\n0,0.12345678901234567890\n1,36028797018963968\n")
    assert read_states(path).at(1)[0, 0] == 2**55


def test_large_whole_numbers_in_parquet(tmp_path):
    columns = {"timesteps": np.arange(2), "x": np.array([1, 1700000000000000001])}
    write_parquet(tmp_path / "a.parquet", columns)
    refused(tmp_path / "a.parquet", "row 1, column x is 1700000000000000001", "lose digits")
    write_parquet(tmp_path / "a.parquet", {"timesteps": np.array([False, True]), "x": np.arange(2)})
    refused(tmp_path / "a.parquet", "row 0, column timesteps is False, which is not a number")


@pytest.mark.parametrize("dtype", [complex, "datetime64[s]", "U3", "S3", [("x", float)]], ids=str)
def test_arrays_that_are_not_numbers(tmp_path, dtype):
    path = tmp_path / "a.npz"
    np.savez(path, observations=np.zeros((2, 3, 2), dtype))
    refused(path, "dtype" if dtype != [("x", float)] else "")
    np.savez(path, observations=np.zeros((2, 2)), timesteps=np.arange(2).astype(dtype if dtype != "U3" else complex))
    refused(path)


# Nothing outside of the data set


@pytest.mark.parametrize(
    "name", ["../outside", "a/../../outside", "/etc", "..", "a//b", "a/./b", "a\\b", "a\0b", "~", "walk-v0/"]
)
def test_minari_ids_stay_below_minaris_folder(name, minari_home, tmp_path, monkeypatch, capsys):
    write_minari(EPISODES, "walk-v0")
    (minari_home / "walk-v0").rename(minari_home.parent / "outside")
    refused(f"minari:{name}", "is not a Minari id")


def test_links_in_hdf5_files_are_not_followed(minari_home, tmp_path, capsys):
    other = tmp_path / "other.hdf5"
    with h5py.File(other, "w") as file:
        file["secret"] = np.ones((3, 3), np.float32)
    raw = tmp_path / "raw.bin"
    raw.write_bytes(np.ones((3, 3), np.float32).tobytes())
    layout = h5py.VirtualLayout((3, 3), "f4")
    layout[:] = h5py.VirtualSource(str(other), "secret", (3, 3))
    links = {
        "external": lambda e: e.__setitem__("observations", h5py.ExternalLink(str(other), "secret")),
        "soft": lambda e: e.__setitem__("observations", h5py.SoftLink("/episode_1/observations")),
        "dangling": lambda e: e.__setitem__("observations", h5py.SoftLink("/nowhere")),
        "storage": lambda e: e.create_dataset("observations", (3, 3), "f4", external=str(raw)),
        "virtual": lambda e: e.create_virtual_dataset("observations", layout),
    }
    write_minari(EPISODES, "walk-v0")
    whole = (minari_home / "walk-v0/data/main_data.hdf5").read_bytes()
    for kind, change in links.items():
        (minari_home / "walk-v0/data/main_data.hdf5").write_bytes(whole)
        resized(minari_home / "walk-v0/data/main_data.hdf5", change)
        words = ["lies in other files"] if kind in ("storage", "virtual") else ["observations is a link"]
        refused("minari:walk-v0", *words)
    command_refused(capsys, tmp_path, "minari:walk-v0", "lies in other files")


def test_files_of_a_data_set_are_no_links_out_of_it(minari_home, tmp_path):
    write_minari(EPISODES, "walk-v0")
    file = minari_home / "walk-v0/data/main_data.hdf5"
    file.rename(tmp_path / "elsewhere.hdf5")
    file.symlink_to(tmp_path / "elsewhere.hdf5")
    refused("minari:walk-v0", "main_data.hdf5 is a link out of the data set")
    file.unlink()
    (tmp_path / "elsewhere.hdf5").rename(minari_home / "walk-v0/own.hdf5")
    file.symlink_to("../own.hdf5")
    assert read_states("minari:walk-v0").horizon == 3
    (minari_home / "walk-v0").rename(tmp_path / "another disk")
    (minari_home / "walk-v0").symlink_to(tmp_path / "another disk")
    assert read_states("minari:walk-v0").horizon == 3


def test_no_code_is_imported_that_a_data_set_names(minari_home, tmp_path, monkeypatch):
    """Minari would make the environment of a data set that does not state its spaces."""
    (tmp_path / "evil_data.py").write_text(f"open({str(tmp_path / 'obeyed')!r}, 'w')\nmake = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    write_minari(EPISODES, "walk-v0")
    path = minari_home / "walk-v0/data/metadata.json"
    metadata = json.loads(path.read_text())
    del metadata["observation_space"]
    spec = {"id": "X-v0", "entry_point": "evil_data:make", "kwargs": {}, "additional_wrappers": []}
    path.write_text(json.dumps({**metadata, "env_spec": json.dumps(spec)}))
    refused("minari:walk-v0", "does not state its spaces")
    path.write_text(json.dumps({**metadata, "observation_space": json.dumps(7), "env_spec": json.dumps(spec)}))
    refused("minari:walk-v0", "cannot be read")
    assert not (tmp_path / "obeyed").exists()
