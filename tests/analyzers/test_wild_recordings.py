"""Real, messy recordings by others, with what was measured by hand: what must be said of each, and what must not.

A claim that does not hold yet is marked so; it is taken off the list when the mechanism behind it is mended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ddprof.analyzers.engine import Options, analyze
from ddprof.errors import DdprofError
from ddprof.report.model import Report

Claim = Callable[[list[Report]], bool]
AS_SHARE = re.compile(r"(\d+(?:\.\d+)?) %")
EXPOSED = 0.623  # between the marks that the device holds; between those of the host, which runs ahead of it, 0.657
STEADY_US = (146e3, 194e3)  # steps 2 to 6 of the recording whose first step is cold
WITHOUT_SLOW_WORKER_US = 23.45e6  # published with the recording of 64 GPUs


class Case(NamedTuple):
    """A recording (folder below `wild/recordings`), what is claimed of it, and whether that holds yet."""

    folder: str
    claim: str
    check: Claim
    holds: bool


def loud(reports: list[Report]) -> Iterator[Any]:
    """Findings above "info" of all reports."""
    return (f for report in reports for f in report.findings if report.severity_of(f) != "info")


def says(*starts: str) -> Claim:
    """Some finding above "info" has such an identifier."""
    return lambda reports: any(f.id.startswith(starts) for f in loud(reports))


def never(*starts: str) -> Claim:
    """No finding above "info" has such an identifier."""
    return lambda reports: not says(*starts)(reports)


def runs(count: int) -> Claim:
    """As many runs, each of one rank."""
    return lambda reports: len(reports) == count and all(len(report.run.ranks) == 1 for report in reports)


def shares_are_shares(reports: list[Report]) -> bool:
    """No text has more than 100 %."""
    texts = [text for r in reports for text in (r.verdict.headline, *(f.summary for f in r.findings))]
    return all(float(share) <= 100.0 for text in texts for share in AS_SHARE.findall(text))


def no_advice_to_compile(reports: list[Report]) -> bool:
    """No fix says "eager" of what is compiled, or of a program in C."""
    fixes = [fix for r in reports for f in r.findings for fix in f.fixes]
    return not any("compile" in fix.setting or fix.current == "eager" for fix in fixes)


def headline_lacks(*words: str) -> Claim:
    """No headline has these words."""
    return lambda reports: not any(word in report.verdict.headline for report in reports for word in words)


def steady_step(reports: list[Report]) -> bool:
    """The step is that of steps 2 to 6."""
    return all(STEADY_US[0] <= report.steps.wall_us <= STEADY_US[1] for report in reports)


def blames(rank: int) -> Claim:
    """A finding above "info" names exactly this rank."""
    return lambda reports: any(f.ranks == (rank,) for f in loud(reports))


def acquits(rank: int) -> Claim:
    """No finding above "info" names this rank."""
    return lambda reports: not any(rank in f.ranks for f in loud(reports))


def mostly_computes(reports: list[Report]) -> bool:
    """From its first kernel on the device is busy."""
    return all(report.ledger.job["compute"] > 0.8 * report.ledger.job["wall_us"] for report in reports)


def exposed_communication(reports: list[Report]) -> bool:
    """Exposed communication is what was measured by hand."""
    job = reports[0].ledger.job
    share = (job["comm_transfer"] + job.get("comm_wait", 0.0)) / job["wall_us"]
    return abs(share - EXPOSED) < 0.03 and reports[0].verdict.bound == "communication"


def without_the_slow_worker(reports: list[Report]) -> bool:
    """Removing the slow worker gives the published step."""
    found = [f for f in loud(reports) if f.ranks == (0,)]
    return any(abs(reports[0].predicted_step_us(f) / WITHOUT_SLOW_WORKER_US - 1) < 0.1 for f in found)


def nothing_across_sampled_ranks(reports: list[Report]) -> bool:
    """No waiting is stated, and nothing with high confidence."""
    return all(r.ledger.job.get("comm_wait", 0.0) == 0.0 for r in reports) and all(
        f.confidence < 0.5 for f in loud(reports)
    )


CASES = (
    Case("unrelated_two_runs", "two runs", runs(2), False),
    Case("unrelated_two_runs", "no straggler, no allocator", never("straggler", "host.allocator"), False),
    Case("ab_pair", "two runs", runs(2), False),
    Case("ab_pair", "no share above 100 %", shares_are_shares, False),
    Case("ab_pair", "the loader", says("input.starved"), True),
    Case("cold_first_step_loader", "the step of the warm steps", steady_step, False),
    Case("cold_first_step_loader", "not launch-bound", never("host.launch_bound"), False),
    Case("cold_first_step_loader", "the loader", says("input.starved"), True),
    Case("cold_with_collectives", "not launch-bound", never("host.launch_bound"), False),
    Case("stream_busy_before_recording", "busy", mostly_computes, False),
    Case("preprocessing_in_python", "no waiting for one another", headline_lacks("wait for one another"), False),
    Case("first_cuda_call", "no allocator", never("host.allocator"), False),
    Case("first_cuda_call", "nothing to compile", no_advice_to_compile, False),
    Case("host_stalls_tp8", "stalls", says("host.stalled"), False),
    Case("host_stalls_tp8", "compiled already", no_advice_to_compile, False),
    Case("host_stalls_tp8", "not bound by bandwidth", never("comm.bandwidth_bound"), True),
    Case("one_slow_worker_64", "rank 0", blames(0), True),
    Case("one_slow_worker_64", "the published step without it", without_the_slow_worker, False),
    Case("horovod_late_rank_24", "rank 9", blames(9), False),
    Case("horovod_late_rank_24", "rank 0 was late once", acquits(0), False),
    Case("sampled_events", "nothing across ranks", nothing_across_sampled_ranks, False),
    Case("already_compiled", "compiled already", no_advice_to_compile, False),
    Case("communication_mi300", "two thirds are exposed communication", exposed_communication, True),
)
REFUSED = (
    ("flops.nsys-rep", "nsys export", False),
    ("lfs_pointer.pt.trace.json", "git lfs pull", False),
    ("tw003.xplane.pb", "xplane", False),
    ("execution_trace.tar.gz", "execution trace", False),
    ("rocprofiler_sdk_results.json.gz", "rocprof", False),
    ("dlprof_dldb.sqlite", "DLProf", False),
)
_REPORTS: dict[str, list[Report]] = {}


def open_claim(holds: bool) -> list[pytest.MarkDecorator]:
    """The mark of what does not hold yet."""
    return [] if holds else [pytest.mark.xfail(reason="does not hold yet", strict=False)]


def reports_of(folder: Path) -> list[Report]:
    """The reports of a recording, analyzed once."""
    if folder.name not in _REPORTS:
        _REPORTS[folder.name] = list(analyze([str(folder)], Options(workers=1, cache=False)))
    return _REPORTS[folder.name]


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{c.folder}: {c.claim}", marks=open_claim(c.holds)) for c in CASES]
)
def test_what_was_measured_by_hand(shared_dir: Path, case: Case) -> None:
    folder = shared_dir / "wild" / "recordings" / case.folder
    if not folder.is_dir():
        pytest.skip(f"{case.folder} is not among the real traces")
    assert case.check(reports_of(folder)), case.claim


@pytest.mark.parametrize(
    ("name", "words"), [pytest.param(n, words, id=n, marks=open_claim(holds)) for n, words, holds in REFUSED]
)
def test_other_formats_are_refused_by_name(shared_dir: Path, name: str, words: str) -> None:
    file = shared_dir / "wild" / "recordings" / "other_formats" / name
    if not file.exists():
        pytest.skip(f"{name} is not among the real traces")
    with pytest.raises(DdprofError) as refused:
        analyze([str(file)], Options(workers=1, cache=False))
    assert words.lower() in str(refused.value).replace(str(file), "").lower()
