"""Broken inputs: each one read as far as it is sound, and its defect named."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers import Source, discover, read, resolve_identities

pytestmark = pytest.mark.usefixtures("decoding")

FOLDER = "traces/edge_cases/malformed"


def trace_of(shared_dir: Path, name: str) -> RankTrace:
    (source,) = discover([shared_dir / FOLDER / name]).sources
    return read(source)


def issues(trace: RankTrace) -> str:
    return "\n".join(f"{h.severity}: {h.issue} -> {h.effect}" for h in trace.health)


def healthy(shared_dir: Path, rank: int) -> RankTrace:
    folder = shared_dir / "traces/multi_rank/dlrm_ddp_v100_8ranks"
    (path,) = folder.glob(f"worker{rank}_*")
    return read(Source(str(path), "kineto"))


@pytest.mark.parametrize("name", ["bom_utf8.json.gz", "latin1_byte_in_name.json.gz"])
def test_encodings_do_not_matter(shared_dir: Path, name: str) -> None:
    trace, sound = trace_of(shared_dir, name), healthy(shared_dir, 0)
    for column in ("ts_ns", "dur_ns", "correlation", "kind"):
        np.testing.assert_array_equal(trace.events[column], sound.events[column])
    assert ("not UTF-8" in issues(trace)) == name.startswith("latin1")


def test_plain_text_named_gz(shared_dir: Path) -> None:
    trace = trace_of(shared_dir, "not_gzip_despite_suffix.json.gz")
    np.testing.assert_array_equal(trace.events["ts_ns"], healthy(shared_dir, 3).events["ts_ns"])
    assert (trace.identity.rank, trace.health) == (3, ())


@pytest.mark.parametrize("name", ["truncated_gzip_stream.json.gz", "truncated_mid_event.json.gz"])
def test_truncation_keeps_what_came_before(shared_dir: Path, name: str) -> None:
    trace = trace_of(shared_dir, name)
    sound = healthy(shared_dir, trace.identity.rank or 0)
    assert 0.3 * len(sound.events) < len(trace.events) < len(sound.events)
    assert np.isin(trace.events["ts_ns"], sound.events["ts_ns"]).all()
    assert "error:" in issues(trace) and "ends inside the event list after byte" in issues(trace)
    assert ("compressed data ends early" in issues(trace)) == ("gzip" in name)


def test_two_ranks_in_one_file_cost_the_events_at_the_seam(shared_dir: Path) -> None:
    trace = trace_of(shared_dir, "two_ranks_interleaved_write.json.gz")
    assert "damaged text at byte 299," in issues(trace)
    assert len(trace.events) > 0.9 * len(healthy(shared_dir, 0).events)
    assert trace.identity.rank == 0


def test_odd_events_are_counted(shared_dir: Path) -> None:
    trace = trace_of(shared_dir, "odd_events_negdur_nodur_strts_nullargs_rank0.json.gz")
    assert "25 negative durations" in issues(trace)
    assert "25 events without a usable duration" in issues(trace)
    assert (trace.events["dur_ns"] >= 0).all()
    assert len(trace.events) > 2000


def test_nan_and_infinity(shared_dir: Path) -> None:
    trace = trace_of(shared_dir, "nan_infinity_literals.json")
    assert trace.events["dur_ns"].tolist() == [0]
    assert "1 events without a usable duration" in issues(trace)


def test_no_events(shared_dir: Path) -> None:
    trace = trace_of(shared_dir, "empty_traceEvents.json")
    assert len(trace.events) == 0
    assert "error:" in issues(trace) and "no events" in issues(trace)


def test_no_device_events(shared_dir: Path) -> None:
    trace = trace_of(shared_dir, "gpu_events_missing_rank7.json.gz")
    assert "kernel launches but no device events" in issues(trace)
    assert trace.identity.rank == 7


def test_a_clock_that_is_off_reads_as_it_is(shared_dir: Path) -> None:
    trace, sound = trace_of(shared_dir, "clock_offset_plus37s_rank6.json.gz"), healthy(shared_dir, 6)
    shift = trace.events["ts_ns"] - sound.events["ts_ns"]
    assert abs(int(np.median(shift)) - 37 * 10**9) < 10**6


@pytest.mark.parametrize(
    ("name", "reason"), [("empty.json", "an empty file"), ("html_error_page.json", "an HTML page")]
)
def test_what_is_no_trace_is_one_true_line(shared_dir: Path, name: str, reason: str) -> None:
    with pytest.raises(NoUsableInput, match=f"{name}: {reason}") as caught:
        discover([shared_dir / FOLDER / name])
    assert "\n" not in str(caught.value)


def test_the_folder_as_a_whole_names_every_file_it_leaves_out(shared_dir: Path) -> None:
    inventory = discover([shared_dir / FOLDER])
    named = " ".join(s.path for s in inventory.sources) + " ".join(h.issue for h in inventory.health)
    assert all(path.name in named for path in (shared_dir / FOLDER).glob("[!.]*"))


def test_rank_four_labelled_zero_is_found_out(shared_dir: Path, tmp_path: Path) -> None:
    for path in (shared_dir / "traces/multi_rank/dlrm_ddp_v100_8ranks").iterdir():
        if not path.name.startswith("worker4"):
            (tmp_path / path.name).symlink_to(path)
    wrong = shared_dir / FOLDER / "duplicate_rank0_is_really_rank4.json.gz"
    (tmp_path / wrong.name).symlink_to(wrong)
    traces = [read(s) for s in discover([tmp_path]).sources]
    identities, notes = resolve_identities([t.identity for t in traces], [t.path for t in traces])
    by_name = {Path(t.path).name: i.rank for t, i in zip(traces, identities, strict=True)}
    assert by_name[wrong.name] == 4
    assert sorted(r for r in by_name.values() if r is not None) == list(range(8))
    assert ["device 4" in n.effect for n in notes] == [True]


def test_a_missing_header_leaves_the_rank_to_the_file_name(shared_dir: Path) -> None:
    identity = trace_of(shared_dir, "no_distributedInfo_rank5.json.gz").identity
    assert (identity.rank, identity.source) == (5, "file name")


def test_garbage_after_and_inside_gzip(tmp_path: Path) -> None:
    text = b'{"traceEvents": [' + b",".join(
        b'{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": %d, "dur": 1}' % i for i in range(20000)
    )
    packed = gzip.compress(text + b"]}")
    (tmp_path / "after.gz").write_bytes(packed + b"trailing")
    after = read(Source(str(tmp_path / "after.gz"), "kineto"))
    assert len(after.events) == 20000 and "ignored" in issues(after)
    middle = bytearray(packed)
    middle[len(packed) // 2 : len(packed) // 2 + 40] = b"\0" * 40
    (tmp_path / "inside.gz").write_bytes(bytes(middle))
    inside = read(Source(str(tmp_path / "inside.gz"), "kineto"))
    assert 0 < len(inside.events) <= 20000 and "error:" in issues(inside)
    assert len(read(Source(str(_two_members(tmp_path, text)), "kineto")).events) == 20000


def _two_members(folder: Path, text: bytes) -> Path:
    half = len(text) // 2
    path = folder / "members.gz"
    path.write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:] + b"]}"))
    return path
