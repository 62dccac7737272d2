"""Jobs that hang, each as a recipe of calls, with the truth: kind, ranks, line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hang_dumps import Job

Play = Callable[[Job], None]


@dataclass(frozen=True)
class Case:
    """`ranks`: those that it begins with; `line` of train.py: where they are, or what they called."""

    play: Play
    kind: str
    ranks: tuple[int, ...]
    words: tuple[str, ...]


def usual(job: Job, steps: int = 3) -> None:
    """Steps as they should be: two all-reduces and a barrier."""
    for _ in range(steps):
        job.call("all_reduce", line=10)
        job.call("all_reduce", size=(8,), line=11)
        job.call("barrier", line=12)


def not_entered(job: Job) -> None:
    """Rank 2 does not come to the all-reduce that starts a step."""
    usual(job)
    job.call("all_reduce", ranks=[0, 1, 3], state="started", line=10)


def skipped(job: Job) -> None:
    """Rank 1 leaves out the second all-reduce and meets the others' in its barrier."""
    usual(job)
    job.call("all_reduce", line=10)
    job.call("all_reduce", ranks=[0, 2, 3], size=(8,), state="started", line=11)
    job.call("barrier", ranks=[1], state="started", line=12)


def skipped_and_went_on(job: Job) -> None:
    """The same, and the rank has come one call further, which gloo let pass."""
    usual(job)
    job.call("all_reduce", line=10)
    job.call("all_reduce", ranks=[0, 2, 3], size=(8,), state="started", line=11)
    job.call("barrier", ranks=[1], line=12)
    job.call("all_reduce", ranks=[1], state="started", line=10)


def skipped_among_equals(job: Job) -> None:
    """Rank 3 leaves out one of many equal all-reduces: only the lines tell, and the end of the record."""
    for _ in range(3):
        for line in (10, 11, 12):
            job.call("all_reduce", line=line)
    job.call("all_reduce", line=10)
    job.call("all_reduce", ranks=[0, 1, 2], line=11)
    job.call("all_reduce", ranks=[3], line=12)
    job.call("all_reduce", ranks=[0, 1, 2], state="started", line=12)


def other_shape(job: Job) -> None:
    """Rank 0 reduces a tensor of another shape."""
    usual(job)
    job.call("all_reduce", ranks=[0], size=(512,), state="started")
    job.call("all_reduce", ranks=[1, 2, 3], state="started")


def other_dtype(job: Job) -> None:
    """Rank 3 reduces in half precision."""
    usual(job)
    job.call("all_reduce", ranks=[0, 1, 2], state="started")
    job.call("all_reduce", ranks=[3], dtype="Half", state="started")


def other_operation(job: Job) -> None:
    """Rank 2 broadcasts while the others reduce."""
    usual(job)
    job.call("all_reduce", ranks=[0, 1, 3], state="started")
    job.call("broadcast", ranks=[2], line=20, state="started")


def two_groups(job: Job) -> None:
    """Rank 3 is late in group b; ranks 0 and 1 wait for rank 2 in group a, which waits for rank 3 in b."""
    usual(job)
    job.call("all_reduce", ranks=[2], group="b", line=30, state="started")
    job.call("all_reduce", ranks=[0, 1], group="a", line=31, state="started")


def crossed(job: Job) -> None:
    """Ranks 0 and 1 call in two groups of the same ranks in opposite order."""
    usual(job)
    job.call("all_reduce", ranks=[0], group="c", line=30, state="started")
    job.call("all_reduce", ranks=[1], group="d", line=31, state="started")


def lost_message(job: Job) -> None:
    """Rank 1 awaits a second message from rank 0, which sent one."""
    usual(job)
    job.call("send 0->1", ranks=[0], p2p=True, line=40)
    job.call("recv 1<-0", ranks=[1], p2p=True, line=41)
    job.call("recv 1<-0", ranks=[1], p2p=True, line=41, state="started")


def inside(job: Job) -> None:
    """All ranks are in the all-reduce, and it does not end; on rank 1 it has not begun."""
    usual(job)
    job.call("all_reduce", ranks=[0, 2, 3], state="started")
    job.call("all_reduce", ranks=[1], state="scheduled")


def healthy(job: Job) -> None:
    """Nothing is stuck."""
    usual(job)


GROUPS = {"a": ("tp", (0, 1, 2)), "b": ("dp", (2, 3)), "c": ("pp", (0, 1)), "d": ("ep", (0, 1))}
CASES = {
    "not entered": Case(not_entered, "not_entered", (2,), ("Rank 2 did not enter all_reduce 10", "train.py:10")),
    "skipped": Case(
        skipped, "skipped", (1,), ("Rank 1 went on to barrier (train.py:12", "without all_reduce (train.py:11")
    ),
    "skipped and went on": Case(
        skipped_and_went_on, "skipped", (1,), ("went on to barrier", "without all_reduce (train.py:11")
    ),
    "skipped among equals": Case(skipped_among_equals, "skipped", (3,), ("without all_reduce (train.py:11",)),
    "other shape": Case(other_shape, "mismatch", (0,), ("shape", "[512]", "[1024]")),
    "other dtype": Case(other_dtype, "mismatch", (3,), ("dtype", "Half", "Float")),
    "other operation": Case(
        other_operation, "mismatch", (2,), ("operation", "broadcast (train.py:20", "all_reduce (train.py:10")
    ),
    "two groups": Case(two_groups, "not_entered", (3,), ("group dp",)),
    "crossed": Case(crossed, "crossed", (0, 1), ("group pp", "group ep")),
    "lost message": Case(lost_message, "message", (0,), ("Rank 1 waits for message 2 from rank 0", "train.py:41")),
    "inside": Case(inside, "inside", (), ("all inside all_reduce 10", "on rank 1 its kernel has not begun")),
    "healthy": Case(healthy, "none", (), ("No collective is stuck",)),
}
