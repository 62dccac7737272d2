"""Jobs that hang, each as a recipe of calls, with the truth: kind, ranks, line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hang_dumps import Job

Play = Callable[[Job], None]


@dataclass(frozen=True)
class Case:
    """`ranks`: those that it begins with; `words` of the sentence: where they are, or what they called."""

    play: Play
    kind: str
    ranks: tuple[int, ...]
    words: tuple[str, ...]


def after_steps(*calls: tuple[str, dict[str, Any]]) -> Play:
    """Three steps as they should be, of two all-reduces and a barrier, and then these calls."""
    usual = [("all_reduce", {}), ("all_reduce", {"size": (8,), "line": 11}), ("barrier", {"line": 12})] * 3

    def play(job: Job) -> None:
        for name, more in (*usual, *calls):
            job.call(name, **more)

    return play


def stuck(name: str, *ranks: int, line: int = 10, **more: Any) -> tuple[str, dict[str, Any]]:
    """A call of these ranks that does not end."""
    return name, {"ranks": ranks, "line": line, "state": "started", **more}


def ended(name: str, *ranks: int, line: int = 10, **more: Any) -> tuple[str, dict[str, Any]]:
    """A call of these ranks (none: of all) that ended."""
    return name, {"ranks": ranks or None, "line": line, **more}


# Rank 1 leaves out the second all-reduce and meets the others' in its barrier, or one call further: gloo let it pass.
WITHOUT_SECOND = (ended("all_reduce"), stuck("all_reduce", 0, 2, 3, size=(8,), line=11))


def skipped_among_equals(job: Job) -> None:
    """Rank 3 leaves out one of many equal all-reduces: only the lines tell, and the end of the record."""
    for line in (10, 11, 12) * 3 + (10,):
        job.call("all_reduce", line=line)
    job.call("all_reduce", ranks=[0, 1, 2], line=11)
    job.call("all_reduce", ranks=[3], line=12)
    job.call("all_reduce", ranks=[0, 1, 2], state="started", line=12)


GROUPS = {"a": ("tp", (0, 1, 2)), "b": ("dp", (2, 3)), "c": ("pp", (0, 1)), "d": ("ep", (0, 1))}
CASES = {
    "not entered": Case(
        after_steps(stuck("all_reduce", 0, 1, 3)), "not_entered", (2,),
        ("Rank 2 did not enter all_reduce 10", "train.py:10"),
    ),
    "skipped": Case(
        after_steps(*WITHOUT_SECOND, stuck("barrier", 1, line=12)), "skipped", (1,),
        ("Rank 1 went on to barrier (train.py:12", "without all_reduce (train.py:11"),
    ),
    "skipped and went on": Case(
        after_steps(*WITHOUT_SECOND, ended("barrier", 1, line=12), stuck("all_reduce", 1)), "skipped", (1,),
        ("went on to barrier", "without all_reduce (train.py:11"),
    ),
    "skipped among equals": Case(skipped_among_equals, "skipped", (3,), ("without all_reduce (train.py:11",)),
    "other shape": Case(
        after_steps(stuck("all_reduce", 0, size=(512,)), stuck("all_reduce", 1, 2, 3)), "mismatch", (0,),
        ("shape", "[512]", "[1024]"),
    ),
    "other dtype": Case(
        after_steps(stuck("all_reduce", 0, 1, 2), stuck("all_reduce", 3, dtype="Half")), "mismatch", (3,),
        ("dtype", "Half", "Float"),
    ),
    "other operation": Case(
        after_steps(stuck("all_reduce", 0, 1, 3), stuck("broadcast", 2, line=20)), "mismatch", (2,),
        ("operation", "broadcast (train.py:20", "all_reduce (train.py:10"),
    ),
    # Rank 3 is late in group b; ranks 0 and 1 wait for rank 2 in group a, which waits for rank 3 in b.
    "two groups": Case(
        after_steps(stuck("all_reduce", 2, group="b", line=30), stuck("all_reduce", 0, 1, group="a", line=31)),
        "not_entered", (3,), ("group dp",),
    ),
    # Ranks 0 and 1 call in two groups of the same ranks in opposite order.
    "crossed": Case(
        after_steps(stuck("all_reduce", 0, group="c", line=30), stuck("all_reduce", 1, group="d", line=31)),
        "crossed", (0, 1), ("group pp", "group ep"),
    ),
    "lost message": Case(
        after_steps(
            ended("send 0->1", 0, p2p=True, line=40), ended("recv 1<-0", 1, p2p=True, line=41),
            stuck("recv 1<-0", 1, p2p=True, line=41),
        ),
        "message", (0,), ("Rank 1 waits for message 2 from rank 0", "train.py:41"),
    ),
    "inside": Case(
        after_steps(stuck("all_reduce", 0, 2, 3), stuck("all_reduce", 1, state="scheduled")), "inside", (),
        ("all inside all_reduce 10", "on rank 1 its kernel has not begun"),
    ),
    "healthy": Case(after_steps(), "none", (), ("No collective is stuck",)),
}  # fmt: skip
