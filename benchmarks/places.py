"""Number of places to know: files of ddprof whose functions run while it works.

    python benchmarks/places.py [--analyzed RUN] [--straggler RUN] [--list]

"analyzed": by `ddprof analyze RUN --no-cache`, in one process. "straggler": by one finding, from the job's facts to its
sentence: what `detect` of its rule calls, what prices it, and a text report that holds it alone. What only runs because
a module is imported does not count.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

from click.testing import CliRunner

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.job.measures import measure
from ddprof.analyzers.trust.believed import ledger_price, of_candidate
from ddprof.cli.main import cli
from ddprof.findings import Candidate
from ddprof.report.text import render_text

ROOT = Path(__file__).resolve().parent.parent
TREES = tuple(f"{ROOT / tree}/" for tree in ("ddprof", "analyzers", "dashboard"))


@contextmanager
def called() -> Iterator[dict[str, set[str]]]:
    """Functions that are called inside, by the file that holds them."""
    found: dict[str, set[str]] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & CO_OPTIMIZED  # and no body of a module or a class
        if event == "call" and is_function and code.co_filename.startswith(TREES):
            found.setdefault(code.co_filename.removeprefix(f"{ROOT}/"), set()).add(code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # the stub lacks None


def of_analyze(run: Path) -> dict[str, set[str]]:
    """Functions that one `ddprof analyze` calls."""
    with called() as found:
        result = CliRunner().invoke(cli, ["analyze", str(run), "--no-cache"])
    assert result.exit_code == 0, result.output
    return found


def of_straggler(path: Path) -> dict[str, set[str]]:
    """Functions that the first finding about a straggler passes through."""
    (run,) = load_runs([str(path)], Options(cache=False))
    finding = next(found for found in run.report.findings if found.id.startswith("straggler."))
    rule, measures = catalogue()[finding.id], measure(run.job)
    with called() as found:
        candidate = next(said for said in rule.detect(measures) if isinstance(said, Candidate))
        of_candidate(run.pricer, candidate, run.pricer.gain_us(candidate))
        ledger_price(measures, candidate.changes)
        render_text(replace(run.report, findings=(finding,)))
    return found


def main() -> None:
    """Print both counts."""
    parser = argparse.ArgumentParser(description="Count the files whose functions one analysis and one finding call.")
    parser.add_argument("--analyzed", type=Path, default=ROOT / "sample_traces" / "late_loader")
    parser.add_argument("--straggler", type=Path, default=ROOT / "sample_traces" / "slow_gpu")
    parser.add_argument("--list", action="store_true", help="the files too, with the functions that were called")
    options = parser.parse_args()
    of = {f"analyze {options.analyzed.name}": of_analyze(options.analyzed)}
    of[f"a straggler of {options.straggler.name}"] = of_straggler(options.straggler)
    for what, found in of.items():
        print(f"{what}: {sum(map(len, found.values()))} functions in {len(found)} files")
        for file, functions in sorted(found.items()) if options.list else ():
            print(f"  {file}: {', '.join(sorted(functions))}")


if __name__ == "__main__":
    main()
