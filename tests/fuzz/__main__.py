"""`python -m tests.fuzz [SUBJECT…]` for HYRLO_FUZZ_SECONDS (an hour). Exits with 1 if anything is wrong."""

import os
import sys
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")


def main() -> int:
    seconds, seed = float(os.environ.get("HYRLO_FUZZ_SECONDS", "3600")), int(os.environ.get("HYRLO_FUZZ_SEED", "0"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = f"{folder}/minari"
        from tests.fuzz.fuzz import fuzz, keep, report
        from tests.fuzz.subjects import data_subjects, run_subjects

        subjects = [*data_subjects(Path(folder) / "data"), *run_subjects(Path(folder) / "runs")]
        chosen = [s for s in subjects if not sys.argv[1:] or any(word in s.name for word in sys.argv[1:])]
        counts, findings = fuzz(chosen, seconds, seed=seed)
    print(report(counts))
    seen: dict[str, int] = {}
    for found in findings:
        line = f"{found.subject}: {found.kind}: {(found.said.splitlines() or [''])[0][:160]}"
        seen[line] = seen.get(line, 0) + 1
    for line, times in sorted(seen.items(), key=lambda item: -item[1])[:60]:
        print(f"{times:>6}  {line}")
    if findings:
        keep(findings, Path(".fuzz"))
        print("the inputs are in .fuzz/")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
