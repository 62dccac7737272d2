"""Flight-recorder dumps as torch 2.4 to 2.13 writes them, NCCL and gloo, of jobs that `Job` plays call by call."""

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
