"""What one file shows of the job it was recorded from: the evidence by which files are put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddprof.model import Identity

CollectiveKey = tuple[str, int]  # process group (its members, or its name where these are unknown), sequence number
CollectiveCall = tuple[str, int | None]  # operation, bytes where they must be equal on all members


@dataclass(frozen=True)
class Recording:
    """One rank's file.

    `window_ns`: first and last instant, unix time; None where its times are not unix time. `communications`: how many
    collectives and messages were recorded, `numbered` the collectives with a sequence number, `sequences` the first and
    last of these numbers in each process group, `groups` the process groups with more than one rank, as (name, size),
    `group_ranks` their members where stated.
    """

    identity: Identity
    path: str
    window_ns: tuple[int, int] | None = None
    communications: int = 0
    numbered: Mapping[CollectiveKey, CollectiveCall] = field(default_factory=dict)
    sequences: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    groups: frozenset[tuple[str, int]] = frozenset()
    group_ranks: frozenset[tuple[int, ...]] = frozenset()

    @property
    def states_rank(self) -> bool:
        """Whether the file itself, or the sidecar beside it, says which rank of which job it is."""
        return self.identity.source in ("distributedInfo", "sidecar") and self.identity.rank is not None

    def overlaps(self, other: Recording) -> bool | None:
        """Whether both were recorded at the same time; None where their times cannot be compared."""
        if self.window_ns is None or other.window_ns is None:
            return None
        return max(self.window_ns[0], other.window_ns[0]) < min(self.window_ns[1], other.window_ns[1])

    def lies_within(self, other: Recording) -> bool:
        """Whether most of the shorter of two recordings was made while the other was."""
        if self.window_ns is None or other.window_ns is None:
            return False
        both = min(self.window_ns[1], other.window_ns[1]) - max(self.window_ns[0], other.window_ns[0])
        return 2 * both > min(end - begin for begin, end in (self.window_ns, other.window_ns))
