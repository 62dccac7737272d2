"""The report contract as types, against which a document is checked: finite numbers, bounded ranks.

Names are those of the JSON where no other is stated. Unknown keys are ignored, as newer versions add some.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from ddprof.findings import Abstention
from ddprof.report.model import AppliedSetting, Verdict
from ddprof.sidecar import Count, Rank, Real

Number: TypeAlias = Real | None  # null: not known
LedgerRow: TypeAlias = dict[str, Number]  # wall_us, and every cause
MAX_DEPTH = 8  # of values whose shape the contract leaves open; the deepest is three
ROUNDED = 1.001  # causes sum to the wall to 0.1 %, says the contract
_MAX_MAGNITUDE = 1e300  # sums of such numbers stay finite


class RunDocument(Struct):
    """`run`."""

    world_size: Rank
    ranks: tuple[Rank, ...]
    missing_ranks: tuple[Rank, ...]
    hosts: dict[Rank, str]
    backend: str | None
    device: str
    device_name: str | None
    framework: tuple[str, ...]
    source: str
    name: str = ""
    paths: tuple[str, ...] = ()
    started_unix_s: Number | None = None
    commit: str = ""


class HealthDocument(Struct):
    """One of `health`."""

    issue: str
    effect: str
    severity: str
    rank: Rank | None


class HostClockDocument(Struct):
    """One of `clock.hosts`."""

    offset_us: Number
    drift_ppm: Number
    error_us: Number


class ClockDocument(Struct):
    """`clock`."""

    hosts: dict[str, HostClockDocument]
    method: str


class LeftOutDocument(Struct):
    """One of `steps.left_out`."""

    number: int
    wall_us: Number
    why: str


class StepsDocument(Struct):
    """`steps`."""

    count: Count
    source: str
    wall_us: Number
    per_step_us: tuple[Number, ...]
    unprofiled_us: Number = field(default=None, name="untraced_us")
    left_out: tuple[LeftOutDocument, ...] = ()
    timed_us: tuple[Number, ...] = ()
    timed: Count = 0
    waited_share: Number = None


class LedgerDocument(Struct):
    """`ledger`."""

    per_rank: dict[Rank, LedgerRow]
    job: LedgerRow
    per_step: dict[str, tuple[Number, ...]] = {}


class GainDocument(Struct):
    """Time with its range."""

    value: Number
    low: Number
    high: Number


class EvidenceDocument(Struct):
    """One of a finding's `evidence`."""

    text: str
    rank: Rank | None = None
    start_us: Number = None
    end_us: Number = None
    event: str | None = None


class FixDocument(Struct):
    """One of a finding's `fixes`."""

    setting: str
    suggested: str
    why: str
    source: str
    current: str | None = None
    patch: str | None = None
    applies: dict[str, bool | int | float | str] = {}
    at: tuple[str, ...] = ()
    condition: str = ""


class CalibrationDocument(Struct):
    """A finding's `calibration`: how earlier predictions fared."""

    inside: Count
    predictions: Count


class FindingDocument(Struct):
    """One of `findings`."""

    id: str
    ranks: tuple[Rank, ...]
    lost_us: Number
    recoverable_us: GainDocument
    confidence: Number
    evidence: tuple[EvidenceDocument, ...]
    fixes: tuple[FixDocument, ...]
    summary: str | None = None
    unprofiled_us: GainDocument | None = field(default=None, name="recoverable_untraced_us")
    by_ledger_us: GainDocument | None = field(default=None, name="recoverable_by_ledger_us")
    alone_us: GainDocument | None = field(default=None, name="recoverable_alone_us")
    waited_us: Number = None
    calibration: CalibrationDocument | None = None
    basis: str = ""
    doubts: tuple[str, ...] = ()
    grounds: str = ""


class WhatIfDocument(Struct):
    """One of `what_if`."""

    change: str
    predicted_step_us: Number
    low_us: Number
    high_us: Number


class ReplayDocument(Struct):
    """`replay`."""

    error: Number


class FailureDocument(Struct):
    """`failure`: why the job failed or hung; its per-rank details are in the document alone."""

    kind: str
    sentence: str
    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


class RemarkDocument(Struct):
    """One of `training.remarks`."""

    id: str
    summary: str
    ranks: tuple[Rank, ...] = ()
    evidence: tuple[EvidenceDocument, ...] = ()
    fixes: tuple[FixDocument, ...] = ()
    severity: Literal["critical", "warning", "info"] = "info"


class TrainingDocument(Struct, frozen=True):
    """`training`."""

    samples_per_rank: Number = None
    samples_per_step: Number = None
    learning_rate: Number = None
    optimizer: str = ""
    remarks: tuple[RemarkDocument, ...] = ()


class ReportDocument(Struct):
    """The document of one run."""

    schema: str
    run: RunDocument
    health: tuple[HealthDocument, ...]
    clock: ClockDocument
    steps: StepsDocument
    ledger: LedgerDocument
    efficiency: dict[str, Any]
    findings: tuple[FindingDocument, ...]
    what_if: tuple[WhatIfDocument, ...]
    replay: ReplayDocument
    verdict: Verdict
    abstentions: tuple[Abstention, ...] = ()
    checked: tuple[str, ...] = ()
    training: TrainingDocument = TrainingDocument()
    applied: tuple[AppliedSetting, ...] = ()
    failure: FailureDocument | None = None

    def __post_init__(self) -> None:
        """Check what types cannot express. Raises ValueError."""
        for row in (self.ledger.job, *self.ledger.per_rank.values()):
            if "wall_us" not in row:
                raise ValueError("a row of the ledger without wall_us")
            causes_us = [value or 0.0 for name, value in row.items() if name != "wall_us"]
            if min(causes_us, default=0.0) < 0 or sum(causes_us) > ROUNDED * (row["wall_us"] or 0.0) + 1:
                raise ValueError("a row of the ledger whose causes do not sum to wall_us")
        check_open(self.efficiency)


def check_open(value: Any, depth: int = MAX_DEPTH) -> None:
    """Check a value of free shape: numbers finite, nesting bounded. Raises ValueError."""
    if isinstance(value, dict | list | tuple):
        if not depth:
            raise ValueError(f"values nested more than {MAX_DEPTH} deep")
        for item in value.values() if isinstance(value, dict) else value:
            check_open(item, depth - 1)
    elif isinstance(value, int | float) and not abs(value) <= _MAX_MAGNITUDE:
        raise ValueError("a number beyond all measure")
