"""Horovod timelines."""

import json
from pathlib import Path

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
        for row, seq in zip(trace.collectives["row"].tolist(), trace.collectives["seq"].tolist(), strict=True):
            arrival.setdefault(seq, {})[rank] = int(trace.events["ts_ns"][row])
    last = [max(its, key=lambda r: its[r]) for its in arrival.values()]
    assert (len(last), last.count(7)) == (90, 83)
    assert all(len(names(t, Kind.KERNEL)) == len(t.collectives) for t in by_rank.values())


def timeline(folder: Path, *negotiations: tuple[str, str, float, dict[int, float], float]) -> list[RankTrace]:
    """The ranks of a timeline of some negotiations: operation, tensor, start, when each rank was ready, end (s)."""
    events: list[dict[str, object]] = []
    pids = {tensor: pid for pid, tensor in enumerate(dict.fromkeys(tensor for _, tensor, *_ in negotiations))}
    for tensor, pid in pids.items():
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": tensor}})
    for op, tensor, start, ready, end in negotiations:
        pid = pids[tensor]
        events.append({"ph": "B", "pid": pid, "name": f"NEGOTIATE_{op}", "ts": start * 1e6})
        events += [{"ph": "X", "pid": pid, "name": str(rank), "ts": at * 1e6, "dur": 0} for rank, at in ready.items()]
        events.append({"ph": "E", "pid": pid, "ts": end * 1e6})
    (folder / "timeline.json").write_text(json.dumps(events))
    return traces(folder)


def steps(trace: RankTrace) -> list[tuple[float, float]]:
    """Start and length of each step, s."""
    marks = trace.events["kind"] == Kind.ANNOTATION
    start_s, length_s = (trace.events[column][marks] / 1e9 for column in ("ts_ns", "dur_ns"))
    return list(zip((start_s - start_s[0]).round(6).tolist(), length_s.tolist(), strict=True))


def training(count: int) -> list[tuple[str, str, float, dict[int, float], float]]:
    """Parameters are broadcast for 30 s, then every second two tensors are reduced side by side."""
    found = [("BROADCAST", "w", 0.0, {1: 0.0, 0: 30.0}, 30.1)]
    for step in range(count):
        begin = 31.0 + step
        for tensor, later in (("a", 0.0), ("b", 0.1)):
            found.append(("ALLREDUCE", tensor, begin + later, {0: begin + later, 1: begin + 0.3}, begin + 0.6 + later))
    return found


def test_each_step_reduces_the_same_tensors_once_side_by_side_or_the_window_is_one(tmp_path: Path) -> None:
    assert [steps(trace) for trace in timeline(tmp_path, *training(1))] == [[(0.0, 31.7)]] * 2
    found = timeline(tmp_path, *training(4))
    assert any("took 30.1 s" in note.issue and note.effect == "not part of a step" for note in found[0].health)
    for trace in found:
        assert steps(trace) == [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 0.7)]
        kernels = trace.events["kind"] == Kind.KERNEL
        for track in np.unique(trace.events["track"][kernels]):
            mine = kernels & (trace.events["track"] == track)
            start, dur = trace.events["ts_ns"][mine], trace.events["dur_ns"][mine]
            assert (start[1:] >= (start + dur)[:-1]).all()
        assert trace.device.kind == "unknown"


def test_collectives_without_a_begin_or_an_end_are_left_out_and_said(tmp_path: Path) -> None:
    timeline(tmp_path, *training(6))
    events = json.loads((tmp_path / "timeline.json").read_text())
    holes = [event for at, event in enumerate(events) if at % 7 != 3]
    for kept, severities in ((events[:-1], set()), (events[:-4] + events[-3:], {"error"}), (holes, {"error"})):
        (tmp_path / "timeline.json").write_text(json.dumps(kept))
        for trace in traces(tmp_path):
            assert {note.severity for note in trace.health if "are missing beside" in note.issue} == severities


def test_a_collective_ends_before_one_whose_begin_is_missing(tmp_path: Path) -> None:
    timeline(tmp_path, *training(3))
    events = json.loads((tmp_path / "timeline.json").read_text())
    begins = [at for at, event in enumerate(events) if event.get("ph") == "B"]
    (tmp_path / "timeline.json").write_text(json.dumps(events[: begins[3]] + events[begins[3] + 1 :]))
    for trace in traces(tmp_path):
        lengths_s = trace.events["dur_ns"][trace.events["kind"] == Kind.KERNEL] / 1e9
        assert len(lengths_s) == 6 and (lengths_s[lengths_s < 30] < 0.8).all()


def test_a_timeline_that_was_cut_off_before_a_collective_ended_is_said_to_be(tmp_path: Path) -> None:
    begun = [
        {"ph": "B", "pid": 1, "name": "NEGOTIATE_ALLREDUCE", "ts": 10},
        {"ph": "X", "pid": 1, "name": "4", "ts": 12},
    ]
    (tmp_path / "timeline.json").write_text(json.dumps(begun))
    with pytest.raises(NoUsableInput, match="no collective began and ended: it was cut off"):
        traces(tmp_path)
