"""Evidence on a rank that hangs, failed or was ended: its calls of collectives, its stack, its end.

Times are unix nanoseconds of the rank's own clock; what is not known is None or empty. `reading` fills these from
flight-recorder dumps, stacks and sidecars, `judging` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_OP = "collective"  # of a call whose name is not recorded


@dataclass(frozen=True)
class StackFrame:
    """One frame of a Python stack; `source` is the text of the line, "" where it could not be read."""

    file: str
    line: int
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
        """Distinct dtypes of its tensors, which a collective's tensors share, even where only the root gives or takes
        some; missing tensors have none (c10::toString(ScalarType)).
        """
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
