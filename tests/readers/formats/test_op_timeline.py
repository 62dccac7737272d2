"""Operation-level timelines of Megatron jobs."""

import json
from pathlib import Path

import numpy as np
import pytest
from reading import traces

from ddprof.model import Kind, RankTrace
from ddprof.readers import discover
from ddprof.readers.formats.op_timeline import TimelineOperations, _with_waits

FORWARD = {"ph": "X", "pid": 0, "tid": 0, "name": "forward-compute", "dur": 5}
STAGE = {"ph": "M", "pid": 0, "tid": 0, "name": "thread_name"}
FOLDER = "traces/multi_rank/megatron_pp_last_stage_slow_8gpu"


@pytest.fixture(scope="module")
def workers(shared_dir: Path) -> list[RankTrace]:
    return traces(shared_dir / FOLDER)


def test_pipeline_timeline_workers_and_their_messages_pair_up(workers: list[RankTrace]) -> None:
    assert [t.identity.rank for t in workers] == list(range(8))
    forward = [t.events["name"] == list(t.strings).index("forward-compute") for t in workers]
    compute = [float(np.median(t.events["dur_ns"][mine])) for t, mine in zip(workers, forward, strict=True)]
    assert min(compute[6:]) > 1.15 * max(compute[:6])  # the last stage is slow
    for trace in workers:
        marks = trace.events.take(trace.events["kind"] == Kind.ANNOTATION)
        np.testing.assert_array_equal(marks["ts_ns"][1:], (marks["ts_ns"] + marks["dur_ns"])[:-1])
        assert len(marks) == 32 and abs(float(marks["dur_ns"].mean()) / 1e9 - 2.2144) < 0.001
    calls = [(t.strings[row["op"]], t.identity.rank, row) for t in workers for row in t.collectives.rows()]
    sent = {(rank, row["dst"]) for op, rank, row in calls if op == "send"}
    assert sent == {(row["src"], rank) for op, rank, row in calls if op == "recv"} and len(sent) == 12


def test_timeline_json_gives_the_parquets_waits(workers: list[RankTrace], shared_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "timeline-ST.json.gz").symlink_to(shared_dir / FOLDER / "timeline-ST.json.gz")
    from_json = traces(tmp_path)
    for a, b in zip(from_json, workers, strict=True):
        busy_a, busy_b = (int(t.events["dur_ns"][t.events["kind"] == Kind.KERNEL].sum()) for t in (a, b))
        assert abs(busy_a - busy_b) < 0.05 * busy_b
    assert "transfers only, no waits" in from_json[0].health[0].issue


def starts_with_waits(*spans: tuple[str, float, float]) -> list[float]:
    """Starts of one worker's operations (s), their waits included. Spans: name, start and length of transfer."""
    names, starts_s, lengths_s = zip(*spans, strict=True)
    start_ns, dur_ns = ((np.array(times_s) * 1e9).round().astype(np.int64) for times_s in (starts_s, lengths_s))
    zeros = dict.fromkeys(("dp", "stage", "step"), np.zeros(len(spans), np.int64))
    times = {"start_ns": start_ns, "dur_ns": dur_ns}
    mine = TimelineOperations(**zeros, **times, name=np.array(names, object), states_waits=False)
    return [float(start) / 1e9 for start in _with_waits(mine, [(0, 0, 10**11)])]


def test_a_call_waits_from_the_end_of_the_computation_before_it() -> None:
    assert starts_with_waits(("forward-compute", 1.0, 1.0), ("forward-send", 5.0, 0.1)) == [1.0, 2.0]
    # Stamped by its other side, it waits for no earlier computation.
    spans = (("backward-compute", 0.0, 1.0), ("forward-compute", 1.0, 1.0001), ("forward-send", 2.0, 0.1))
    assert starts_with_waits(*spans)[2] == 2.0
    # What one batch moves together waited equally long.
    spans = (("forward-compute", 0.0, 1.0), ("forward-send", 4.0, 0.1), ("backward-recv", 4.00001, 0.1))
    assert starts_with_waits(*spans)[1:] == [1.0, 1.0]


def test_the_last_stage_sends_to_the_first_where_stages_have_several_chunks(tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    args = {"step": 1, "model_chunk": 1, "mb_id": 0}
    for tid, name in enumerate(("forward-recv", "forward-compute", "forward-send")):
        events.append({**STAGE, "tid": tid, "args": {"name": f"PP rank {tid}"}})
        events.append({**FORWARD, "tid": tid, "name": name, "ts": 10, "args": args})
    (tmp_path / "t.json").write_text(json.dumps(events))
    first, _, last = traces(tmp_path)
    assert [row["src"] for row in first.collectives.rows()] == [2]
    assert [row["dst"] for row in last.collectives.rows()] == [0]


def test_a_timeline_without_stages_costs_no_other(tmp_path: Path) -> None:
    events = [{**FORWARD, "ts": 100 * step, "args": {"step": step, "mb_id": 0}} for step in range(3)]
    for thread in ("PP rank 0", "main"):
        (tmp_path / f"{thread}.json").write_text(json.dumps([{**STAGE, "args": {"name": thread}}, *events]))
    given = discover([tmp_path])
    assert [source.path for source in given.sources] == [str(tmp_path / "PP rank 0.json")]
    assert any("which pipeline stage" in note.issue for note in given.health)
