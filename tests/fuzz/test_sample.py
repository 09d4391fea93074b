"""A fixed sample of `make fuzz`, and whether the fuzzer tells right from wrong."""

import time

import pytest

from hyrlo.core.errors import HyrloError
from tests.fuzz import fuzz as fuzzing
from tests.fuzz.fuzz import WRONG, fuzz, report
from tests.fuzz.subjects import Subject, data_subjects, run_subjects

DATA, RUNS = 40, 12
"""Inputs of each file."""


def test_no_spoilt_data_is_a_traceback(tmp_path, minari_home):
    counts, findings = fuzz(data_subjects(tmp_path), seconds=60, most=DATA)
    assert not findings, "\n".join(f"{f.subject} {f.number} {f.kind}: {f.said}" for f in findings)
    assert sum(counts.values()) == 13 * DATA
    assert sum(number for (_, kind), number in counts.items() if kind == "refused") > 6 * DATA


@pytest.mark.slow
def test_no_spoilt_run_is_a_traceback_or_another_policy(tmp_path):
    _, findings = fuzz(run_subjects(tmp_path), seconds=60, most=RUNS)
    assert not findings, "\n".join(f"{f.subject} {f.number} {f.kind}: {f.said}" for f in findings)


def reader(path, ways):
    def read():
        return ways[path.read_bytes()]()

    return read


def test_every_way_to_fail_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzzing, "PATIENCE", 0.1)
    monkeypatch.setattr(fuzzing, "MOST_MEMORY", 2**27)
    path = tmp_path / "a"
    path.write_bytes(b"valid")

    def refuse():
        raise HyrloError("no")

    ways = {
        b"valid": lambda: 1, b"same": lambda: 1, b"other": lambda: 2, b"refused": refuse, b"hang": lambda: time.sleep(60),
        b"traceback": lambda: [][0], b"memory": lambda: len(bytearray(b"x") * 2**29) and 1,
    }  # fmt: skip
    for faithful, others in ((False, "other"), (True, "changed")):
        for way in ways:
            subject = Subject("a", path, (lambda content, rng, way=way: way,), reader(path, ways), faithful)
            path.write_bytes(b"valid")
            counts, findings = fuzz([subject], seconds=9, most=1)
            kind = {b"valid": "same", b"other": others}.get(way, way.decode())
            if not (way == b"memory" and faithful):  # the peak has been reached before
                assert dict(counts) == {("a", kind): 1}
                assert [f.kind for f in findings] == [kind] * (kind in WRONG)
            assert path.read_bytes() == b"valid"
    assert report(counts).splitlines()[1].startswith("a  ")


def test_the_same_seed_spoils_the_same(tmp_path, minari_home):
    subjects = data_subjects(tmp_path)[:2]
    first, _ = fuzz(subjects, seconds=60, most=10, seed=3)
    assert first == fuzz(subjects, seconds=60, most=10, seed=3)[0]
    assert first != fuzz(subjects, seconds=60, most=10, seed=4)[0]
