"""Operation-level timelines of Megatron jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shared_formats import traces

from ddprof.model import Kind


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
