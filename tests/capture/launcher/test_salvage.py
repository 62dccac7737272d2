"""Files of a killed rank become readable; those of a running one are left alone."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import DAMAGES, documents, ring

from ddprof.capture.files.layout import host_label
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step
from ddprof.capture.files.storage import read_object, write_json
from ddprof.capture.launcher.salvage import salvage

DEAD = 2**22 + 7  # no process has such an id
STEM = f"rank0.{host_label()}.{DEAD}.0"


def test_salvage_completes_a_killed_rank(tmp_path: Path) -> None:
    stem = f"rank1.{host_label()}.{DEAD}.0"
    write_json(tmp_path / f"{stem}.sidecar.json", {"state": "running", "rank": 1, "steps": [{"index": 0}], "notes": []})
    ring = StepRing(tmp_path / f"{stem}.ring", {"rank": 1, "host": "h"})
    for number in range(4):
        ring.write(Step(number, number * 100, number * 100 + 10, 1, 2, 3, 4, 5, False))
    for packed in ("", ".gz"):  # killed while it packed its trace
        (tmp_path / f"{stem}.0.pt.trace.json{packed}").write_text("{}")
    (tmp_path / f"{stem}.sidecar.json.{DEAD}.tmp").write_text('{"half":')
    notes, content = salvage(tmp_path), read_object(tmp_path / f"{stem}.sidecar.json")
    assert content["state"] == "killed" and [entry["index"] for entry in content["steps"]] == [0, 1, 2, 3]
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
        path.write_bytes(content)
        notes = salvage(tmp_path)
        assert all(note.startswith((f"{STEM}.", "rank 0 did not end normally")) for note in notes)
        if b'"state": "running"' in content:
            saved = read_object(path)
            assert saved["state"] == "killed" and [s["index"] for s in saved["steps"]][-3:] == [17, 18, 19]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("which", [".sidecar.json", ".ring"])
def test_what_cannot_be_salvaged_is_said(tmp_path: Path, which: str, damage: Callable[[Path], object]) -> None:
    write_json(tmp_path / f"{STEM}.sidecar.json", {"state": "running", "rank": 0})
    ring(tmp_path / f"{STEM}.ring")
    damage(tmp_path / (STEM + which))
    (note, *_) = salvage(tmp_path) or ["nothing to say"]
    unharmed = {(".ring", damage) for damage in (DAMAGES["gone"], DAMAGES["unreadable"])}
    names = ("gone", "link to nothing", "unreadable", "an empty object")
    unharmed |= {(".sidecar.json", DAMAGES[name]) for name in names}
    if (os.getuid() and damage is DAMAGES["unreadable"]) or (which, damage) not in unharmed:
        assert note.startswith(f"{STEM}.")
