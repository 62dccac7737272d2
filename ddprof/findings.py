"""Results of a rule (findings with evidence, fixes and a price) and the interface between rules and engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from ddprof.sidecar.bounded import Rank
from ddprof.whose import whose

CRITICAL_SHARE = 0.10  # of the step, recoverable (docs/verdict.md)
LINE_SHARE = 0.005  # of the step: smaller gains are not worth a line
WARNING_SHARE = 0.03  # of the step, recoverable (docs/verdict.md)
PROFILED_SHARE = 0.03  # of the step: what the profiler costs is worth a word
NAMED_SHARE = 0.05  # of the step lost to ranks that can be named
EVEN = 0.5  # confidence of what is right as often as wrong
HIGH = 0.8  # confidence that is told as "high"


class Basis(str, Enum):
    """The kind of evidence that a rule states for a finding.

    A finding's confidence is the measured precision of findings on its basis (analyzers/trust).
    """

    RECORDED = "recorded"  # calls, ranges, kernels or copies that the recording names and times
    COMPARED = "compared"  # the same work on several ranks, or the same messages in several groups
    TESTED = "tested"  # who is last, more often than chance explains
    UNTESTED = "untested"  # who is last, in too few operations for a test
    DEDUCED = "deduced"  # what remains as an explanation: sizes, members or contents were not recorded
    TIMED = "timed"  # what the capture timed over the whole run, none of it inside the traced steps


class Doubt(str, Enum):
    """A defect of a recording or of a price that makes its findings less certain."""

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
    rank: Rank | None = None
    start_us: float | None = None
    end_us: float | None = None
    event: str | None = None


class Alters(str, Enum):
    """Possible effect of a fix on the trained result, beside its speed (analyzers/diagnose.py)."""

    REDUCTIONS = "reductions"  # gradients of several backward passes are reduced once
    UPDATES = "updates"  # more samples for each update
    PRECISION = "precision"
    ORDER = "order"  # ranks no longer wait for one another there
    VALUES = "values"  # values of other ranks come less often
    BUFFERS = "buffers"  # buffers of the model are no longer sent from rank 0
    CHORE = "chore"  # a line of the script runs less often
    ZEROS = "zeros"  # the optimizer leaves a parameter alone that has no gradient
    SAMPLES = "samples"  # a data set that draws its samples itself does so in several workers
    KEPT = "kept"  # what is made of a sample is kept, random numbers included
    PARAMETERS = "parameters"  # every backward pass has to reach all parameters
    EQUAL = "equal"  # values that ranks may hold apart are no longer sent or averaged
    MEAN = "mean"  # gradients are averaged by DistributedDataParallel in place of the script


Applies = tuple[tuple[str, bool | int | float | str], ...]  # settings of `ddprof run --apply` and their values


@dataclass(frozen=True)
class Fix:
    """A concrete change: the setting, its value now and the suggested one, a paste-ready patch, why, and the source.

    `alters`: what it may change beside the speed, by its rule. `condition`: what the user has to check first where the
    recording does not show that results stay the same, else "".

    `applies`: the settings with which `ddprof run --apply` makes the change, all or none of them; () where it cannot.
    `at`: the script lines ("train.py:57") that create the objects to change; () for all such objects.
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
    """Step time saved when the cause is removed: microseconds per step, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """One change to the run that the replay can simulate."""

    kind: str  # of the table of kinds (analyzers/replay/changes/table.py)
    ranks: tuple[int, ...] = ()  # rank numbers; () where every rank changes
    values: tuple[float, ...] = ()  # per rank of `ranks`, or the parameters of the kind
    target: str = ""  # a ledger cause, a group role, ... as the kind wants it


class ContradictsItself(ValueError):
    """A finding whose evidence says something else."""


@dataclass(frozen=True)
class Candidate:
    """Unpriced result of a rule: a cause, its ranks, the evidence and the fixes.

    The engine prices `changes` by replay and makes it a Finding. `ceiling_us` bounds the gain where the replay cannot
    know better; what is not replayed gains `lost_us` where it is None. `band` is a relative doubt larger than that of
    the kind of change (analyzers/replay/changes/table.py). `timed_us`: the same bound in a step without the profiler,
    by the timers of the whole run; None where they lack it.
    """

    id: str
    summary: str
    lost_us: float
    basis: Basis
    ranks: tuple[int, ...] = ()
    changes: tuple[Change, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    ceiling_us: float | None = None
    timed_us: float | None = None
    band: float = 0.1
    is_bound: bool = False  # the price is an upper bound: it must not explain smaller causes away
    also: tuple[tuple[str, Change], ...] = ()  # further what-ifs worth a line, each with its words
    doubts: tuple[Doubt, ...] = ()  # of this finding alone, beside those about the recording
    instead: Candidate | None = None  # what is told where no setting reaches the gain
    # Of what it is about, us per step of each rank in order; () where that is not a time of the ranks' own.
    times_us: tuple[float, ...] = ()

    @property
    def most_us(self) -> float | None:
        """The most that it gains per step; None where the replay of its changes says it."""
        return self.lost_us if self.ceiling_us is None and not self.changes else self.ceiling_us

    def __post_init__(self) -> None:
        """Raises ContradictsItself where it is of the whole job, and few ranks alone have the time it is about."""
        if not self.ranks and len(whose(self.times_us)):
            raise ContradictsItself("few ranks alone have the time that a finding on the whole job was made of")


@dataclass(frozen=True)
class Finding:
    """A cause of lost time, as a rule states it (units: microseconds per step).

    `unprofiled_us`: gain in a step without the profiler; None where no such step was timed. `by_ledger_us`: gain by
    ledger and blame alone; None where they give none. `alone_us`: gain where larger findings stay unfixed; None where
    that is `recoverable_us`. `waited_us`: time that each other rank waits for the finding's ranks; None where it names
    no rank. `basis` and `doubts`: values of Basis and Doubt; `grounds`: what the confidence was made of, in words. All
    are empty where a saved report does not say.
    """

    id: str
    summary: str
    ranks: tuple[Rank, ...]
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
    bound_of: Callable[[Any], str] | None = None  # the same by the measures, where the rule has several
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

    `ranks`: those that differ from the others, () where the whole job is meant. `severity`: "critical" where ranks no
    longer train one model, "warning" where the model learns less than intended, else "info".
    """

    id: str
    summary: str
    ranks: tuple[Rank, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    severity: Literal["critical", "warning", "info"] = "info"


@dataclass(frozen=True)
class Check:
    """A search for one kind of remark on the training. Without its facts it returns none."""

    id: str
    title: str
    detect: Callable[[Any], Iterator[Remark]]


def differs(bare_us: float | None, step_us: float) -> bool:
    """True where steps without the profiler (`bare_us`) are clearly longer or shorter than traced ones."""
    return bare_us is not None and abs(bare_us - step_us) >= PROFILED_SHARE * step_us


def told_gain(finding: Finding, step_us: float, bare_us: float | None) -> tuple[Recoverable, float]:
    """The gain that is told first, and its step, us: without the profiler (`bare_us`) where such steps differ, as the
    profiler's own time on the host makes what waits for the host look larger.
    """
    if bare_us is not None and finding.unprofiled_us is not None and differs(bare_us, step_us):
        return finding.unprofiled_us, bare_us
    return finding.recoverable_us, step_us


def severity_of(finding: Finding, step_us: float, bare_us: float | None) -> str:
    """Severity of a finding by the gain that is told. It is not "critical" where its range begins at next to nothing.
    It is "info" where, besides, its value is below that limit, its cause was deduced, or it accuses ranks and is as
    likely wrong as right.
    """
    gain, of_us = told_gain(finding, step_us, bare_us)
    by_share = severity(gain.value, of_us)
    if gain.low >= LINE_SHARE * of_us or by_share == "info":
        return by_share
    is_seen = by_share == "critical" and finding.basis != Basis.DEDUCED.value
    is_firm = finding.confidence > EVEN if finding.ranks else is_seen
    return "warning" if is_firm else "info"


def culprit(ranked: Sequence[Finding], step_us: float, bare_us: float | None) -> tuple[int, Finding] | None:
    """The first finding that names ranks to look at, with its number; ordered by gain, else by what the ranks cost."""
    for number, finding in enumerate(ranked, 1):
        costs_clearly = finding.lost_us >= NAMED_SHARE * step_us
        if finding.ranks and (costs_clearly or severity_of(finding, step_us, bare_us) != "info"):
            return number, finding
    return None


def severity(recoverable_us: float, step_us: float) -> str:
    """Severity of a gain by its share of the step."""
    share = recoverable_us / step_us if step_us > 0 else 0.0
    if share >= CRITICAL_SHARE:
        return "critical"
    return "warning" if share >= WARNING_SHARE else "info"
