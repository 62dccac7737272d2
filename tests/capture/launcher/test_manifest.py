"""The last line that a job prints."""

from __future__ import annotations

from pathlib import Path

from ddprof.capture.files.storage import write_json
from ddprof.capture.launcher import manifest
from ddprof.capture.launcher.summary import summarize


def test_a_job_too_short_for_its_window_is_told_so(tmp_path: Path) -> None:
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "world_size": 1, "steps_total": 4})
    summary = summarize(tmp_path)
    assert "the job ended after 4 steps, before step 5" in manifest.last_line(tmp_path, summary, 5)
    assert "0 traces of 1 rank in" in manifest.last_line(tmp_path, summary, None)
    assert "no trace: no rank wrote one (see --ranks" in manifest.last_line(tmp_path, summary, 2)
