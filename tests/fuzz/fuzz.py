"""Spoils files, reads them and says how that ended.

* `same`: read, with the content it had.
* `other`: read, with other content. Only a failure where a checksum would have told.
* `refused`: one line that names what is wrong.
* `changed`: read with other content, without a word, where that may not be.
* `traceback`, `hang`, `memory`: never right.
"""

import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyrlo.core.errors import HyrloError
from tests.fuzz.mutators import generator
from tests.fuzz.subjects import Subject

PATIENCE = 30.0
"""Seconds for one input."""
MOST_MEMORY = 2**29
"""Bytes that one input may take."""
WRONG = ("changed", "traceback", "hang", "memory")


class Hang(BaseException):
    pass


@dataclass
class Finding:
    subject: str
    number: int
    kind: str
    said: str
    content: bytes


def once(subject: Subject, content: bytes, expected: Any) -> tuple[str, str]:
    """How reading this content ends, and what is said."""

    def stop(*_):
        raise Hang

    subject.file.write_bytes(content)
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = subject.read()
        kind, said = ("same" if found == expected else "changed" if subject.faithful else "other"), ""
    except HyrloError as error:
        kind, said = "refused", str(error)
    except Hang:
        kind, said = "hang", ""
    except OSError as error:  # the command line says it in one line
        kind, said = "refused", str(error)
    except BaseException as error:
        first = next(iter(str(error).splitlines()), "")
        kind, said = "traceback", f"{type(error).__name__}: {first}\n{''.join(traceback.format_exception(error))}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 > MOST_MEMORY:
        kind = "memory"
    return kind, said


def fuzz(subjects: list[Subject], seconds: float, most: int | None = None, seed: int = 0):
    """Counts by subject and kind, and all that went wrong. Ends after `seconds`, or after `most` inputs of each subject."""
    counts: Counter[tuple[str, str]] = Counter()
    findings: list[Finding] = []
    valid = {subject.name: (subject.file.read_bytes(), subject.read()) for subject in subjects}
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end and (most is None or number < most):
        for subject in subjects:
            content, expected = valid[subject.name]
            rng = generator(seed, subject.name, number)
            spoilt = rng.choice(subject.mutators)(content, rng)
            kind, said = once(subject, spoilt, expected)
            subject.file.write_bytes(content)
            counts[subject.name, kind] += 1
            if kind in WRONG:
                findings.append(Finding(subject.name, number, kind, said, spoilt))
        number += 1
    return counts, findings


def report(counts: Counter[tuple[str, str]]) -> str:
    """A table: a row for each subject, a column for each kind."""
    kinds = ("same", "other", "refused", *WRONG)
    names = sorted({name for name, _ in counts})
    rows = [("", *kinds), *((name, *(str(counts[name, kind]) for kind in kinds)) for name in names)]
    rows.append(("all", *(str(sum(counts[name, kind] for name in names)) for kind in kinds)))
    return "\n".join(f"{row[0]:<34}" + "".join(f"{cell:>11}" for cell in row[1:]) for row in rows)


def keep(findings: list[Finding], folder: Path) -> None:
    """Write down what went wrong, to be read again."""
    folder.mkdir(parents=True, exist_ok=True)
    for found in findings:
        name = f"{found.subject.replace('/', '-').replace(' ', '-')}-{found.number}-{found.kind}"
        (folder / name).write_bytes(found.content)
        (folder / f"{name}.txt").write_text(found.said)
