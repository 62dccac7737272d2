"""Damages recordings and counts who is accused of it: nobody may be.

    python benchmarks/damage_healthy.py RECORDINGS... --cases 5000 --first 0 --log cases.jsonl

Damaged is, below RECORDINGS, every folder `traces` beside a `label.json` or `truth.json` which calls the run clean;
every other folder of traces, a run folder of `ddprof run` too (what lies beside the traces stays as it is); and every
Horovod timeline, its ranks renumbered by chance. Of a run that is labelled clean any finding above "info" is an
accusation, and a case of one that is accused as it is, or whose files are not whole, counts as none; of the others it
is a rank that the recording as it is does not name.

A case is a number: it chooses the run, the damage (one of `tests/analyzers/mutations.py`, in turns) and the other run
that some damage takes; the same number over the same folders is the same case. Each case's outcome is a line of the
log, so that a long count can be taken in parts; a case that the log has already is not run again. Exits with 1 where a
rank or a setting was accused, or an analysis ended with a traceback.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tests" / "analyzers"))

from mutations import MUTATIONS, Files, Texts, load, write  # noqa: E402

from ddprof.analyzers.engine import Options, analyze  # noqa: E402
from ddprof.errors import NoUsableInput  # noqa: E402

OPTIONS = Options(workers=1, cache=False)
TAKE_ANOTHER = ("mixed", "both")  # damage that takes another run
MAX_BYTES = 400_000  # packed, of a run: larger ones cost more time and are damaged no differently
CASES_PER_RUN = len(MUTATIONS)  # one after another, so that a run is decoded once for all of them


@dataclass(frozen=True)
class Recording:
    """The files of a run: `path` is a folder of traces or a Horovod timeline."""

    path: Path
    is_labelled: bool  # clean, by its label

    @property
    def name(self) -> str:
        """Name in the log."""
        return "/".join(self.path.parts[-4:])

    def files(self) -> Files:
        """Its documents. Raises ValueError where they are damaged already."""
        if self.path.is_dir():
            return load(self.path)
        packed = self.path.read_bytes()
        text = (gzip.decompress(packed) if self.path.suffix == ".gz" else packed).decode().rstrip(",\n ")
        events = json.loads(text if text.endswith("]") else text + "]")  # Horovod leaves the list open
        return {self.path.name.removesuffix(".gz"): {"traceEvents": _by_chance(events, random.Random(self.name))}}

    def write(self, texts: Texts, folder: Path) -> None:
        """Write damaged texts, and what else lies beside them."""
        write(texts, folder)
        for beside in self.path.iterdir() if self.path.is_dir() else ():
            if not beside.name.endswith((".json.gz", "truth.json")):
                shutil.copy(beside, folder / beside.name)


def _by_chance(events: list[Any], draw: random.Random) -> list[Any]:
    """A Horovod timeline whose ranks are numbered anew whenever all wait for none: chance decides who is last."""
    ranks = sorted({e["name"] for e in events if e["ph"] == "X" and str(e["name"]).isdecimal()}, key=int)
    numbers: dict[str, str] = {}
    waited: dict[Any, int] = {}  # tensor -> ranks that are not ready for it
    found = []
    for event in events:
        if event["ph"] == "B" and event["name"].startswith("NEGOTIATE"):
            if not any(waited.values()):
                numbers = dict(zip(ranks, draw.sample(ranks, len(ranks)), strict=True))
            waited[event["pid"]] = len(ranks)
        elif event["ph"] == "X" and event["name"] in numbers:
            waited[event["pid"]] -= 1
        elif event["ph"] == "E":
            waited[event["pid"]] = 0
        found.append({**event, "name": numbers.get(event.get("name"), event.get("name"))})
    return found


def recordings_below(folders: Sequence[Path]) -> Iterator[Recording]:
    """Recordings small enough to be damaged, in order."""
    for top in folders:
        for path in sorted({*top.rglob("traces"), *(file.parent for file in top.rglob("*.trace.json.gz"))}):
            label = next((run for run in (path, path.parent) if _label(run)), None)
            size = sum(file.stat().st_size for file in path.glob("*.json.gz"))
            is_labelled = path.name == "traces" and label is not None
            if 0 < size <= MAX_BYTES and (not is_labelled or _is_clean(_label(path.parent))):
                yield Recording(path, is_labelled)
        yield from (Recording(path, False) for path in sorted(top.rglob("*horovod*.json*")))


def _label(run: Path) -> dict[str, Any]:
    for name in ("label.json", "truth.json"):
        if (run / name).exists():
            return dict(json.loads((run / name).read_text(encoding="utf-8")))
    return {}


def _is_clean(label: dict[str, Any]) -> bool:
    return bool(label.get("clean", not label.get("findings") and not label.get("faults")))


Said = tuple[str, tuple[int, ...]]  # a finding above "info" and its ranks, or a traceback and none


def said_of(path: Path) -> list[Said]:
    """Findings above "info" of a recording, or the traceback of an analysis that broke."""
    try:
        reports = analyze([path], OPTIONS)
    except NoUsableInput:
        return []
    except Exception:  # the very thing that is looked for
        return [("traceback: " + traceback.format_exc(), ())]
    loud = [f for r in reports for f in r.findings if r.severity_of(f) != "info"]
    return [(f"{f.id}: {f.summary}", f.ranks) for f in loud]


class Cases:
    """Cases by their number over a fixed list of recordings."""

    def __init__(self, runs: Sequence[Recording]) -> None:
        self._runs = runs
        self._files = lru_cache(maxsize=2)(Recording.files)
        self._said_of = cache(self._said_of_all)

    def _said_of_all(self, run: Recording) -> list[Said]:
        """Findings of an undamaged recording."""
        if run.path.is_dir():
            return said_of(run.path)
        with tempfile.TemporaryDirectory() as place:
            run.write({name: json.dumps(document) for name, document in self._files(run).items()}, Path(place))
            return said_of(Path(place))

    def outcome(self, number: int, kept: Path | None = None) -> dict[str, Any]:
        """Damage a run and analyze it. `kept`: a folder for its files."""
        draw = random.Random(f"damage {number}")
        mutation = list(MUTATIONS)[number % len(MUTATIONS)]
        run = random.Random(f"run {number // CASES_PER_RUN}").choice(self._runs)
        likes = [other for other in self._runs if other.path.is_dir() == run.path.is_dir()]
        other = draw.choice(likes) if mutation in TAKE_ANOTHER else run
        line = {"case": number, "mutation": mutation, "run": run.name, "other": other.name}
        try:
            files, others = self._files(run), self._files(other)
        except ValueError:  # generated damaged: there is nothing to damage
            return {**line, "said": [], "is_silent": False}
        as_it_is = [*self._said_of(run), *self._said_of(other)]
        if run.is_labelled and as_it_is:
            return {**line, "said": [], "is_silent": False}
        named = {rank for _, ranks in as_it_is for rank in ranks}
        texts = MUTATIONS[mutation](files, others, draw)
        with tempfile.TemporaryDirectory() as place:
            folder = kept or Path(place) / "traces"
            run.write(texts, folder)
            said = [text for text, ranks in said_of(folder) if _counts(run, text, set(ranks) - named)]
            return {**line, "said": said, "is_silent": True}


def _counts(run: Recording, text: str, ranks: set[int]) -> bool:
    return run.is_labelled or bool(ranks) or text.startswith("traceback")


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
    parser.add_argument("--keep", type=Path, help="a new folder for the files of --first, the one case that is run")
    options = parser.parse_args()
    known = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log.exists() else []
    done, commit = {line["case"] for line in known}, _commit()
    runs = list(recordings_below(options.folders))
    if not runs:
        print("no recording below the folders", file=sys.stderr)
        return 1
    cases = Cases(runs)
    if options.keep:
        print(json.dumps(cases.outcome(options.first, options.keep)))
        return 0
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
