"""A run in Perfetto's own format, a third of the size of the JSON that perfetto.py writes; for large runs.

A slice is a begin and an end on its track, so slices of one track must nest. Where they cross, as user ranges may, the
later one goes to another track.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ddprof.model import Kind, RankTrace
from ddprof.report import phrases
from ddprof.report.export import protobuf
from ddprof.report.model import Report
from ddprof.tables import Array, Table

# Parts of an exported trace that both formats share: slices of ranks, arrows and track names.


@dataclass(frozen=True)
class RankSlices:
    """One rank to write: its events, the shift to the run's zero time, and its steps."""

    rank: int
    trace: RankTrace
    shift_ns: int
    steps: Table


@dataclass(frozen=True)
class Arrow:
    """A wait: from an event of one rank to an event of another; tracks are rows of the ranks' tracks."""

    from_rank: int
    from_track: int
    from_ns: int  # on the run's clock
    to_rank: int
    to_track: int
    to_ns: int


def rank_label(report: Report, rank: int) -> str:
    """The name of a rank's process."""
    host = report.run.hosts.get(rank)
    return f"rank {rank}" + (f" on {host}" if host else "")


def track_label(track: Mapping[str, Any]) -> str:
    """The name of a track, from its row."""
    if track["stream"] is not None:
        return f"device {track['device']} stream {track['stream']}"
    return str(track["name"] or f"thread {track['tid']}")


FINDINGS_PROCESS = 1_000_000  # beyond any rank: the process of the findings, and its sequence
_BLOCK = 50_000  # packets per write
_MOST_LANES = 64  # of a track
_KINDS = 2 * (max(Kind) + 1)  # and whether it lasts
_CATEGORIES = [kind.name.lower() for kind in Kind]
_CATEGORY_OF = {int(kind): at for at, kind in enumerate(Kind, 1)}


class Sink(Protocol):
    """A file open for writing, compressed or not."""

    def write(self, data: bytes, /) -> object:
        """Add the bytes."""


def write_packets(out: Sink, report: Report, ranks: Iterable[RankSlices], arrows: Iterable[Arrow]) -> int:
    """Write the trace; returns the number of slices."""
    count = 0
    for item in ranks:
        count += len(item.trace.events)
        _rank(out, report, item)
    for number, arrow in enumerate(arrows, 1):
        out.write(_arrow(number, arrow))
    _findings(out, report)
    return count


def _process(rank: int) -> int:
    return (rank + 1) << 32


def _track(rank: int, row: int, lane: int = 0) -> int:
    """Track id of a row and lane of a rank; row -1 holds the steps."""
    return _process(rank) + 1 + (row + 1) * _MOST_LANES + lane


def _rank(out: Sink, report: Report, item: RankSlices) -> None:
    sequence = item.rank + 1
    out.write(protobuf.state(sequence, item.trace.strings, _CATEGORIES))
    out.write(protobuf.process_track(sequence, _process(item.rank), sequence, rank_label(report, item.rank)))
    out.write(protobuf.child_track(sequence, _track(item.rank, -1), _process(item.rank), "steps", 0))
    events = item.trace.events
    lanes = _lanes(events["track"].astype(np.int64), events["ts_ns"], events["dur_ns"])
    for row, track in enumerate(item.trace.tracks.rows()):
        label, place = track_label(track), row + (1 if track["stream"] is not None else 1000)
        used = int(lanes[events["track"] == row].max(initial=0)) + 1
        for lane in range(used):
            name = label if not lane else f"{label} ({lane + 1})"
            uuid = _track(item.rank, row, lane)
            out.write(protobuf.child_track(sequence, uuid, _process(item.rank), name, place))
    for step in item.steps.rows():
        bounds = np.array([step["start_ns"], step["end_ns"]]) - item.shift_ns
        out.write(_pair(sequence, _track(item.rank, -1), bounds, f"step {step['index']}", {}))
    for block in _slices(item, lanes):
        out.write(block)


def _slices(item: RankSlices, lanes: Array) -> Iterator[bytes]:
    """Begin and end packets in time order; at one instant inner ends, outer ends, outer begins, inner begins."""
    events = item.trace.events
    start_ns, dur_ns = events["ts_ns"] - item.shift_ns, events["dur_ns"]
    at_once = dur_ns <= 0
    row = np.arange(len(start_ns))
    ending = row[~at_once]
    rows = np.concatenate([row, ending])
    is_end = np.concatenate([np.zeros(len(row), bool), np.ones(len(ending), bool)])
    times_ns = np.where(is_end, start_ns[rows] + dur_ns[rows], start_ns[rows])
    inner_first = np.where(is_end, -start_ns[rows], -dur_ns[rows])
    order = np.lexsort((inner_first, np.where(is_end, 0, 1 + at_once[rows]), times_ns))
    around = _Around(item, lanes)
    for first in range(0, len(order), _BLOCK):
        chosen = order[first : first + _BLOCK]
        yield around.packets(rows[chosen], is_end[chosen], times_ns[chosen])


