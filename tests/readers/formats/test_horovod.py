"""Horovod timelines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import FORMATS, names, traces

from ddprof.errors import NoUsableInput
from ddprof.model import Kind, RankTrace


def test_horovod_rank_seven_is_last(shared_dir: Path) -> None:
    by_rank = {t.identity.rank: t for t in traces(shared_dir / FORMATS / "horovod_timeline")}
    assert sorted(by_rank) == [0, 1, 2, 4, 5, 6, 7] and by_rank[7].identity.world_size == 8
    arrival: dict[int, dict[int, int]] = {}
    for rank, trace in by_rank.items():
        for call in trace.collectives.rows():
            arrival.setdefault(call["seq"], {})[rank] = int(trace.events["ts_ns"][call["row"]])
    last = [max(its, key=lambda r: its[r]) for its in arrival.values()]
    assert (len(last), last.count(7)) == (90, 83)
    assert all(len(names(t, Kind.KERNEL)) == len(t.collectives) for t in by_rank.values())


PIDS = {"w": 0, "a": 1, "b": 2}


def written(folder: Path, events: list[dict[str, Any]]) -> list[RankTrace]:
    """The ranks of a timeline of these events."""
    (folder / "timeline.json").write_text(json.dumps(events))
    return traces(folder)


def steps(trace: RankTrace) -> list[tuple[float, float]]:
    """Start and length of each step, s."""
    marks = trace.events.take(trace.events["kind"] == Kind.ANNOTATION)
    start_s, length_s = marks["ts_ns"] / 1e9, marks["dur_ns"] / 1e9
    return list(zip((start_s - start_s[0]).round(6).tolist(), length_s.tolist(), strict=True))


def negotiation(op: str, tensor: str, start_s: float, ready_s: dict[int, float], end_s: float) -> list[dict[str, Any]]:
    """Events of a negotiation; `ready_s`: when each rank was ready."""
    begin = {"ph": "B", "name": f"NEGOTIATE_{op}", "ts": start_s * 1e6}
    ready = [{"ph": "X", "name": str(rank), "ts": at * 1e6, "dur": 0} for rank, at in ready_s.items()]
    return [{"pid": PIDS[tensor], **event} for event in (begin, *ready, {"ph": "E", "ts": end_s * 1e6})]


def training(count: int) -> list[dict[str, Any]]:
    """Parameters are broadcast for 30 s, then every second two tensors are reduced side by side."""
    events = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}} for name, pid in PIDS.items()]
    events += negotiation("BROADCAST", "w", 0.0, {1: 0.0, 0: 30.0}, 30.1)
    for at, tensor, later in ((31.0 + step, *of) for step in range(count) for of in (("a", 0.0), ("b", 0.1))):
        events += negotiation("ALLREDUCE", tensor, at + later, {0: at + later, 1: at + 0.3}, at + 0.6 + later)
    return events


def test_each_step_reduces_the_same_tensors_once_side_by_side_or_the_window_is_one(tmp_path: Path) -> None:
    assert [steps(trace) for trace in written(tmp_path, training(1))] == [[(0.0, 31.7)]] * 2
    ranks = written(tmp_path, training(4))
    assert any("took 30.1 s" in note.issue and note.effect == "not part of a step" for note in ranks[0].health)
    for trace in ranks:
        assert steps(trace) == [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 0.7)]
        kernels = trace.events.take(trace.events["kind"] == Kind.KERNEL)
        for track in np.unique(kernels["track"]):
            mine = kernels.take(kernels["track"] == track)
            assert (mine["ts_ns"][1:] >= (mine["ts_ns"] + mine["dur_ns"])[:-1]).all()
        assert trace.device.kind == "unknown"


def test_collectives_without_a_begin_or_an_end_are_left_out_and_said(tmp_path: Path) -> None:
    events = training(6)
    holes = [event for at, event in enumerate(events) if at % 7 != 3]
    for kept, severities in ((events[:-1], set()), (events[:-4] + events[-3:], {"error"}), (holes, {"error"})):
        for trace in written(tmp_path, kept):
            assert {note.severity for note in trace.health if "are missing beside" in note.issue} == severities


def test_a_collective_ends_before_one_whose_begin_is_missing(tmp_path: Path) -> None:
    events = training(3)
    events.remove([event for event in events if event["ph"] == "B"][3])
    for trace in written(tmp_path, events):
        lengths_s = trace.events["dur_ns"][trace.events["kind"] == Kind.KERNEL] / 1e9
        assert len(lengths_s) == 6 and (lengths_s[lengths_s < 30] < 0.8).all()


def test_a_timeline_that_was_cut_off_before_a_collective_ended_is_said_to_be(tmp_path: Path) -> None:
    *begun, _ = negotiation("ALLREDUCE", "a", 1e-5, {4: 1.2e-5}, 2e-5)
    with pytest.raises(NoUsableInput, match="no collective began and ended: it was cut off"):
        written(tmp_path, begun)
