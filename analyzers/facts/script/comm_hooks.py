"""Python communication hooks of DistributedDataParallel, from the ranges that capture records around them, and FSDP's
hooks around the passes of its units, from torch's own.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.facts.model import COMM_HOOKS, RankFacts
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.facts.operation_tables import UNIT_HOOKS
from ddprof.intervals import union
from ddprof.model import Kind, RankTrace
from ddprof.tables import Table

_RANGE = re.compile(r"^ddprof::comm_hook (.+)$")
_UNIT = re.compile(r"^FSDP::(?:pre|post)_(?:forward|backward)")  # torch/distributed/fsdp/_fully_shard


def comm_hooks(trace: RankTrace) -> Table:
    """COMM_HOOKS of all threads, by start; with a device, autograd's thread calls them."""
    events = trace.events
    rows = np.flatnonzero(matches(_RANGE, trace.strings)[events["name"]] & (events["kind"] == Kind.ANNOTATION))
    rows = rows[np.argsort(events["ts_ns"][rows], kind="stable")]
    columns = {
        "start_ns": events["ts_ns"][rows],
        "end_ns": events["ts_ns"][rows] + events["dur_ns"][rows],
        "thread": events["track"][rows],
        "name": events["name"][rows],
    }
    return COMM_HOOKS.table(columns)


def unit_hooks(trace: RankTrace) -> Table:
    """UNIT_HOOKS of all threads, by start; those within others are theirs."""
    events = trace.events
    rows = np.flatnonzero(matches(_UNIT, trace.strings)[events["name"]] & (events["kind"] == Kind.ANNOTATION))
    start, end = union(events["ts_ns"][rows], events["ts_ns"][rows] + events["dur_ns"][rows])
    return UNIT_HOOKS.table({"start_ns": start, "end_ns": end})


def hook_name(facts: RankFacts, name: int) -> str:
    """The function of a row of COMM_HOOKS: "train.py:88 compress()"."""
    match = _RANGE.match(facts.strings[name])
    return match.group(1) if match else facts.strings[name]
