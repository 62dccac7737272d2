"""Comparison of ddprof's findings on a faulted run with the fixed run's measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.workload_pairs.execute import FinishedJob
from benchmarks.workload_pairs.pairs import Pair
from ddprof.findings import Finding
from ddprof.report.model import Report


@dataclass(frozen=True)
class Judgement:
    """A pair, judged. Steps in milliseconds by the workload's own clock, outside the trace window.

    `found`: a finding above "info" with an accepted identifier and exactly the right ranks. `leads`: it is the first.
    `predicted_ms`: the faulted run's step less what its report says the fix saves; None where the fault was not found
    or is not about step time. `traced_*`: the same inside the trace windows. `also_said`: other findings above "info".
    `gone`: the finding is not above "info" in the fixed run.
    """

    pair: str
    finding: str
    ranks: tuple[int, ...]
    folder: str
    priced: bool = True
    problem: str = ""
    found: bool = False
    leads: bool = False
    gone: bool = False
    said: str = ""
    also_said: tuple[str, ...] = ()
    replay_error: float | None = None
    faulted_ms: float | None = None
    fixed_ms: float | None = None
    predicted_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    traced_fixed_ms: float | None = None
    traced_predicted_ms: float | None = None

    @property
    def error(self) -> float | None:
        """|predicted - measured| / measured step after the fix."""
        return _error(self.predicted_ms, self.fixed_ms)

    @property
    def traced_error(self) -> float | None:
        """Error of the prediction inside the trace windows."""
        return _error(self.traced_predicted_ms, self.traced_fixed_ms)

    @property
    def covered(self) -> bool | None:
        """Did the measured step fall inside the predicted range?"""
        if self.low_ms is None or self.high_ms is None or self.fixed_ms is None:
            return None
        return self.low_ms <= self.fixed_ms <= self.high_ms

    @property
    def gains(self) -> tuple[float, float] | None:
        """(predicted, measured) gain as a share of the faulted step."""
        if self.predicted_ms is None or self.fixed_ms is None or not self.faulted_ms:
            return None
        return 1 - self.predicted_ms / self.faulted_ms, 1 - self.fixed_ms / self.faulted_ms

    def as_dict(self) -> dict[str, Any]:
        """All fields and figures, for JSON."""
        return {
            **asdict(self),
            "error": self.error,
            "traced_error": self.traced_error,
            "covered": self.covered,
            "gain_shares": self.gains,
        }


def _error(predicted: float | None, measured: float | None) -> float | None:
    return abs(predicted - measured) / measured if predicted is not None and measured else None


def above_info(report: Report) -> list[Finding]:
    """Findings that accuse, worst first."""
    return [finding for finding in report.ranked_findings() if report.severity_of(finding) != "info"]


def said(finding: Finding) -> str:
    """Such as straggler.host [1]."""
    return f"{finding.id} {list(finding.ranks)}"


def judge(pair: Pair, faulted: FinishedJob, fixed: FinishedJob) -> Judgement:
    """One pair of runs, judged."""
    truth = pair.truth
    base = Judgement(
        pair.fixed.name, truth.finding, pair.ranks, str(faulted.folder), truth.priced, faulted.problem or fixed.problem
    )
    if faulted.report is None or fixed.report is None or faulted.step_ms is None or fixed.step_ms is None:
        return base
    report = faulted.report
    accused = above_info(report) if truth.priced else list(report.ranked_findings())
    right = [f for f in accused if f.id in (truth.finding, *truth.also) and tuple(sorted(f.ranks)) == pair.ranks]
    wall_us = report.steps.wall_us
    known: dict[str, Any] = {
        **{name: getattr(base, name) for name in ("pair", "finding", "ranks", "folder", "priced")},
        "found": bool(right),
        "leads": bool(right) and accused[0] is right[0],
        "gone": not any(f.id == truth.finding for f in above_info(fixed.report)),
        "said": said(accused[0]) if accused else "nothing",
        "also_said": tuple(said(f) for f in accused if f not in right) if truth.priced else (),
        "replay_error": report.replay.error,
        "faulted_ms": faulted.step_ms,
        "fixed_ms": fixed.step_ms,
        "traced_fixed_ms": fixed.report.steps.wall_us / 1e3,
    }
    if right and truth.priced and wall_us > 0:
        asked_ms = faulted.asked_ms.get(pair.fix)
        known.update(_prediction(right[0], wall_us, report.steps.unprofiled_us, faulted.step_ms, asked_ms))
    return Judgement(**known)


def _prediction(
    finding: Finding, wall_us: float, unprofiled_us: float | None, step_ms: float, asked_ms: float | None
) -> dict[str, float]:
    """The step after the fix in the job's turns: by the share that the report says the fix saves of a step without the
    profiler (with it, where no such step was timed). `asked_ms`: what a what-if says of this very fix, in its place.
    """
    gain = finding.recoverable_us
    outside, of_us = gain, wall_us
    if finding.unprofiled_us is not None:
        outside, of_us = finding.unprofiled_us, unprofiled_us or wall_us
    won_us = {"predicted_ms": outside.value, "low_ms": outside.high, "high_ms": outside.low}
    found = {name: max(0.0, step_ms * (1 - us / of_us)) for name, us in won_us.items()}
    if asked_ms is not None:
        moved = asked_ms - found["predicted_ms"]
        found = {name: max(0.0, ms + moved) for name, ms in found.items()}
    return {**found, "traced_predicted_ms": max(0.0, wall_us - gain.value) / 1e3}


def merged(trials: Sequence[Judgement]) -> Judgement:
    """Several trials of one pair as one: medians of the times, and found only where every trial found it."""
    usable = [t for t in trials if not t.problem]
    if len(usable) < 2:
        return usable[0] if usable else trials[0]
    first = asdict(usable[0])
    for name in [n for n in first if n.endswith("_ms") or n == "replay_error"]:
        values = [getattr(t, name) for t in usable]
        first[name] = None if None in values else float(np.median(values))
    for name in ("found", "leads", "gone"):
        first[name] = all(getattr(t, name) for t in usable)
    first["also_said"] = tuple(sorted({s for t in usable for s in t.also_said}))
    return Judgement(**first)