class _Around:
    """Packets of a rank's events without time stamps, made once per name and track."""

    def __init__(self, item: RankSlices, lanes: Array) -> None:
        events = item.trace.events
        self._rank, self._names = item.rank, max(len(item.trace.strings), 1)
        place = events["track"].astype(np.int64) * _MOST_LANES + lanes
        kind = events["kind"].astype(np.int64) * 2 + (events["dur_ns"] <= 0)
        self._keys, self._key_of = np.unique(
            (place * self._names + events["name"]) * _KINDS + kind, return_inverse=True
        )
        self._known: dict[tuple[int, bool], tuple[bytes, bytes]] = {}

    def packets(self, rows: Array, is_end: Array, times_ns: Array) -> bytes:
        """The packets of these rows, concatenated."""
        parts: list[bytes] = []
        kept = self._known
        wanted = zip(self._key_of[rows].tolist(), is_end.tolist(), protobuf.stamps(times_ns), strict=True)
        for key, end, stamp in wanted:
            packet = kept.get((key, end)) or self._make(key, end)
            parts += (packet[0], stamp, packet[1])
        return b"".join(parts)

    def _make(self, key: int, end: bool) -> tuple[bytes, bytes]:
        rest, kind = divmod(int(self._keys[key]), _KINDS)
        place, name = divmod(rest, self._names)
        track = _track(self._rank, *divmod(place, _MOST_LANES))
        kind, at_once = divmod(kind, 2)
        if end:
            event = protobuf.track_event(protobuf.END, track)
        else:
            what = protobuf.INSTANT if at_once else protobuf.BEGIN
            event = protobuf.track_event(what, track, name + 1, _CATEGORY_OF[kind])
        made = self._known[key, end] = protobuf.around(self._rank + 1, event)
        return made


def _lanes(track: Array, start_ns: Array, dur_ns: Array) -> Array:
    """Lane of each event on its track: 0 where it nests in the open ones, else the first in which it does."""
    lanes = np.zeros(len(track), np.int64)
    rows = np.lexsort((-dur_ns, start_ns, track))
    lane = 0
    while len(rows) and lane < _MOST_LANES - 1:
        crossing = _crossing(track[rows].tolist(), start_ns[rows].tolist(), (start_ns + dur_ns)[rows].tolist())
        rows = rows[crossing]
        lane += 1
        lanes[rows] = lane
    return lanes


def _crossing(tracks: list[int], starts_ns: list[int], ends_ns: list[int]) -> list[int]:
    """Positions of events that begin inside another one of their track and end after it."""
    crossing: list[int] = []
    opened: list[int] = []  # ends of what is open, the innermost last
    last = -1
    for at, (track, start, end) in enumerate(zip(tracks, starts_ns, ends_ns, strict=True)):
        if track != last:
            opened, last = [], track
        while opened and opened[-1] <= start:
            opened.pop()
        if opened and end > opened[-1]:
            crossing.append(at)
        elif end > start:
            opened.append(end)
    return crossing


def _pair(sequence: int, track: int, bounds_ns: Array, name: str, details: dict[str, str]) -> bytes:
    """Begin and end packets of a slice that carries its name."""
    first, last = protobuf.stamps(bounds_ns)
    before, behind = protobuf.around(sequence, protobuf.named_event(protobuf.BEGIN, track, name, details))
    ends, tail = protobuf.around(sequence, protobuf.track_event(protobuf.END, track))
    return before + first + behind + ends + last + tail


def _arrow(number: int, arrow: Arrow) -> bytes:
    # Two clocks agree to within their error only: an arrow never runs backwards.
    times_ns = np.array([arrow.from_ns, max(arrow.from_ns, arrow.to_ns)])
    parts, ends_of = [], ((arrow.from_rank, arrow.from_track, False), (arrow.to_rank, arrow.to_track, True))
    for stamp, (rank, row, ends) in zip(protobuf.stamps(times_ns), ends_of, strict=True):
        event = protobuf.flow_event(_track(rank, row), "waits for", number, ends)
        before, behind = protobuf.around(rank + 1, event)
        parts.append(before + stamp + behind)
    return b"".join(parts)


def _findings(out: Sink, report: Report) -> None:
    sequence, process = FINDINGS_PROCESS + 1, _process(FINDINGS_PROCESS)
    out.write(protobuf.state(sequence, (), ()))
    out.write(protobuf.process_track(sequence, process, FINDINGS_PROCESS, "ddprof findings"))
    for place, finding in enumerate(report.ranked_findings(), 1):
        facts = {"summary": finding.summary, "gain": phrases.gain_words(report, finding)}
        for at, evidence in enumerate(finding.evidence):
            if evidence.start_us is None or evidence.end_us is None:
                continue
            uuid = _track(
                FINDINGS_PROCESS, place * len(_CATEGORIES), at % _MOST_LANES
            )  # of its own: evidence may overlap
            name = f"{finding.id} ({phrases.who_words(finding)})"
            out.write(protobuf.child_track(sequence, uuid, process, name, place))
            bounds_ns = np.array([round(evidence.start_us * 1e3), round(evidence.end_us * 1e3)])
            out.write(_pair(sequence, uuid, bounds_ns, evidence.text, facts))
