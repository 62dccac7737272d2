"""The report, result of an analysis, as frozen dataclasses that mirror the report contract key by key.

Pure data: no rendering, no analysis. `ddprof.report.json.contract` turns it into JSON-ready values and back. Times are
microseconds (float), ranks are rank numbers, shares are fractions of the step in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ddprof.causes import CAUSES
from ddprof.findings import Abstention, Finding, Recoverable, Remark, culprit, differs, severity_of, told_gain
from ddprof.sidecar import Count, Rank
from ddprof.tables import Table

SCHEMA = "ddprof.report/1"
FAILURE_SCHEMA = "ddprof.hang/1"


@dataclass(frozen=True)
class RunInfo:
    """Identity of the job. `ranks` are the analyzed ones; `missing_ranks` belong to the job but left no usable
    trace."""

    world_size: Rank
    ranks: tuple[Rank, ...]
    missing_ranks: tuple[Rank, ...] = ()
    hosts: Mapping[Rank, str] = field(default_factory=dict)
    backend: str | None = None
    device: str = "unknown"
    device_name: str | None = None
    framework: tuple[str, ...] = ()
    source: str = "kineto"
    name: str = ""  # folder or file the run was read from, for headings
    paths: tuple[str, ...] = ()
    started_unix_s: float | None = None  # the first traced step; None where the trace states no date
    commit: str = ""  # of the script's repository; "" where it was not recorded


@dataclass(frozen=True)
class HealthItem:
    """A defect of the input and what cannot be concluded because of it; `rank` None means the whole run."""

    issue: str
    effect: str
    severity: str = "warning"  # "info" | "warning" | "error"
    rank: Rank | None = None


@dataclass(frozen=True)
class HostClockInfo:
    """One host's clock alignment: offset and drift against the reference, and half the width of the error."""

    offset_us: float = 0.0
    drift_ppm: float = 0.0
    error_us: float | None = None


@dataclass(frozen=True)
class ClockInfo:
    """Clock alignment of all hosts and the method that gave it."""

    hosts: Mapping[str, HostClockInfo] = field(default_factory=dict)
    method: str = "none"


@dataclass(frozen=True)
class LeftOutStep:
    """A recorded step excluded from all averages and prices because it holds one-off work; `why` in words."""

    number: int
    wall_us: float
    why: str


@dataclass(frozen=True)
class Steps:
    """The measured steady steps. `source`: origin of the step marks ("none" without steps).

    `unprofiled_us`: the typical step outside the trace windows by the step timers; None where none was timed.
    `timed_us`: mean step of each of several equal parts of the run outside the windows, in order, over `timed` steps in
    all; () where too few were timed. `waited_share`: share of the run in which ranks were ready but had no CPU, mean
    over ranks; None where it was not recorded.
    """

    count: Count
    source: str
    wall_us: float
    per_step_us: tuple[float, ...] = ()
    unprofiled_us: float | None = None
    left_out: tuple[LeftOutStep, ...] = ()
    timed_us: tuple[float, ...] = ()
    timed: Count = 0
    waited_share: float | None = None

    @property
    def noun(self) -> str:
        """The noun for the measured step in sentences: "step", or "traced step" where unprofiled steps differ."""
        return "traced step" if differs(self.unprofiled_us, self.wall_us) else "step"


@dataclass(frozen=True)
class Ledger:
    """Mean step time by cause, for each rank and the job: {"wall_us": us, cause: us}; the causes sum to wall_us.

    `per_step`, where known: microseconds of a cause in every step of the job, mean over ranks.
    """

    per_rank: Mapping[Rank, Mapping[str, float]] = field(default_factory=dict)
    job: Mapping[str, float] = field(default_factory=dict)
    per_step: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class WhatIf:
    """A replayed change and the step time it would give, with the interval it is believed in."""

    change: str
    predicted_step_us: float
    low_us: float
    high_us: float


@dataclass(frozen=True)
class Replay:
    """Error of the replay: |replayed - measured| / measured; None where it could not run."""

    error: float | None = None


@dataclass(frozen=True)
class Calibration:
    """Outcomes of earlier predictions of one kind: `inside` of `total` measured steps were in the predicted range."""

    inside: Count
    total: Count


