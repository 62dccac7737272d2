"""Traces of several ranks that a tool put into one file, where each event states its rank (TraceLens)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from ddprof.readers.files.names import rank_in_name
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.json_text.scanned import Block, Decoder
from ddprof.readers.json_text.stream import EventStream
from ddprof.readers.json_text.trace_event import Event
from ddprof.readers.numbers import one_rank
from ddprof.readers.source import Source

_MOST_UNSTATED = 0.1  # of the spans: else some state the rank of a peer
_HEAD_BYTES = 1 << 16  # some hundred events: each of them states its rank
# Capitalised it is what a collective states, and in "distributedInfo" that of the whole file.
_STATED = re.compile(rb'"args"\s*:\s*\{[^{}]*"rank"\s*:\s*"?\d')


def merged_ranks(source: Source) -> list[str]:
    """The parts of a file whose events state several ranks; any other file is one part without a name."""
    if rank_in_name(source.member or source.path) is not None:
        return [""]
    with open_blocks(source.path, source.member) as blocks:
        chunks = iter(blocks)
        head = next(chunks, b"")
        if not _STATED.search(head, 0, _HEAD_BYTES):
            return [""]
        decoder = Decoder()
        stream = EventStream(chain((head,), chunks), decoder.decode, decoder.salvage)
        batches = (events for events in stream if not isinstance(events, Block))
        spans = Counter(rank_of(event) for events in batches for event in events if event and event.ph == "X")
    unstated = spans.pop(None, 0)
    is_merged = len(spans) > 1 and unstated <= _MOST_UNSTATED * spans.total()
    return [f"rank {rank}" for rank in sorted(rank for rank in spans if rank is not None)] if is_merged else [""]


def of_rank(events: Iterable[Event | None], part: str) -> list[Event | None]:
    """The events of the rank that `part` names."""
    rank = rank_in(part)
    return [event for event in events if rank_of(event) == rank]


def rank_in(part: str) -> int:
    """The rank of a part's name."""
    return int(part.split()[-1])


def rank_of(event: Event | None) -> int | None:
    """The rank that an event states."""
    return None if event is None or event.args is None else one_rank(event.args.of_rank)
