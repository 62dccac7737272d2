"""Sidecars as the capture writes them, and as anybody may have."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ddprof.model import HealthNote
from ddprof.readers.files.streams import MAX_SMALL_BYTES
from ddprof.readers.side_files.sidecar import read_sidecar
from ddprof.sidecar import LoaderSettings, Pause, SamplerSettings, Sidecar, StepTimes


def read(tmp_path: Path, content: str | dict[str, Any]) -> tuple[Sidecar, list[HealthNote]]:
    """The sidecar read from a file with this content, and the notes on it."""
    path = tmp_path / "rank0.sidecar.json"
    path.write_text(content if isinstance(content, str) else json.dumps({"schema": "ddprof.run/1", **content}))
    return read_sidecar(str(path))


def test_null_absent_and_unknown_keys_and_values_of_another_type_are_missing(tmp_path: Path) -> None:
    found, notes = read(tmp_path, {"ddp": None, "nccl": None, "colour": {"red": 1}, "steps": []})
    assert (found, notes) == (Sidecar(schema="ddprof.run/1"), []) and found.is_captured
    assert read_sidecar(None) == (Sidecar(), [])
    found, _ = read(tmp_path, {"optimizer": {"class": "AdamW"}, "dataloader": {"sampler": {"class": "S"}}})
    assert (found.optimizer.name, found.loader.known()) == ("AdamW", {"sampler.class": "S"})
    loader = {"num_workers": "two", "batch_size": 8, "sampler": {"sharded": False, "class": None}}
    pauses = [{"start_ns": 1, "dur_ns": 2}, {"start_ns": 3, "dur_ns": None}, 5, {"start_ns": 2**70, "dur_ns": 1}]
    found, notes = read(tmp_path, {"dataloader": loader, "gc": pauses, "steps": 7, "rank": 3})
    assert found.dataloader == LoaderSettings(batch_size=8, sampler=SamplerSettings(sharded=False))
    assert (found.gc, found.steps, found.rank) == ((Pause(1, 2),), (), 3)
    (note,) = notes
    assert "rank0.sidecar.json: dataloader.num_workers, steps, gc[1] and 3 more not of the type" in note.issue
    steps = [{"index": 0, "start_ns": 0, "end_ns": 9}, {"index": True, "start_ns": 9, "end_ns": 8}, None]
    found, _ = read(tmp_path, {"steps": steps})
    assert found.steps == (StepTimes(index=0, start_ns=0, end_ns=9), StepTimes(start_ns=9, end_ns=8))
    assert [step.length_ns for step in found.steps] == [9, None]
    found, (note,) = read(tmp_path, {"rank": 10**9, "world_size": -1, "gc": [{"start_ns": 1, "dur_ns": 2**63 - 1}]})
    assert (found.rank, found.world_size, found.gc) == (None, None, ())
    assert "rank, world_size, gc[0]" in note.issue


IMPOSSIBLE = {f'"ddp": {{"bucket_cap_mb": {odd}}}': Sidecar(schema="a") for odd in ("NaN", "1e999")}
IMPOSSIBLE['"host": "x\\ud800"'] = Sidecar(schema="a", host="x?")


@pytest.mark.parametrize(("content", "expected"), IMPOSSIBLE.items())
def test_what_no_file_can_hold_is_not_taken_over(tmp_path: Path, content: str, expected: Sidecar) -> None:
    assert read(tmp_path, f'{{"schema": "a", {content}}}')[0] == expected


@pytest.mark.parametrize("content", ["[]", "{", "", "[" * 100_000, '{"schema": "a", "x": ' + "[" * 100_000])
def test_a_file_that_cannot_be_used_is_a_note(tmp_path: Path, content: str) -> None:
    found, (note,) = read(tmp_path, content)
    assert found == Sidecar() and note.effect == "settings of this rank are unknown"


def test_a_file_that_unpacks_to_more_than_any_sidecar_or_holds_other_things_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rank0.sidecar.json"
    path.write_bytes(gzip.compress(bytes(MAX_SMALL_BYTES + 1), 1))
    found, (note,) = read_sidecar(str(path))
    assert found == Sidecar() and "unpacks to more than 32 MiB" in note.issue
    found, (note,) = read(tmp_path, {"gc": [[]] * 20_000})
    assert found == Sidecar() and "more than 10000 values are not of the type documented" in note.issue
