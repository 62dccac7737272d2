"""A damaged companion is a note, not a failure."""

from __future__ import annotations

from pathlib import Path

from run_folders import our_run

from ddprof.readers import discover, read
from ddprof.sidecar import Sidecar


def test_a_damaged_companion_is_a_note_not_a_failure(tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=1)
    (tmp_path / "run" / "rank0.host.100.0.sidecar.json").write_text('{"schema": "ddprof.run/1", "rank"')
    trace = read(discover([tmp_path / "run"]).sources[0])
    assert trace.sidecar == Sidecar() and trace.identity.source == "file name"
    assert any("sidecar.json: not usable" in h.issue for h in trace.health)
