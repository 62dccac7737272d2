"""Damages healthy runs and counts who is accused of it: nobody may be.

    python benchmarks/damage_healthy.py RUNS... --cases 5000 --first 0 --log cases.jsonl

Every folder below RUNS that holds `traces/` beside a `label.json` or `truth.json` which calls the run clean is damaged;
a case of one that is accused of something as it is, or whose files are not whole, counts as none. A case is a number:
it chooses the run, the damage (one of `tests/analyzers/mutations.py`, in turns) and the other run that some damage
takes; the same number over the same folders is the same case. Each case's outcome is a line of the log, so that a long
count can be taken in parts; a case that the log has already is not run again. Exits with 1 where a rank or a setting
was accused, or an analysis ended with a traceback.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tests" / "analyzers"))

from mutations import MUTATIONS, load, write  # noqa: E402

from ddprof.analyzers.engine import Options, analyze  # noqa: E402
from ddprof.errors import NoUsableInput  # noqa: E402

OPTIONS = Options(workers=1, cache=False)
TAKE_ANOTHER = ("mixed", "both")  # damage that takes another run
MAX_BYTES = 400_000  # packed, of a run: larger ones cost more time and are damaged no differently
CASES_PER_RUN = 3 * len(MUTATIONS)  # one after another, so that a run is decoded once for all of them


def healthy_below(folders: Sequence[Path]) -> Iterator[Path]:
    """The `traces` folders of runs that are labelled clean and are small enough, in order."""
    for top in folders:
        for traces in sorted(top.rglob("traces")):
            files = list(traces.glob("*.json.gz"))
            is_small = sum(file.stat().st_size for file in files) <= MAX_BYTES
            if files and is_small and _is_clean(traces.parent):
                yield traces


def _is_clean(run: Path) -> bool:
    for name in ("label.json", "truth.json"):
        if (run / name).exists():
            label = json.loads((run / name).read_text(encoding="utf-8"))
            return bool(label.get("clean", not label.get("findings") and not label.get("faults")))
    return False


def said_of(folder: Path) -> list[str]:
    """What is said above "info" of a folder of traces, or the traceback of an analysis that broke."""
    try:
        reports = analyze([folder], OPTIONS)
    except NoUsableInput:
        return []
    except Exception:  # the very thing that is looked for
        return ["traceback: " + traceback.format_exc()]
    return [f"{f.id}: {f.summary}" for r in reports for f in r.findings if r.severity_of(f) != "info"]


class Cases:
    """Cases by their number over a fixed list of runs."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._runs = runs
        self._files = lru_cache(maxsize=2)(load)
        self._said_of = cache(said_of)

    def outcome(self, number: int) -> dict[str, Any]:
        """Damage a run and analyze it."""
        draw = random.Random(f"damage {number}")
        mutation = list(MUTATIONS)[number % len(MUTATIONS)]
        run = random.Random(f"run {number // CASES_PER_RUN}").choice(self._runs)
        other = draw.choice(self._runs) if mutation in TAKE_ANOTHER else run
        line = {"case": number, "mutation": mutation, "run": run.parent.name, "other": other.parent.name}
        try:
            files, others = self._files(run), self._files(other)
        except ValueError:  # generated damaged: there is nothing to damage
            return {**line, "said": [], "is_silent": False}
        if self._said_of(run) or self._said_of(other):
            return {**line, "said": [], "is_silent": False}
        texts = MUTATIONS[mutation](files, others, draw)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "traces"
            write(texts, folder)
            return {**line, "said": said_of(folder), "is_silent": True}


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over the cases of a log."""
    cases = [line for line in lines if line["is_silent"]]
    broke = [any(said.startswith("traceback") for said in line["said"]) for line in cases]
    return {
        "cases": len(cases),
        "accusing": sum(bool(line["said"]) for line in cases) - sum(broke),
        "tracebacks": sum(broke),
        "runs": len({line["run"] for line in cases}),
        "by_mutation": dict(sorted(Counter(line["mutation"] for line in cases).items())),
        "by_commit": dict(Counter(line["commit"] for line in cases)),
    }


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Take the cases, one after another, and print the counts of the whole log."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("damage_healthy.jsonl"))
    options = parser.parse_args()
    known = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log.exists() else []
    done, commit = {line["case"] for line in known}, _commit()
    runs = list(healthy_below(options.folders))
    if not runs:
        print("no healthy run below the folders", file=sys.stderr)
        return 1
    cases = Cases(runs)
    with options.log.open("a", encoding="utf-8") as log:
        for number in range(options.first, options.first + options.cases):
            if number in done:
                continue
            line = cases.outcome(number) | {"commit": commit}
            known.append(line)
            log.write(json.dumps(line) + "\n")
            log.flush()
            if line["said"]:
                print(json.dumps(line), flush=True)
    counts = summary(known)
    print(json.dumps(counts))
    return int(bool(counts["accusing"] or counts["tracebacks"]))


if __name__ == "__main__":
    sys.exit(main())
