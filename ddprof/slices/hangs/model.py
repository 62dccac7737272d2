"""The verdict on a job that hangs or has failed. `judging` gives it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ddprof.slices.hangs.evidence import Call, StackFrame

# What came first. The kinds are documented (docs/hangs.md) and never renamed.
KILLED = "killed"  # a rank died without a word
ERROR = "error"  # a rank raised an exception of its own
MISMATCH = "mismatch"  # ranks disagree about a collective: operation, shape or dtype
SKIPPED = "skipped"  # a rank went on without a collective that its peers wait in
NOT_ENTERED = "not_entered"  # a rank has not come to the collective that its peers wait in
ENDED = "ended"  # a rank had ended in order before a collective that its peers wait in
MESSAGE = "message"  # a message is awaited that nobody sent, or sent and not received
CROSSED = "crossed"  # ranks wait for one another in different groups
INSIDE = "inside"  # all ranks of the group are inside, and it does not end
STORE = "store"  # ranks wait for a key of the store, or for their peers to join
AFTER = "after"  # every rank had ended its script in order, and the job stood still or failed after that
NONE = "none"  # nothing that was recorded is stuck


@dataclass(frozen=True)
class Stuck:
    """One collective (or message) that does not end.

    `entered`: ranks inside. `missing`: known ranks of the group outside; `unseen`: ranks without evidence. `variants`:
    the differing calls, where ranks disagree.
    """

    group: str
    number: int
    op: str
    entered: tuple[int, ...]
    missing: tuple[int, ...] = ()
    unseen: tuple[int, ...] = ()
    since_ns: int | None = None
    frame: StackFrame | None = None
    variants: tuple[Variant, ...] = ()
    differs: str = ""  # "operation", "shape", "dtype" where the ranks disagree
    passed: tuple[Passed, ...] = ()
    is_message: bool = False


@dataclass(frozen=True)
class Variant:
    """A call that some ranks made in place of the others'."""

    ranks: tuple[int, ...]
    call: Call


@dataclass(frozen=True)
class Passed:
    """A rank that skipped a call of its peers: that call, and its own instead."""

    rank: int
    left_out: Call
    instead: Call
    is_extra: bool = False  # `instead` is a call that the peers do not make at all


@dataclass(frozen=True)
class RankRow:
    """Last known state of a rank: `state` in words, the call it is inside, and its script line."""

    rank: int
    host: str
    state: str
    call: Call | None = None
    frame: StackFrame | None = None
    steps: int | None = None
    workers: tuple[WorkerRow, ...] = ()  # of its loader, those that it waits for


@dataclass(frozen=True)
class WorkerRow:
    """A loader worker that does not finish its batch, with its line."""

    worker: int
    frame: StackFrame


@dataclass(frozen=True)
class Hang:
    """The verdict. `ranks`: those at fault. `waiting`: those that wait because of them."""

    kind: str
    sentence: str
    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    stuck: tuple[Stuck, ...] = ()  # the one that came first, first
    frame: StackFrame | None = None  # the line of the ranks that it begins with
    rows: tuple[RankRow, ...] = ()
    notes: tuple[str, ...] = field(default=())

    timeout_s: float | None = None  # after which c10d gives up on the call that came first; None: not known

    @property
    def is_found(self) -> bool:
        """True where something is stuck or failed."""
        return self.kind != NONE
