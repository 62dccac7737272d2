"""Answers of a rule: findings with evidence, fixes and a price, and how a rule presents itself to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ddprof.whose import whose

CRITICAL_SHARE = 0.10  # of the step, recoverable (docs/verdict.md)
WARNING_SHARE = 0.03
NAMED_SHARE = 0.05  # of the step lost to ranks that can be named
EVEN = 0.5  # confidence of what is right as often as wrong
HIGH = 0.8  # confidence that is told as "high"


class Basis(str, Enum):
    """The kind of evidence that a finding stands on, as its rule states it.

    How often findings on each kind are right is measured (analyzers/trust), and is their confidence.
    """

    RECORDED = "recorded"  # calls, ranges, kernels or copies that the recording names and times
    COMPARED = "compared"  # the same work on several ranks, or the same messages in several groups
    TESTED = "tested"  # who is last, more often than chance explains
    UNTESTED = "untested"  # who is last, in too few operations for a test
    DEDUCED = "deduced"  # what remains as an explanation: sizes, members or contents were not recorded
    TIMED = "timed"  # what the capture timed over the whole run, none of it inside the traced steps


class Doubt(str, Enum):
    """Record of what is wrong with a recording, or with a price, that makes its findings less certain."""

    ONE_STEP = "one_step"
    TWO_STEPS = "two_steps"
    INFERRED_STEPS = "inferred_steps"
    MISSING_RANKS = "missing_ranks"
    ASSUMED_CLOCK = "assumed_clock"
    DAMAGED_FILES = "damaged_files"
    REPLAY_ERROR = "replay_error"
    PRICES_DIFFER = "prices_differ"
    ONE_EVENT = "one_event"


@dataclass(frozen=True)
class Evidence:
    """One observation, with enough to jump to the spot in a timeline viewer.

    Times are relative to the first step of the run.
    """

    text: str
    rank: int | None = None
    start_us: float | None = None
    end_us: float | None = None
    event: str | None = None


class Alters(str, Enum):
    """Record of what a fix changes beside the speed, so that it may train something else (analyzers/same_result.py)."""

    REDUCTIONS = "reductions"  # gradients of several backward passes are reduced once
    UPDATES = "updates"  # more samples for each update
    PRECISION = "precision"
    ORDER = "order"  # ranks no longer wait for one another there
    VALUES = "values"  # values of other ranks come less often
    BUFFERS = "buffers"  # buffers of the model are no longer sent from rank 0
    CHORE = "chore"  # a line of the script runs less often


Applies = tuple[tuple[str, bool | int | float | str], ...]  # settings of `ddprof run --apply` and their values


@dataclass(frozen=True)
class Fix:
    """A concrete change: the setting, its value now and the suggested one, a paste-ready patch, why, and the source.

    `alters`: what a rule says that it may change beside the speed. `condition`: what the user has to check first,
    because the recording does not show that the result stays; "" where it does.

    `applies`: the same as settings that `ddprof run --apply` can make, all or none of them; () where it cannot. `at`:
    the lines of the script ("train.py:57") that make what they belong to; () where all such objects are meant.
    """

    setting: str
    suggested: str
    why: str
    source: str
    current: str | None = None
    patch: str | None = None
    applies: Applies = ()
    at: tuple[str, ...] = ()
    alters: Alters | None = None
    condition: str = ""


@dataclass(frozen=True)
class Recoverable:
    """Step time that disappears when the cause is removed: microseconds per step, and the interval believed in."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """Record of what a fix does to the run, as a change that the replay can simulate
    (analyzers/replay/changes/table.py)."""

    kind: str
    ranks: tuple[int, ...] = ()  # rank numbers; () where every rank changes
    values: tuple[float, ...] = ()  # per rank of `ranks`, or the parameters of the kind
    target: str = ""  # a ledger cause, a group role, ... as the kind wants it


@dataclass(frozen=True)
class Candidate:
    """Record of what a rule yields: a cause, who, the evidence and the fix.

    The engine prices `changes` by replay and makes it a Finding. `ceiling_us` bounds the gain where the replay cannot
    know better; `band` is a relative doubt larger than that of the kind of change (analyzers/replay/changes/table.py).
    """

    id: str
    summary: str
    ranks: tuple[int, ...]
    lost_us: float
    changes: tuple[Change, ...]
    basis: Basis
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    ceiling_us: float | None = None
    band: float = 0.1
    is_bound: bool = False  # the price is an upper bound: it must not explain smaller causes away
    also: tuple[tuple[str, Change], ...] = ()  # further what-ifs worth a line, each with its words
    doubts: tuple[Doubt, ...] = ()  # of this finding alone, beside those about the recording
    # Of what it is about, us per step of each rank in order; () where that is not a time of the ranks' own.
    times_us: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError where it is of the whole job, and few ranks alone have the time that it is about."""
        if not self.ranks and len(whose(self.times_us)):
            raise ValueError(f"{self.id}: a time that few ranks alone have is no finding on the whole job")


