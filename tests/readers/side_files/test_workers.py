"""Fetches beside a sidecar: their cost, and their spans in the trace they belong to."""

import json
import os
from pathlib import Path

import kineto_text as kt
import numpy as np
import pytest
from msgspec.structs import replace
from reading import BASE_NS, one_trace, written_rank

from ddprof.model import Kind
from ddprof.readers.side_files import workers
from ddprof.readers.side_files.workers import read_fetches, summary, workers_path
from ddprof.sidecar import Fetch, Sidecar, TimedFetches

STEM = "rank0.host.1.0"


def folder_with(tmp_path: Path, lines: list[str]) -> Path:
    """A run of one rank with two steps and these lines of its workers."""
    events = [kt.span(f"ProfilerStep#{n}", 10**6 * n, 10**6, "user_annotation") for n in (1, 2)]
    written_rank(tmp_path / STEM, 0, 1, events)
    (tmp_path / f"{STEM}.workers.jsonl").write_text("\n".join(lines))
    return tmp_path


def fetch(worker: int, start_us: int, dur_us: int, **more: int) -> str:
    line = {"worker": worker, "start_ns": BASE_NS + 1000 * start_us, "dur_ns": 1000 * dur_us, "samples": 4}
    return json.dumps({**line, **more})


def test_spans_near_the_trace_become_lanes(tmp_path: Path) -> None:
    lines = [fetch(0, 900, 300), fetch(1, 1500, 400), fetch(1, 900_000, 400)]
    trace = one_trace(folder_with(tmp_path, lines))
    mine = trace.events.take(trace.events["kind"] == Kind.OTHER)
    assert [trace.strings[n] for n in mine["name"]] == ["DataLoader worker: fetch"] * 2
    assert mine["ts_ns"].tolist() == [BASE_NS + 900_000, BASE_NS + 1_500_000]
    assert [trace.tracks["name"][t] for t in mine["track"]] == ["DataLoader worker 0", "DataLoader worker 1"]


def test_few_fetches_that_wait_for_a_cpu_show_in_the_typical_one(tmp_path: Path) -> None:
    """The median fetch of five waits for nothing."""
    waits = [0, 0, 0, 0, 300_000, 300_000]
    lines = [fetch(0, 1000 * n, 100 + wait // 1000, waited_ns=wait) for n, wait in enumerate(waits)]
    fetches, _ = read_fetches(workers_path(str(folder_with(tmp_path, lines) / f"{STEM}.sidecar.json")), Sidecar())
    timed = summary(fetches)
    assert timed is not None and timed.fetch_ns == 100_000
    assert timed.waited_ns == pytest.approx(100_000 * 600 / (5 * 100 + 600), abs=1)


def test_cost_leaves_out_each_workers_start_and_fetches_of_the_training_process_are_its_own(tmp_path: Path) -> None:
    cost = {"cpu_ns": 90_000, "collate_ns": 10_000, "waited_ns": 4_000}
    lines = [fetch(w, 1000 * n, 5_000 if n == 0 else 100, **cost) for n in range(4) for w in (0, 1)]
    folder = folder_with(tmp_path, [*lines, '{"worker": 0, "st'])
    fetches, notes = read_fetches(workers_path(str(folder / f"{STEM}.sidecar.json")), Sidecar())
    timed = summary(fetches)
    assert timed is not None
    assert [(span.worker, span.dur_ns) for span in timed.spans] == [(0, 100_000), (1, 100_000)] * 3
    assert replace(timed, spans=()) == TimedFetches(2, 100_000, 4, (100_000,) * 20, **cost)
    assert ["1 unreadable" in note.issue for note in notes] == [True]
    own = tuple(Fetch(start_ns=n, dur_ns=50, cpu_ns=20, collate_ns=5, samples=2) for n in range(3))
    fetches, _ = read_fetches(None, Sidecar(fetches=own))
    timed = summary(fetches)
    assert timed is not None and timed.waited_ns is None
    assert (timed.workers, timed.fetch_ns, timed.samples) == (0, 50, 2)
    assert summary(np.empty((0, 7), np.int64)) is None


def test_a_file_that_is_none_or_too_long_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rank0.workers.jsonl"
    for make, words in ((os.mkfifo, "a named pipe"), (Path.touch, ""), (Path.unlink, "No such file")):
        make(path)
        rows, notes = read_fetches(str(path), Sidecar())
        assert len(rows) == 0 and all(words in note.issue for note in notes) and bool(words) == bool(notes)
        path.unlink(missing_ok=True) if make is os.mkfifo else None
    path.write_text("\n".join([fetch(0, 1, 1)] * 3))
    monkeypatch.setattr(workers, "MAX_RECORDS_BYTES", len(fetch(0, 1, 1)))
    rows, (note,) = read_fetches(str(path), Sidecar())
    assert len(rows) == 1 and "only its first" in note.issue


@pytest.mark.parametrize("value", ["Infinity", "NaN", "-1", "1" + "0" * 30, "[]", '"x"', "[" * 5000, "null"])
def test_a_duration_that_is_none_costs_its_line(tmp_path: Path, value: str) -> None:
    path = tmp_path / "rank0.workers.jsonl"
    path.write_text(f'{fetch(0, 1, 1)}\n{{"dur_ns": {value}}}\n')
    rows, (note,) = read_fetches(str(path), Sidecar())
    assert len(rows) == 1 and "1 unreadable lines" in note.issue
