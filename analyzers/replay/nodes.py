"""The one pass of a replay over the nodes of all ranks, in C where that was built (native/nodes.c)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ddprof.analyzers.replay.model import Node, Program
from ddprof.tables import Array

CHAIN, POST, FINISH, ANCHOR, BATCH = map(int, (Node.CHAIN, Node.POST, Node.FINISH, Node.ANCHOR, Node.BATCH))

try:
    _native: Any = import_module("ddprof.analyzers.replay._nodes")
except ImportError:  # not built, or on a machine of another kind
    _native = None


@dataclass(frozen=True)
class Times:
    """Times of a simulation, reference clock, ns, as int64 over all ranks, numbered as in the program."""

    host: memoryview  # beginning of each section
    ends: memoryview  # of each node
    starts: memoryview  # of each communication, by its node
    stream_end: memoryview
    latest: memoryview  # arrival at each instance


def filled(count: int, ns: int) -> memoryview:
    """So many times, all of them `ns`."""
    return memoryview(bytearray(np.full(count, ns, np.int64).tobytes())).cast("q")


def evaluate(program: Program, queue: Array, take: Array, beyond: Array, times: Times) -> None:
    """Evaluate every node once; `queue`, `take`, `beyond`: `Contracted`, by node of the program."""
    made = times.host, times.ends, times.starts, times.stream_end, times.latest
    contracted = queue.tobytes(), take.tobytes(), beyond.tobytes()
    if _native is None or os.environ.get("DDPROF_NATIVE", "1") == "0":
        _evaluate(program, contracted, times)
        return
    numbers = (program.node, program.track, program.dep, program.dep_lag, program.section)
    columns = [np.asarray(column).tobytes() for column in numbers]
    _native.run(bytes(program.kind), *columns, program.links, *contracted, *(column.obj for column in made))


def _evaluate(program: Program, contracted: tuple[bytes, ...], times: Times) -> None:
    host, ends, starts, stream_end, latest = times.host, times.ends, times.starts, times.stream_end, times.latest
    nodes = zip(
        *(program.kind, program.node, program.track, program.dep, program.dep_lag, program.section, program.links),
        *(memoryview(column).cast("q") for column in contracted),
        strict=True,
    )
    for kind, node, track, dep, dep_lag, section, links, queue, take, beyond in nodes:
        if kind == CHAIN:
            end = stream_end[track] + queue
            if dep >= 0 and ends[dep] + dep_lag > end:
                end = ends[dep] + dep_lag
            end += take
            launched = host[section] + beyond
            ends[node] = end = launched if launched > end else end
            if end > stream_end[track]:
                stream_end[track] = end
        elif kind == POST:
            start = stream_end[track] + queue
            if dep >= 0 and ends[dep] + dep_lag > start:
                start = ends[dep] + dep_lag
            launched = host[section] + beyond
            starts[node] = start = launched if launched > start else start
            for instance in links:
                if start > latest[instance]:
                    latest[instance] = start
        elif kind == FINISH:
            end = starts[node]
            for instance in links:
                if latest[instance] > end:
                    end = latest[instance]
            ends[node] = end = end + take
            if end > stream_end[track]:
                stream_end[track] = end
        else:
            call = host[section] + take
            if kind == ANCHOR:
                released = ends[dep] if dep >= 0 else call
                call = (released if released > call else call) + beyond
            elif kind == BATCH and dep_lag > call:
                call = dep_lag
            host[section + 1] = call
