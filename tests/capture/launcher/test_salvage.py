"""Files of a killed rank become readable; those of a running one are left alone."""

import os
from pathlib import Path

import pytest
from damage import DAMAGES, DEAD, STEM, documents, ring

from ddprof.capture.files.layout import host_label
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.storage import read_object, write_json
from ddprof.capture.launcher.salvage import salvage


def test_salvage_completes_a_killed_rank(tmp_path: Path) -> None:
    stem = f"rank1.{host_label()}.{DEAD}.0"
    write_json(tmp_path / f"{stem}.sidecar.json", {"state": "running", "rank": 1, "steps": [{"index": 0}], "notes": []})
    ring(tmp_path / f"{stem}.ring", rank=1)
    for packed in ("", ".gz"):  # killed while it packed its trace
        (tmp_path / f"{stem}.0.pt.trace.json{packed}").write_text("{}")
    (tmp_path / f"{stem}.sidecar.json.{DEAD}.tmp").write_text('{"half":')
    notes, content = salvage(tmp_path), read_object(tmp_path / f"{stem}.sidecar.json")
    assert content["state"] == "killed" and [entry["index"] for entry in content["steps"]] == list(range(20))
    assert [window["trace_path"] for window in content["windows"]] == [f"{stem}.0.pt.trace.json"] and len(notes) == 2
    left = ("0.pt.trace.json", "0.pt.trace.json.gz", "sidecar.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{stem}.{name}" for name in left]


def test_salvage_leaves_running_ranks_and_other_hosts_alone(tmp_path: Path) -> None:
    alive = tmp_path / f"rank0.{host_label()}.{os.getpid()}.0.ring"
    elsewhere = tmp_path / "rank1.another-host.4194311.0.ring"
    for path in (alive, elsewhere):
        StepRing(path, {"rank": 0, "host": "h"}).close()
    assert salvage(tmp_path) == [] and sorted(tmp_path.iterdir()) == sorted([alive, elsewhere])


def test_every_field_of_a_killed_ranks_sidecar_may_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / f"{STEM}.sidecar.json"
    for content in documents():
        ring(tmp_path / f"{STEM}.ring")
        path.unlink(missing_ok=True)  # a file system may flush one that is cut to nothing: a second beside other work
        path.write_bytes(content)
        assert all(note.startswith((f"{STEM}.", "rank 0 did not end normally")) for note in salvage(tmp_path))
        if b'"state": "running"' in content:
            saved = read_object(path)
            assert saved["state"] == "killed" and [s["index"] for s in saved["steps"]][-3:] == [17, 18, 19]


# What of a file is no reason to say anything.
UNHARMED = {
    ".ring": {"gone", "unreadable"},
    ".sidecar.json": {"gone", "unreadable", "link to nothing", "an empty object"},
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", UNHARMED)
def test_what_cannot_be_salvaged_is_said(tmp_path: Path, which: str, damage: str) -> None:
    write_json(tmp_path / f"{STEM}.sidecar.json", {"state": "running", "rank": 0})
    ring(tmp_path / f"{STEM}.ring")
    DAMAGES[damage](tmp_path / (STEM + which))
    (note, *_) = salvage(tmp_path) or ["nothing to say"]
    if (os.getuid() and damage == "unreadable") or damage not in UNHARMED[which]:
        assert note.startswith(f"{STEM}.")
