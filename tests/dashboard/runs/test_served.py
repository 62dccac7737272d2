"""Runs that change while they are looked at: read again, and what goes wrong meanwhile is a note."""

import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from ddprof.dashboard.runs import served
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.served import Runs
from ddprof.errors import NoUsableInput
from ddprof.slices.live.exhibits import hosts_now


def test_a_grown_folder_is_read_again(straggler_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "LEAST_PAUSE_S", 0.0)
    files = sorted(straggler_traces.glob("*.gz"))
    for file in files[:2]:
        shutil.copy2(file, tmp_path)
    runs = Runs([str(tmp_path)], load([str(tmp_path)]))
    assert len(runs.open_runs[0].report.run.ranks) == 2
    assert runs.refresh() == 1  # nothing changed
    shutil.copy2(files[2], tmp_path)
    assert runs.refresh() == 2 and len(runs.open_runs[0].report.run.ranks) == 3
    for file in tmp_path.glob("*.gz"):
        file.unlink()
    assert runs.refresh() == 3 and runs.problem
    assert len(runs.open_runs[0].report.run.ranks) == 3  # what was shown stays


@pytest.mark.parametrize("raised", [OSError(2, "No such file", "x.json"), NoUsableInput("cut\x1b[31m"), KeyError("x")])
def test_whatever_goes_wrong_is_a_note(straggler: OpenRun, tmp_path: Path, monkeypatch, raised: Exception) -> None:
    monkeypatch.setattr(served, "LEAST_PAUSE_S", 0.0)
    runs = Runs([str(tmp_path)], [straggler])
    (tmp_path / "rank0.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(served, "load", Mock(side_effect=raised))
        assert runs.refresh() == 2 and runs.problem and "\x1b" not in runs.problem
        assert runs.refresh() == 2  # the same problem is no news
    assert runs.open_runs == (straggler,)
    monkeypatch.setattr(served, "load", lambda *_: [straggler, straggler])
    # A file that went is looked for again, even where nothing has changed since.
    assert runs.refresh() == (3 if isinstance(raised, OSError) else 2)


def test_what_is_no_file_beside_a_run_stops_no_look(straggler_traces: Path, tmp_path: Path) -> None:
    for file in straggler_traces.glob("*.gz"):
        shutil.copy2(file, tmp_path)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "host.h.1.counters.jsonl")
    os.mkdir(tmp_path / "closed", 0)
    (tmp_path / "caf\udce9.json").write_text("{}")
    stamp = served.folder_stamp([str(tmp_path), str(tmp_path / "nothing")])
    assert {Path(name).name for name, _, _ in stamp} >= {file.name for file in straggler_traces.glob("*.gz")}
    assert hosts_now(str(tmp_path)) == []
