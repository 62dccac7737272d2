"""Jobs that hang, each as a recipe of calls, with the truth: kind, ranks, line."""

from dataclasses import dataclass
from typing import Any

from hang_dumps import Job

Call = tuple[str, dict[str, Any]]  # operation, arguments of `Job.call`
REDUCE, BARRIER = ("all_reduce", {"line": 10}), ("barrier", {"line": 12})
USUAL: tuple[Call, ...] = (REDUCE, ("all_reduce", {"size": (8,), "line": 11}), BARRIER)


def stuck(*ranks: int, op: str = "all_reduce", **how: Any) -> Call:
    return op, {"ranks": ranks, "state": "started", **how}


@dataclass(frozen=True)
class Case:
    """`calls`: what comes after `before`, usual steps by default; `kind`, `ranks`: those that it begins with; `words`:
    of the sentence, with the line of train.py where they are, or what they called."""

    calls: tuple[Call, ...]
    kind: str
    ranks: tuple[int, ...]
    words: tuple[str, ...]
    before: tuple[Call, ...] = 3 * USUAL


GROUPS = {"a": ("tp", (0, 1, 2)), "b": ("dp", (2, 3)), "c": ("pp", (0, 1)), "d": ("ep", (0, 1))}
EQUAL: tuple[Call, ...] = tuple(("all_reduce", {"line": line}) for line in (10, 11, 12))
SECOND = stuck(0, 2, 3, size=(8,), line=11)
CROSSED = (stuck(0, group="c", line=30), stuck(1, group="d", line=31))
SENT = (("send 0->1", {"ranks": [0], "p2p": True, "line": 40}), ("recv 1<-0", {"ranks": [1], "p2p": True, "line": 41}))
CASES = {
    "not entered": Case((stuck(0, 1, 3),), "not_entered", (2,), ("Rank 2 did not enter all_reduce 10", "train.py:10")),
    # Rank 1 leaves out the second all-reduce and meets the others' in its barrier.
    "skipped": Case(
        (REDUCE, SECOND, stuck(1, op="barrier", line=12)),
        "skipped", (1,), ("Rank 1 went on to barrier (train.py:12", "without all_reduce (train.py:11"),
    ),
    # The same, and the rank has come one call further, which gloo let pass.
    "skipped and went on": Case(
        (REDUCE, SECOND, ("barrier", {"ranks": [1], "line": 12}), stuck(1)),
        "skipped", (1,), ("went on to barrier", "without all_reduce (train.py:11"),
    ),
    # Rank 3 leaves out one of many equal all-reduces: only the lines tell, and the end of the record.
    "skipped among equals": Case(
        (
            EQUAL[0], ("all_reduce", {"ranks": [0, 1, 2], "line": 11}), ("all_reduce", {"ranks": [3], "line": 12}),
            stuck(0, 1, 2, line=12),
        ),
        "skipped", (3,), ("without all_reduce (train.py:11",), before=3 * EQUAL,
    ),
    "other shape": Case((stuck(0, size=(512,)), stuck(1, 2, 3)), "mismatch", (0,), ("shape", "[512]", "[1024]")),
    "other dtype": Case((stuck(0, 1, 2), stuck(3, dtype="Half")), "mismatch", (3,), ("dtype", "Half", "Float")),
    "other operation": Case(
        (stuck(0, 1, 3), stuck(2, op="broadcast", line=20)),
        "mismatch", (2,), ("operation", "broadcast (train.py:20", "all_reduce (train.py:10"),
    ),
    # Rank 3 is late in group b; ranks 0 and 1 wait for rank 2 in group a, which waits for rank 3 in b.
    "two groups": Case(
        (stuck(2, group="b", line=30), stuck(0, 1, group="a", line=31)), "not_entered", (3,), ("group dp",)
    ),
    # Ranks 0 and 1 call in two groups of the same ranks in opposite order.
    "crossed": Case(CROSSED, "crossed", (0, 1), ("group pp", "group ep")),
    # The same, and ranks 2 and 3 wait for both in the job's group: they are no part of the circle.
    "crossed and awaited": Case(
        (*CROSSED, stuck(2, 3)), "crossed", (0, 1), ("Ranks 0, 1 wait for one another", "group pp", "group ep")
    ),
    # Rank 1 awaits a second message from rank 0, which sent one.
    "lost message": Case(
        (*SENT, stuck(1, op="recv 1<-0", p2p=True, line=41)),
        "message", (0,), ("Rank 1 waits for message 2 from rank 0", "train.py:41"),
    ),
    "inside": Case(
        (stuck(0, 2, 3), stuck(1, state="scheduled")),
        "inside", (), ("all inside all_reduce 10", "on rank 1 its kernel has not begun"),
    ),
    "healthy": Case((), "none", (), ("No collective is stuck",)),
}  # fmt: skip


def played(name: str, torch: str = "2.8", backend: str = "nccl") -> Job:
    """A job of four ranks that hangs like this."""
    job = Job(4, torch, backend, dict(GROUPS))
    for op, how in (*CASES[name].before, *CASES[name].calls):
        job.call(op, **how)
    return job
