"""What the sidecars of a run come to."""

from __future__ import annotations

from pathlib import Path

from ddprof.capture.files.storage import write_json
from ddprof.capture.launcher.summary import summarize


def test_time_outside_phases_is_taken_step_by_step(tmp_path: Path) -> None:
    phases = ("data_ns", "forward_ns", "backward_ns")
    steps = [
        {"start_ns": 100 * n, "end_ns": 100 * n + 30, **{name: 29 * (n % 3 == i) for i, name in enumerate(phases)}}
        for n in range(12)
    ]
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "steps": steps})
    times = summarize(tmp_path).step_times[0]
    assert (times["step_ns"], times["data_ns"], times["rest_ns"]) == (30, 0, 1)