@dataclass(frozen=True)
class Training:
    """Facts on the training itself: samples per optimizer step, the initial learning rate, and remarks on what may
    spoil the result. None where the capture does not know.
    """

    samples_per_rank: float | None = None
    samples_per_step: float | None = None
    learning_rate: float | None = None
    optimizer: str = ""
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True)
class AppliedSetting:
    """A setting that `ddprof run` was to apply at one place: `applied`, or `why` not. Values as typed."""

    setting: str
    value: str
    at: str = ""  # the line that makes the object; "" for a setting of the process
    object: str = ""
    before: str | None = None  # what the script has there
    applied: bool = True
    why: str = ""
    ranks: tuple[Rank, ...] = ()


@dataclass(frozen=True)
class Failure:
    """The reason why the job failed or hangs, from a slice. `document`: its JSON (docs/hangs.md), with `kind` and
    `sentence`. `text`: the full explanation. `timeout_s`: after which the job aborts by itself; None where unknown.
    """

    document: Mapping[str, Any]
    text: str = ""
    timeout_s: float | None = None

    @property
    def kind(self) -> str:
        """The documented name of the first cause."""
        return str(self.document["kind"])

    @property
    def sentence(self) -> str:
        """The first cause in one sentence."""
        return str(self.document["sentence"])


@dataclass(frozen=True)
class Verdict:
    """The bound of the step ("none" where nothing could be judged) and its sentence."""

    bound: str
    headline: str


@dataclass(frozen=True)
class Report:
    """One analyzed run, the source of the terminal, JSON, HTML and dashboard output."""

    run: RunInfo
    steps: Steps
    ledger: Ledger
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    replay: Replay = field(default_factory=Replay)
    clock: ClockInfo = field(default_factory=ClockInfo)
    health: tuple[HealthItem, ...] = ()
    efficiency: Mapping[str, Any] = field(default_factory=dict)
    abstentions: tuple[Abstention, ...] = ()
    checked: tuple[str, ...] = ()  # ids of rules that looked and found nothing
    calibration: Mapping[str, Calibration] = field(default_factory=dict)  # finding id -> predictions like it, so far
    training: Training = field(default_factory=Training)
    applied: tuple[AppliedSetting, ...] = ()  # by `ddprof run --apply`
    failure: Failure | None = None  # if it failed or hung: told before anything else
    tables: Mapping[str, Table] = field(default_factory=dict)  # detail for the dashboard; never in the JSON document

    def __str__(self) -> str:
        """The verdict in one line."""
        return f"{self.run.name}: {self.verdict.headline}" if self.run.name else self.verdict.headline

    def severity_of(self, finding: Finding) -> str:
        """Severity of a finding by the share of this run's step that it would save, and by its range."""
        return severity_of(finding, self.steps.wall_us, self.steps.unprofiled_us)

    def shown_gain(self, finding: Finding) -> tuple[Recoverable, float]:
        """The gain that headline and finding state, and its step, us."""
        return told_gain(finding, self.steps.wall_us, self.steps.unprofiled_us)

    def predicted_step_us(self, finding: Finding) -> float:
        """Step time after the finding's cause is removed, in microseconds; never negative."""
        return max(0.0, self.steps.wall_us - finding.recoverable_us.value)

    def ranked_findings(self) -> tuple[Finding, ...]:
        """Findings in the order of the analysis: the headline's first, then by what they save without the profiler."""
        return self.findings

    def culprit(self) -> tuple[int, Finding] | None:
        """The finding, with its number, whose ranks every page names; None where none names ranks."""
        return culprit(self.ranked_findings(), self.steps.wall_us, self.steps.unprofiled_us)


def step_causes(report: Report) -> dict[str, tuple[float, ...]]:
    """Microseconds of each cause in every step, mean over ranks; {} where the steps' detail is not known.

    Read from the report, or made from its ledger table (columns rank, step, cause, dur_ns). Ranks with fewer steps
    count in those that they have.
    """
    if report.ledger.per_step:
        return {cause: tuple(values) for cause, values in report.ledger.per_step.items()}
    table = report.tables.get("ledger")
    if table is None or not len(table):
        return {}
    ranks, steps = table["rank"], table["step"]
    keep = steps >= 0
    ranks, steps, causes = ranks[keep], steps[keep], table["cause"][keep].astype(np.int64)
    count = int(steps.max()) + 1 if len(steps) else 0
    sums = np.zeros((len(CAUSES), count))
    np.add.at(sums, (causes, steps), table["dur_ns"][keep] / 1e3)
    members = np.zeros(count)
    np.add.at(members, np.unique(np.stack([ranks, steps]), axis=1)[1], 1.0)
    means = sums / np.maximum(members, 1.0)
    return {cause: tuple(float(v) for v in means[i]) for i, cause in enumerate(CAUSES)}
