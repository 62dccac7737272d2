"""Flight-recorder dumps as torch 2.4 to 2.13 writes them, NCCL and gloo, of jobs that `Job` plays call by call;
and jobs that hang, each as a recipe of calls, with the truth: kind, ranks, line."""

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# torch version -> version of the dump (torch/csrc/distributed/c10d: TraceUtils.h, NCCLUtils.hpp, FlightRecorder.hpp).
VERSIONS = {"2.4": "2.3", "2.5": "2.4", "2.6": "2.4", "2.7": "2.7", "2.8": "2.10", "2.13": "2.10"}
STARTED_NS = 1_800_000_000_000_000_000
SCRIPT, C10D = "/home/someone/train.py", "/x/site-packages/torch/distributed/distributed_c10d.py"


@dataclass
class Job:
    world: int
    torch: str = "2.8"
    backend: str = "nccl"
    groups: dict[str, tuple[str, Sequence[int]]] = field(default_factory=dict)  # name -> (description, ranks)
    entries: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    now_ns: int = STARTED_NS

    def __post_init__(self) -> None:
        self.groups = {"0": ("default_pg", range(self.world)), **self.groups}
        self.entries = {rank: [] for rank in range(self.world)}

    def call(
        self, op: str, ranks: Sequence[int] | None = None, size: Sequence[int] = (1024,), *, line: int = 10,
        dtype: str = "Float", group: str = "0", state: str = "completed", out: Sequence[int] | None = None,
        p2p: bool = False,
    ) -> None:  # fmt: skip
        """These ranks (None: all of the group) call `op` on line `line` of train.py."""
        members, gloo, done = self.groups[group][1], self.backend == "gloo", state == "completed"
        for rank in members if ranks is None else ranks:
            self.now_ns += 1_000_000
            number = 1 + sum(e["process_group"][0] == group and e["is_p2p"] == p2p for e in self.entries[rank])
            tensors = [] if op == "barrier" else [(list(size), list(size if out is None else out))]
            stack = ((op, C10D, 2500), ("train", SCRIPT, line), ("<module>", SCRIPT, 99))
            entry = {
                "frames": [{"name": name, "filename": file, "line": at} for name, file, at in stack],
                "record_id": len(self.entries[rank]), "pg_id": list(self.groups).index(group),
                "process_group": (group, self.groups[group][0]), "profiling_name": f"{self.backend}:{op}",
                "collective_seq_id": 0 if p2p else number, "p2p_seq_id": number if p2p else 0, "op_id": number,
                "input_sizes": [given for given, _ in tensors], "input_dtypes": [dtype] * len(tensors),
                "output_sizes": [taken for _, taken in tensors], "output_dtypes": [dtype] * len(tensors),
                "state": "scheduled" if gloo else state, "time_created_ns": self.now_ns,
                "time_discovered_started_ns": None if gloo or state == "scheduled" else self.now_ns + 1000,
                "time_discovered_completed_ns": self.now_ns + 2000 if done and not gloo else None,
                "retired": done, "timeout_ms": 600_000, "is_p2p": p2p,
            }  # fmt: skip
            if VERSIONS[self.torch] == "2.10":
                entry |= {"thread_id": "140216646159232", "thread_name": "python"}
            self.entries[rank].append(entry)

    def dump(self, rank: int) -> dict[str, Any]:
        """The dump of one rank; gloo's names no ranks."""
        library = "comm_lib_version" if VERSIONS[self.torch] == "2.10" else "nccl_version"
        own = {name: group for name, group in self.groups.items() if rank in group[1]}
        groups = {name: {"name": name, "desc": said, "ranks": str(list(of))} for name, (said, of) in own.items()}
        if self.backend == "gloo":
            groups = {"": {"name": "", "desc": "", "ranks": "[]"}}
        status = {"0": {"last_enqueued_collective": 1, "last_started_collective": 1, "last_completed_collective": 1}}
        head = {"version": VERSIONS[self.torch], "pg_config": groups, "pg_status": status}
        return {**head, **({library: "2.21.5"} if self.torch != "2.4" else {}), "entries": self.entries[rank]}

    def write(self, folder: Path, *, as_json: bool = False, ranks: Sequence[int] | None = None) -> Path:
        """The dumps of these ranks (None: all), named as NCCL names them."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(self.world) if ranks is None else ranks:
            content = json.dumps(self.dump(rank)).encode() if as_json else pickle.dumps(self.dump(rank))
            (folder / f"nccl_trace_rank_{rank}").write_bytes(content)
        return folder


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
    # Both receive first.
    "crossed messages": Case(
        (stuck(0, op="recv 0<-1", p2p=True, line=40), stuck(1, op="recv 1<-0", p2p=True, line=41)),
        "crossed", (0, 1), ("train.py:40", "train.py:41"),
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
