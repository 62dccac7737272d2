"""Operation-level timelines of Megatron jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from reading import traces

from ddprof.model import Kind
from ddprof.readers.formats.op_timeline import TimelineOperations, _with_waits


def test_pipeline_timeline_workers(shared_dir: Path) -> None:
    workers = traces(shared_dir / "traces/multi_rank/megatron_pp_last_stage_slow_8gpu")
    assert [t.identity.rank for t in workers] == list(range(8))
    compute = [
        float(
            np.median(
                t.events["dur_ns"][[i for i, n in enumerate(t.events["name"]) if t.strings[n] == "forward-compute"]]
            )
        )
        for t in workers
    ]
    assert min(compute[6:]) > 1.15 * max(compute[:6])  # the last stage is slow
    for trace in workers:
        marks = trace.events["kind"] == Kind.ANNOTATION
        assert int(marks.sum()) == 32
        start, dur = trace.events["ts_ns"][marks], trace.events["dur_ns"][marks]
        np.testing.assert_array_equal(start[1:], (start + dur)[:-1])
        assert abs(float(dur.mean()) / 1e9 - 2.2144) < 0.001


def test_pipeline_messages_pair_up(shared_dir: Path) -> None:
    sent, received = set(), set()
    for trace in traces(shared_dir / "traces/multi_rank/megatron_pp_last_stage_slow_8gpu"):
        for row in trace.collectives.rows():
            op, key = trace.strings[row["op"]], (trace.identity.rank, row["dst"], row["src"])
            if op == "send":
                sent.add((key[0], key[1]))
            elif op == "recv":
                received.add((key[2], key[0]))
    assert sent == received and len(sent) == 12


def test_timeline_json_gives_the_waits_of_the_parquet(shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / "traces/multi_rank/megatron_pp_last_stage_slow_8gpu"
    (tmp_path / "timeline-ST.json.gz").symlink_to(folder / "timeline-ST.json.gz")
    from_json, from_parquet = traces(tmp_path), traces(folder)
    for a, b in zip(from_json, from_parquet, strict=True):
        busy_a, busy_b = (int(t.events["dur_ns"][t.events["kind"] == Kind.KERNEL].sum()) for t in (a, b))
        assert abs(busy_a - busy_b) < 0.05 * busy_b
    assert "without the waits" in from_json[0].health[0].issue


def starts_with_waits(*spans: tuple[str, float, float]) -> list[float]:
    """Where the operations of one worker start (s), their waits included. Spans: name, start and length of transfer."""
    mine = TimelineOperations(
        dp=np.zeros(len(spans), np.int64),
        stage=np.zeros(len(spans), np.int64),
        step=np.zeros(len(spans), np.int64),
        name=np.array([name for name, _, _ in spans], object),
        start_ns=np.array([round(start * 1e9) for _, start, _ in spans], np.int64),
        dur_ns=np.array([round(length * 1e9) for _, _, length in spans], np.int64),
        states_waits=False,
    )
    return [float(start) / 1e9 for start in _with_waits(mine, [(0, 0, 10**11)])]


def test_a_call_waits_from_the_end_of_the_computation_before_it() -> None:
    assert starts_with_waits(("forward-compute", 1.0, 1.0), ("forward-send", 5.0, 0.1)) == [1.0, 2.0]


def test_a_transfer_stamped_by_its_other_side_waits_for_no_earlier_computation() -> None:
    spans = (("backward-compute", 0.0, 1.0), ("forward-compute", 1.0, 1.0001), ("forward-send", 2.0, 0.1))
    assert starts_with_waits(*spans)[2] == 2.0


def test_what_one_batch_moves_together_waited_equally_long() -> None:
    spans = (("forward-compute", 0.0, 1.0), ("forward-send", 4.0, 0.1), ("backward-recv", 4.00001, 0.1))
    assert starts_with_waits(*spans)[1:] == [1.0, 1.0]
