"""Reads a written trace back, independently of the writer and of ddprof's readers (the standard json module only)."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.oracle import generate
from benchmarks.oracle.device import Collective, DeviceOp
from benchmarks.oracle.rank import Occupant

BLOCKING_CALL_US = 50.0  # a copy call this long waited for its copy


def load(folder: Path) -> tuple[dict[str, Any], dict[int, list[dict[str, Any]]]]:
    """The label and, by rank, the events of a scenario folder."""
    label = json.loads((folder / "label.json").read_text())
    events = {}
    for path in sorted((folder / "traces").glob("*.json.gz")):
        with gzip.open(path, "rt") as stream:
            trace = json.load(stream)
        info = trace.get("distributedInfo")
        rank = info["rank"] if info else path.name.split("rank")[1].split(".")[0]
        events[int(rank)] = trace["traceEvents"]
    return label, events


def generated(folder: Path, *words: str) -> dict[str, bytes]:
    """Files that the generator writes into a folder, by their places in it."""
    assert generate.main([str(folder), *words]) == 0
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def true_time(label: dict[str, Any], rank: int, first: float, last: float) -> Any:
    """A function from local to true time: the host's offset (and drift around the middle) taken away."""
    clock = label["clock"]["hosts"][label["hosts"][str(rank)]]
    offset, drift, middle = clock["offset_us"], clock["drift_ppm"] * 1e-6, (first + last) / 2
    return lambda ts: ts - offset - drift * (ts - middle)


def marks(events: list[dict[str, Any]]) -> list[float]:
    """The step marks: every step's start, and one microsecond after the last step's end."""
    ranges = (e for e in events if e.get("cat") == "user_annotation")
    steps = sorted((e["ts"], e["dur"]) for e in ranges if e["name"].startswith(("ProfilerStep", "training_step")))
    return [*(ts for ts, _ in steps), steps[-1][0] + steps[-1][1] + 1.0]


def occupants(events: list[dict[str, Any]]) -> list[Occupant]:
    """Activities of host threads, by the names in the trace."""
    named = {"Python GC": "gc", "save_checkpoint": "checkpoint", "cudaStreamSynchronize": "host_sync"}
    found = []
    for e in events:
        if e["ph"] != "X" or e.get("cat") in ("kernel", "gpu_memcpy", "gpu_user_annotation"):
            continue
        cause = "dataloader" if e["name"].startswith("enumerate(DataLoader)") else named.get(e["name"])
        if e["name"] == "cudaMemcpyAsync" and e["dur"] > BLOCKING_CALL_US:
            cause = "host_sync"
        if cause:
            found.append(Occupant(e["ts"], e["ts"] + e["dur"], cause))
    return found


def ranks_from(label: dict[str, Any], events: dict[int, list[dict[str, Any]]]) -> list[Any]:
    """Input of `ledger.booked` for each rank, in true time, with collectives matched across ranks."""
    met: dict[tuple[Any, ...], Collective] = {}
    result = []
    for rank, rows in sorted(events.items()):
        launches = {e["args"]["correlation"]: e["ts"] for e in rows if e.get("cat") == "cuda_runtime"}
        own = marks(rows)
        at = true_time(label, rank, own[0], own[-1])
        counts: dict[tuple[Any, ...], int] = defaultdict(int)
        ops = []
        device = [e for e in rows if e.get("cat") in ("kernel", "gpu_memcpy")]
        for e in sorted(device, key=lambda e: e["ts"]):
            comm = "ccl" in e["name"]
            cause = "comm" if comm else "compute" if e["cat"] == "kernel" else "memcpy"
            op = DeviceOp(rank, e["tid"], cause, e["name"], e["dur"])
            op.start, op.end = at(e["ts"]), at(e["ts"]) + e["dur"]
            op.launch_start = at(launches[e["args"]["correlation"]])
            if comm:
                op.collective = meet(met, counts, rank, e["args"])
                op.collective.members.append(op)
                op.collective.last_arrival = max(op.collective.last_arrival, op.start)
            ops.append(op)
        busy = [Occupant(at(o.start), at(o.end), o.cause) for o in occupants(rows)]
        result.append(SimpleNamespace(rank=rank, ops=ops, occupants=busy, marks=[at(t) for t in own]))
    return result


def meet(met: dict[Any, Collective], counts: dict[Any, int], rank: int, args: dict[str, Any]) -> Collective:
    """The rendezvous of a call: by group, or by pair for sends and receives, and by order."""
    peer = args.get("Dst Rank", args.get("Src Rank"))
    pair = tuple(sorted((rank, peer))) if peer is not None else ()
    channel = (args["Process Group Name"], args["Process Group Ranks"], pair)
    key = (*channel, counts[channel])
    counts[channel] += 1
    return met.setdefault(key, Collective(2 if pair else args["Group size"], 0.0, {}))
