"""The shipped samples: one for every identifier, each diagnosed as its truth says."""

import json
from pathlib import Path
from typing import Any

import pytest

from ddprof.analyzers.catalogue import catalogue
from ddprof.api import analyze

FOLDER = Path(__file__).resolve().parents[2] / "sample_traces"
TRUTHS: dict[str, Any] = {f.parent.name: json.loads(f.read_text("utf-8")) for f in sorted(FOLDER.glob("*/truth.json"))}
MAX_BYTES = 3_000_000
# What fits no listed cause, stalls, whose place is chance, and debugging aids: the generator plays none of them.
DEBUGGING = {"host.anomaly_detection", "host.launch_blocking"}
WITHOUT_SAMPLE = {"straggler.unexplained", "host.evaluation", "host.stalled", "host.recompilation"} | DEBUGGING
WITHOUT_PRICE = {"input.unsharded"}  # work done twice, not time of a step


def test_every_finding_has_a_sample_all_are_small_and_each_has_its_line() -> None:
    shown = {finding["id"] for truth in TRUTHS.values() for finding in truth["findings"]}
    assert set(catalogue()) - shown == WITHOUT_SAMPLE
    assert [name for name, truth in TRUTHS.items() if not truth["findings"]] == ["healthy"]
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < MAX_BYTES
    assert [name for name in TRUTHS if f"| {name} |" not in (FOLDER / "README.md").read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("name", list(TRUTHS))
def test_the_sample_is_diagnosed_as_it_is(name: str) -> None:
    faults = TRUTHS[name]["findings"]
    report = analyze(FOLDER / name, cache=False, workers=1).report
    accused = {(f.id, f.ranks) for f in report.findings if report.severity_of(f) != "info" or f.id in WITHOUT_PRICE}
    assert {(f["id"], tuple(f["ranks"])) for f in faults} <= {(f.id, f.ranks) for f in report.findings}
    named = [{(id, tuple(f["ranks"])) for id in (f["id"], *f["or"])} for f in faults]
    assert all(names & accused for names in named) and accused <= set().union(*named)
    assert report.verdict.bound in [*TRUTHS[name]["expected_bound"], *(["input"] if name == "unsharded" else [])]
    assert report.steps.wall_us == pytest.approx(TRUTHS[name]["step_us"], rel=0.01)
    # Of replay and ledger.
    assert not [f.id for f in report.findings if "prices_differ" in f.doubts and report.severity_of(f) != "info"]
    assert [r.id for r in report.training.remarks] == ["training.same_data"] * (name == "unsharded")
