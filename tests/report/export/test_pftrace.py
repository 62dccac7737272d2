"""Perfetto's own format, read back by Google's decoder of protocol buffers, which knows nothing of the encoder."""

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddprof.analyzers.engine import Options, load_runs
from ddprof.readers import read
from ddprof.report.export.perfetto import write_perfetto
from ddprof.report.export.pftrace import Arrow, RankSlices, _crossing, _lanes
from ddprof.report.export.protobuf import ZERO_NS, stamps, varint
from ddprof.report.model import Report

empty_pb2 = pytest.importorskip("google.protobuf.empty_pb2")
unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")
Fields = dict[int, list[Any]]


def decoded(data: bytes) -> Fields:
    """The fields of a message by number; lengths must fit exactly."""
    fields: Fields = defaultdict(list)
    for field in unknown_fields.UnknownFieldSet(empty_pb2.Empty.FromString(data)):
        fields[field.field_number].append(field.data)
    return fields


class Trace:
    """Contents as the UI would show them: slices by track, names of tracks, arrows."""

    def __init__(self, data: bytes) -> None:
        self.slices: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        self.instants: dict[int, list[tuple[str, int]]] = defaultdict(list)
        self.names: dict[int, str] = {}
        self.parents: dict[int, int] = {}
        self.flows: dict[int, list[tuple[int, int]]] = defaultdict(list)
        open_slices: dict[int, list[tuple[str, int]]] = defaultdict(list)
        interned: dict[int, dict[int, str]] = {}
        for packet in map(decoded, decoded(data)[1]):
            (sequence,) = packet[10]
            if packet[12]:
                pairs = [decoded(entry) for entry in decoded(packet[12][0])[2]]
                interned[sequence] = {p[1][0]: p[2][0].decode() for p in pairs}
            if packet[60]:
                track = decoded(packet[60][0])
                self.names[track[1][0]] = (track[2] or decoded(track[3][0])[6])[0].decode()
                self.parents |= {track[1][0]: track[5][0]} if track[5] else {}
            if packet[11]:
                event, at = decoded(packet[11][0]), packet[8][0] - ZERO_NS
                self._event(event, at, open_slices, interned[sequence])
        assert not any(open_slices.values())

    def _event(self, event: Fields, at: int, open_slices: dict[int, list[tuple[str, int]]], names: Any) -> None:
        (kind,), (track,) = event[9], event[11]
        assert track in self.names
        name = event[23][0].decode() if event[23] else names[event[10][0]] if event[10] else ""
        if kind == 1:
            open_slices[track].append((name, at))
        elif kind == 2:
            begun, start = open_slices[track].pop()
            self.slices[track].append((begun, start, at - start))
        else:
            self.instants[track].append((name, at))
        for flow in (*event[47], *event[48]):
            self.flows[flow].append((track, at))


@pytest.fixture(scope="module")
def written(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    (run,) = load_runs([str(repo_root / "sample_traces" / "late_loader" / "traces")], Options(cache=False))
    ranks = zip(run.job.rank_ids, run.job.ranks, strict=True)
    items = [RankSlices(rank, read(run.sources[of.path]), run.job.origin_ns, of.steps) for rank, of in ranks]
    file = tmp_path_factory.mktemp("pf") / "x.pftrace.gz"
    count = write_perfetto(file, run.report, items, [Arrow(2, 0, 5_000, 0, 1, 4_000)])
    with gzip.open(file, "rb") as packed:
        yield items, count, Trace(packed.read()), run.report


def test_every_event_comes_back_with_its_name_and_times(written: Any) -> None:
    items, count, trace, _ = written
    assert count == sum(len(item.trace.events) for item in items)
    for item in items:
        events, strings = item.trace.events, item.trace.strings
        rows = zip(events["name"], events["ts_ns"] - item.shift_ns, events["dur_ns"], strict=True)
        wanted = Counter((strings[name], int(start), max(int(dur), 0)) for name, start, dur in rows)
        mine = {uuid for uuid in trace.names if uuid >> 32 == item.rank + 1 and trace.names[uuid] != "steps"}
        found = Counter(one for uuid in mine for one in trace.slices[uuid])
        found.update((name, at, 0) for uuid in mine for name, at in trace.instants[uuid] if name != "waits for")
        assert found == wanted
        steps = next(uuid for uuid in trace.names if uuid >> 32 == item.rank + 1 and trace.names[uuid] == "steps")
        assert len(trace.slices[steps]) == len(item.steps)


def test_tracks_lie_below_their_rank_and_findings_are_tracks(written: Any) -> None:
    items, _, trace, report = written
    roots = {trace.names[parent] for parent in trace.parents.values()}
    assert roots == {*(f"rank {item.rank} on node00" for item in items), "ddprof findings"}
    (finding,) = [f for f in report.findings if f.id == "input.straggler"]
    shown = {trace.names[uuid] for uuid, slices in trace.slices.items() if slices}
    assert any(name.startswith(f"{finding.id} (rank 2") for name in shown)
    # An arrow joins two tracks and never runs backwards.
    assert list(trace.flows) == [1]
    (first, at), (second, later) = trace.flows[1]
    assert (first >> 32, second >> 32) == (3, 1) and (at, later) == (5_000, 5_000)


def test_ranges_that_cross_go_to_another_lane_and_stamps_are_varints_of_their_times() -> None:
    #                 outer    inner   crosses outer   crosses that one too    after all
    starts, ends = [0, 10, 50, 60, 200], [100, 40, 150, 170, 210]
    assert _crossing([0] * 5, starts, ends) == [2, 3] and _crossing([0, 0, 1, 2, 2], starts, ends) == []
    assert _lanes(np.zeros(5, np.int64), np.array(starts), np.subtract(ends, starts)).tolist() == [0, 0, 1, 2, 0]
    times_ns = [0, -1, 1, 2**51, -(2**51), 123_456_789_000]
    assert [stamps(np.array([ns])) for ns in times_ns] == [[varint(ns + ZERO_NS)] for ns in times_ns]


def test_crossing_ranges_keep_their_lengths(straggler_report: Report, written: Any, tmp_path: Path) -> None:
    first = written[0][0]
    rows = first.trace.events.take(np.arange(4))
    rows = rows.replace(track=np.zeros(4), ts_ns=[-10, 0, 40, 60], dur_ns=[50, 50, 40, 0])
    item = RankSlices(0, replace(first.trace, events=rows), 0, first.steps.take(np.zeros(0, int)))
    file = tmp_path / "x.pftrace"
    assert write_perfetto(file, straggler_report, [item], []) == 4
    back = Trace(file.read_bytes())
    mine = [one for uuid, slices in back.slices.items() if uuid >> 32 == 1 for one in slices]
    assert sorted((start, dur) for _, start, dur in mine) == [(-10, 50), (0, 50), (40, 40)]
    assert [at for uuid, found in back.instants.items() if uuid >> 32 == 1 for _, at in found] == [60]
