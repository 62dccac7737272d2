"""The text log of a training job: iterations, timers, communication, and findings.

Times are milliseconds as the logs write them, sizes bytes, rates gigabits per second. Missing is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ddprof.report.log_reading import LogFinding

LIMITS = (
    "A log holds no events: what overlaps, what is idle and why is not in it. `ddprof run -- COMMAND` records that, "
    "with no change to the script."
)
DATA = "data"  # the wait for the next batch, whatever a loop calls it
DECILES_FROM = 10  # lines about iterations: a tenth of fewer is none


class LoggedIteration(NamedTuple):
    """One line about iterations: the time of one, or with `every` above 1 the mean since the last such line."""

    number: int
    mean_ms: float
    tflops: float | None = None  # per device and second, as the framework counts them
    batch: int | None = None  # samples of all ranks
    printed_ms: float | None = None  # where the clock says otherwise
    goes_on: bool = False  # first of an epoch that counts anew
    grain_ms: float = 0.0  # of a time by the lines' clock: so much it may be off


class TimerReading(NamedTuple):
    """One timer at one iteration, of all ranks or of one; `shortest_ms`: None where only the longest is written."""

    name: str
    longest_ms: float
    shortest_ms: float | None = None
    of_all_ranks: bool = False


class RankReading(NamedTuple):
    """One timer of one named rank at one logged iteration; `block`: which logged group of timers it stands in."""

    name: str
    block: int
    rank: int
    ms: float


@dataclass(frozen=True)
class LoggedCalls:
    """The calls of one operation with one message size. `tput_gbps`, `busbw_gbps`: gigaBITS per second, as logged."""

    op: str
    size_bytes: int
    count: int
    total_ms: float
    mean_ms: float
    tput_gbps: float | None
    busbw_gbps: float | None


@dataclass(frozen=True)
class LoggedStraggling:
    """Stragglers in calls of one operation and size: the shortest time of any rank, and this rank's excess."""

    op: str
    size_bytes: int
    count: int
    transfer_ms: float
    beyond_ms: float


@dataclass(frozen=True)
class LoggedDevices:
    """`mfu`: median share of the devices' peak rate; `memory`: the largest share in use; `retries`: allocations tried
    again after the cache was given back; `skipped`: steps that DeepSpeed skipped as gradients overflow, and all steps.
    """

    mfu: float | None = None
    memory: float | None = None
    retries: int = 0
    skipped: tuple[int, int] = 0, 0


@dataclass(frozen=True)
class LoggedTransports:
    """Transports by which NCCL joins ranks: `channels` of each ("P2P", "SHM", "NET/Socket", ...), the number of `ranks`
    in them, `why` that may be, its `warnings`, and the bandwidth that nccl-tests measured.
    """

    channels: dict[str, int] = field(default_factory=dict)
    ranks: int = 0
    why: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    bandwidth_gbs: float | None = None


@dataclass(frozen=True)
class LoggedRun:
    """A whole run as logged: its time, evaluations, what it took to begin, what passed `beside` training steps."""

    ms: float
    evaluations: int = 0
    evaluations_ms: float = 0.0
    before_ms: float = 0.0
    beside_ms: float = 0.0


@dataclass(frozen=True)
class TrainingLog:
    """One log, as tables. `sizes`: of the job and its groups by name ("world", "tensor", ...), as it states them.

    `means`: (iteration, ms printed, ms by the clock) where the printed time is not that iteration's. `lapses`:
    (iteration, ms by the clock since the line before, ms that iterations take of it). `error`: the error after the last
    iteration; "" without one. `at_once`: lines of each job that wrote the log at the same time.
    `nan_lines`: the last iterations, with a nan loss or gradients. `are_means`: of a loop, since a line before.
    `damage`: why it was read no further; "" where it was read to its end.
    """

    label: str
    writers: tuple[str, ...]
    iterations: tuple[LoggedIteration, ...] = ()
    timers: tuple[TimerReading, ...] = ()
    by_rank: tuple[RankReading, ...] = ()
    calls: tuple[LoggedCalls, ...] = ()
    straggling: tuple[LoggedStraggling, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    means: tuple[tuple[int, float, float], ...] = ()
    lapses: tuple[tuple[int, float, float], ...] = ()
    error: str = ""
    devices: LoggedDevices = LoggedDevices()
    at_once: Sequence[int] = ()
    transports: LoggedTransports = LoggedTransports()
    run: LoggedRun | None = None
    nan_lines: int = 0
    are_means: bool = False
    damage: str = ""


@dataclass(frozen=True)
class IterationSummary:
    """Time of an iteration: the number of lines used (without the first of each start), and their spread."""

    lines: int
    counted: int
    every: int  # iterations per line
    median_ms: float
    low_ms: float  # the tenth percentile, the shortest of fewer than DECILES_FROM
    high_ms: float  # the ninetieth, or the longest
    mean_ms: float
    printed_mean_ms: float  # as the lines print it, beside their timers
    slow: tuple[LoggedIteration, ...] = ()
    slow_share: float = 0.0  # of all the time, beyond the median, in the slow ones
    tflops: float | None = None
    samples_per_s: float | None = None
    unit: str = "iteration"  # or "epoch", where the log counts nothing else, or "bar step"

    @property
    def has_deciles(self) -> bool:
        """True where low and high are percentiles."""
        return self.counted >= DECILES_FROM


@dataclass(frozen=True)
class TimerRow:
    """One timer in a typical iteration. Only rows of `depth` 0, which are part of no other, can be added up.

    `share`: of the iteration or, where the log states no time of one, of the outermost timers.
    """

    name: str
    depth: int
    counted: int  # readings
    longest_ms: float
    shortest_ms: float | None
    share: float | None
    of_all_ranks: bool


@dataclass(frozen=True)
class CallRow:
    """Calls of one operation and size. Rates are gigaBYTES per second, from size and mean time by the formula of
    nccl-tests; `logged_ratio` is the log's own bus bandwidth in the same unit over ours."""

    op: str
    size_bytes: int
    count: int
    total_ms: float
    mean_ms: float
    busbw_gbs: float | None
    logged_busbw_gbs: float | None
    logged_ratio: float | None


@dataclass(frozen=True)
class LogReport:
    """The reading of one log: sentence, tables, findings, and the checks that were not possible with their reasons."""

    log: TrainingLog
    sentence: str
    iterations: IterationSummary | None
    timers: tuple[TimerRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    findings: tuple[LogFinding, ...] = ()
    abstained: tuple[str, ...] = ()