@dataclass(frozen=True)
class Finding:
    """A cause of lost time, as a rule states it (units: microseconds per step).

    `unprofiled_us`: what is recoverable of a step without the profiler; None where no such step was timed.
    `by_ledger_us`: what ledger and blame alone say is recoverable; None where they say nothing. `alone_us`: what is
    recoverable where larger findings stay as they are; None where that is `recoverable_us` itself. `waited_us`: what
    each other rank waits for its ranks; None where it names none. `basis` and `doubts`: values of Basis and Doubt;
    `grounds`: what the confidence was made of, in words. All are empty where a saved report does not say.
    """

    id: str
    summary: str
    ranks: tuple[int, ...]
    lost_us: float
    recoverable_us: Recoverable
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    unprofiled_us: Recoverable | None = None
    by_ledger_us: Recoverable | None = None
    alone_us: Recoverable | None = None
    waited_us: float | None = None
    basis: str = ""
    doubts: tuple[str, ...] = ()
    grounds: str = ""


@dataclass(frozen=True)
class Abstention:
    """A rule that could not judge, and why: "not measured" must never read as "fine".

    `is_withdrawn`: it had found something, which this recording is not to be believed on. `busy_us`: what that cost per
    step, where a busy machine is why. `spent_us`: what it saw spent per step, and cannot call needless.
    """

    id: str
    reason: str
    is_withdrawn: bool = False
    busy_us: float = 0.0
    spent_us: float = 0.0


@dataclass(frozen=True)
class Rule:
    """One diagnosis. `detect` is plain arithmetic on fact tables; without its facts it yields an Abstention."""

    id: str
    title: str
    detect: Callable[[Any], Iterator[Candidate | Abstention]]
    bound: str = "compute"  # verdict.bound when this finding leads
    needs_whole_run: bool = True  # False: it can judge from records of communication alone
    compares_ranks: bool = False  # it judges a rank by its peers: not where they recorded nothing in common
    upper_bound: bool = False  # its prices are bounds: it leads the verdict only if clearly larger than the next
    reads_traffic: bool = False  # it judges communication, and that of which no other member was traced it cannot
    tells_line: bool = False  # what holds its ranks and not their peers belongs to it, where frames show it
    # What it says of what the findings of all other rules leave unexplained, in place of `detect`.
    detect_rest: Callable[[Any, Sequence[Candidate]], Iterator[Candidate | Abstention]] | None = None


@dataclass(frozen=True)
class Remark:
    """Something about the training itself that costs no step time and may spoil its result.

    `ranks`: those that differ from the others, () where the whole job is meant. `severity`: by what it does to the
    result: "critical" where ranks no longer train one model, "warning" where less is learnt than the job believes,
    else "info".
    """

    id: str
    summary: str
    ranks: tuple[int, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    severity: str = "info"


@dataclass(frozen=True)
class Check:
    """Record of what looks for one kind of remark. Without its facts it says nothing."""

    id: str
    title: str
    detect: Callable[[Any], Iterator[Remark]]


def severity_of(finding: Finding, step_us: float) -> str:
    """Severity of a finding from what it recovers. Where its range begins at nothing it is not critical. It is told and
    no more where its value is no critical one either, or where it accuses ranks and is as likely wrong as right.
    """
    found = severity(finding.recoverable_us.value, step_us)
    if finding.recoverable_us.low > 0 or found == "info":
        return found
    is_firm = finding.confidence > EVEN if finding.ranks else found == "critical"
    return "warning" if is_firm else "info"


def culprit(ranked: Sequence[Finding], step_us: float) -> tuple[int, Finding] | None:
    """The first finding, with its number, that names ranks to look at: by what it saves, or by what they cost."""
    for number, finding in enumerate(ranked, 1):
        costs_clearly = finding.lost_us >= NAMED_SHARE * step_us
        if finding.ranks and (costs_clearly or severity_of(finding, step_us) != "info"):
            return number, finding
    return None


def severity(recoverable_us: float, step_us: float) -> str:
    """Severity from the share of the step that can be recovered."""
    share = recoverable_us / step_us if step_us > 0 else 0.0
    if share >= CRITICAL_SHARE:
        return "critical"
    return "warning" if share >= WARNING_SHARE else "info"
