"""Evidence on a rank that hangs, failed or was ended (its calls of collectives, its stack, its end), and the verdict.

Times are unix nanoseconds of the rank's own clock; what is not known is None or empty. `reading` fills the evidence
from flight-recorder dumps, stacks and sidecars, `judging` gives the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from ddprof.sidecar import Count

UNKNOWN_OP = "collective"  # of a call whose name is not recorded


class StackFrame(Struct, frozen=True):
    """One frame of a Python stack, as capture's files have it; `source`: the text of the line, "" if unknown."""

    file: str = "?"
    line: Count = 0
    function: str = ""
    source: str = ""


@dataclass(frozen=True)
class Call:
    """One collective, or one message between two ranks, as its rank called it.

    `number` counts the collectives of the group (of a message: those between the same two ranks, in its direction).
    `peer` is the other rank of a message, in the numbers of the job; None of a collective. `done`: the call has ended
    as it should. `started`: its kernel has begun to run; None where the backend does not record it. Sizes are shapes of
    the tensors, dtypes as torch spells them in a dump ("Float").
    """

    group: str
    number: int
    op: str
    done: bool
    started: bool | None = None
    peer: int | None = None
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    entered_ns: int | None = None
    left_ns: int | None = None
    timeout_ns: int | None = None
    frames: tuple[StackFrame, ...] = ()  # innermost first

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Distinct dtypes of its tensors, which they share even where only the root gives some."""
        return tuple(sorted({*self.input_dtypes, *self.output_dtypes} - {"Undefined"}))


@dataclass(frozen=True)
class Group:
    """A process group: torch's name for it, its description and its ranks (empty: not known)."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ending:
    """End of a rank. `how`: "running" (when last seen), "finished", "error" (an exception), "stopped" (by a signal that
    it handled), "ended" (by another one after the job had failed), "killed" (without a record) or "unknown"; `error`
    names the exception.
    """

    how: str = "unknown"
    at_ns: int | None = None
    error: str = ""
    message: str = ""
    frames: tuple[StackFrame, ...] = ()  # where the exception was raised, innermost first


@dataclass(frozen=True)
class WorkerEvidence:
    """A loader worker of a rank: the stack in which it was seen last, innermost frame first."""

    worker: int
    seen_ns: int
    frames: tuple[StackFrame, ...]


@dataclass(frozen=True)
class RankEvidence:
    """All that is known of one rank. `frames`: the stack of its training thread, innermost first."""

    rank: int
    host: str = ""
    world_size: int | None = None
    calls: tuple[Call, ...] = ()
    groups: Mapping[str, Group] = field(default_factory=dict)
    frames: tuple[StackFrame, ...] = ()
    ending: Ending = Ending()
    steps: int | None = None  # closed so far
    seen_ns: int | None = None  # when this was seen
    has_calls: bool = False  # a record of its calls was found, be it empty
    # Its calls are those of the script alone, while other ranks' hold those of DDP and FSDP too: their numbers differ.
    is_partial: bool = False
    workers: tuple[WorkerEvidence, ...] = ()


# What came first. The kinds are documented (docs/hangs.md) and never renamed.
KILLED = "killed"  # a rank died without a word
ERROR = "error"  # a rank raised an exception of its own
MISMATCH = "mismatch"  # ranks disagree about a collective: operation, shape or dtype
SKIPPED = "skipped"  # a rank went on without a collective that its peers wait in
NOT_ENTERED = "not_entered"  # a rank has not come to the collective that its peers wait in
ENDED = "ended"  # a rank had ended in order before a collective that its peers wait in
MESSAGE = "message"  # a message is awaited that nobody sent, or sent and not received
CROSSED = "crossed"  # ranks wait for one another, in different groups or for messages
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


_OWN = "/ddprof/capture/"
_LIBRARY_PLACES = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "<frozen ",
    "/shim/sitecustomize.py",
    "/torchinductor_",
    _OWN,
)
# Dumps that were made to be shared hold names of files without their folders.
_LIBRARY_FILES = {
    *("distributed_c10d.py", "c10d_logger.py", "functional.py", "_functional_collectives.py", "distributed.py"),
    *("spawn.py", "process.py", "popen_fork.py", "popen_spawn_posix.py", "threading.py", "queue.py", "selectors.py"),
    *("connection.py", "_tensor.py", "graph.py", "__init__.py", "module.py", "_utils.py", "dataloader.py"),
    *("eval_frame.py", "_contextlib.py", "contextlib.py", "runpy.py", "rendezvous.py", "<string>", "??"),
}


def is_library(frame: StackFrame) -> bool:
    """True for frames other than the user's own code."""
    path = frame.file.replace("\\", "/")
    if path.endswith(".pyx"):  # of a compiled module
        return True
    if "/" not in path:
        return path in _LIBRARY_FILES or path.startswith("<")
    return path.startswith("<") or any(place in path for place in _LIBRARY_PLACES)


def user_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """The innermost frame of the user, else the innermost outside capture; None without one."""
    others = [frame for frame in frames if _OWN not in frame.file.replace("\\", "/")]
    return next((frame for frame in others if not is_library(frame)), others[0] if others else None)
