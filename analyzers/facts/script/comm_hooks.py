"""Python communication hooks of DistributedDataParallel, from the ranges that capture records around them, and FSDP's
hooks around the passes of its units, from torch's own.
"""

from __future__ import annotations

import re

from ddprof.analyzers.facts.events import on_threads, rows_of, times
from ddprof.analyzers.facts.model import COMM_HOOKS, UNIT_HOOKS, RankFacts
from ddprof.analyzers.facts.names import matches
from ddprof.intervals import union
from ddprof.model import Kind, RankTrace
from ddprof.tables import Table

_RANGE = re.compile(r"^ddprof::comm_hook (.+)$")
_UNIT = re.compile(r"^FSDP::(?:pre|post)_(?:forward|backward)")  # torch/distributed/fsdp/_fully_shard


def comm_hooks(trace: RankTrace) -> Table:
    """COMM_HOOKS of all threads, by start; with a device, autograd's thread calls them."""
    return COMM_HOOKS.table(on_threads(trace.events, rows_of(trace, Kind.ANNOTATION, matches(_RANGE, trace.strings))))


def unit_hooks(trace: RankTrace) -> Table:
    """UNIT_HOOKS of all threads, by start; those within others are theirs."""
    start, end = union(*times(trace.events, rows_of(trace, Kind.ANNOTATION, matches(_UNIT, trace.strings))))
    return UNIT_HOOKS.table({"start_ns": start, "end_ns": end})


def hook_name(facts: RankFacts, name: int) -> str:
    """The function of a row of COMM_HOOKS: "train.py:88 compress()"."""
    match = _RANGE.match(facts.strings[name])
    return match.group(1) if match else facts.strings[name]
