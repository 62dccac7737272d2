"""Lanes, tiles and answers of the timeline agree with the job's own tables."""

import json
import struct
from typing import Any

import numpy as np
import pytest

from ddprof.causes import CAUSE_IDS
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.inspect import largest_waits, slice_details
from ddprof.dashboard.timeline.lanes import CATEGORY
from ddprof.dashboard.timeline.tiles import MAX_LANES, encode
from ddprof.errors import UsageError


def _decode(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a tile, by the layout its module documents."""
    assert body[:4] == b"DDT1"
    (length,) = struct.unpack("<I", body[4:8])
    header, at = json.loads(body[8 : 8 + length]), 8 + length
    total, arrays = sum(header["counts"]), {}
    for name, dtype in (("start", "<f4"), ("dur", "<f4"), ("name", "<u4"), ("row", "<u4"), ("category", "u1")):
        arrays[name] = np.frombuffer(body, dtype, total, at)
        at += arrays[name].nbytes
    at += -total % 8
    for name in ("dominant", "share"):
        count = len(header["binned"]) * header["bins"]
        arrays[name] = np.frombuffer(body, "u1", count, at).reshape(-1, header["bins"])
        at += count
    assert at == len(body)
    return header, arrays


def test_an_exact_tile_holds_the_slices_and_lanes_of_causes_the_ledger(straggler: OpenRun) -> None:
    timeline, job = straggler.timeline, straggler.job
    for lane, info in enumerate(timeline.lanes):
        if info.kind != "causes":
            continue
        steps = job.ranks[info.position].steps
        shift = job.shift_ns(info.position)
        window = np.array([steps["start_ns"][0], steps["end_ns"][-1]]) - shift
        groups = timeline.index.groups_of(np.array([lane]))
        busy = timeline.index.busy(groups, window)[:, 0]
        mine = job.ledger["rank"] == info.position
        for group, ns in zip(groups % timeline.index.categories, busy, strict=True):
            assert ns == job.ledger["dur_ns"][mine & (job.ledger["cause"] == group)].sum(), CAUSE_IDS[group]
    index = straggler.index
    lanes = list(range(len(straggler.timeline.lanes)))
    header, arrays = _decode(encode(straggler.timeline, lanes, index.lo_ns, index.hi_ns, 100))
    assert header["exact"] == lanes and header["binned"] == []
    assert header["counts"] == [lane.slices for lane in straggler.timeline.lanes]
    start = index.start_ns(arrays["row"].astype(np.int64))
    assert np.allclose(arrays["start"], (start - index.lo_ns) / 1e3, atol=0.02)
    assert set(map(int, header["names"])) == set(arrays["name"].tolist())


def test_a_binned_tile_holds_the_busy_share(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddprof.dashboard.timeline.tiles.EXACT_BUDGET", 0)
    index = straggler.index
    lane = next(i for i, lane in enumerate(straggler.timeline.lanes) if lane.kind == "stream")
    header, arrays = _decode(encode(straggler.timeline, [lane], index.lo_ns, index.hi_ns, 50))
    assert header["binned"] == [lane] and header["exact"] == []
    edges = np.linspace(index.lo_ns, index.hi_ns, 51).astype(np.int64)
    busy = index.busy(index.groups_of(np.array([lane])), edges).sum(axis=0)
    assert np.allclose(arrays["share"][0] / 255, busy / np.diff(edges), atol=1 / 255 + 1e-6)
    assert CATEGORY["compute"] in arrays["dominant"][0]


def test_lanes_of_a_kind_are_sent_alike_and_bad_requests_are_refused(straggler: OpenRun) -> None:
    timeline, index = straggler.timeline, straggler.index
    causes = [i for i, lane in enumerate(timeline.lanes) if lane.kind == "causes"]
    budget = sum(timeline.lanes[i].slices for i in causes) - 1  # all of them but one would fit
    header, _ = _decode(encode(timeline, causes, index.lo_ns, index.hi_ns, 50, budget))
    assert header["exact"] == [] and header["binned"] == causes
    header, _ = _decode(encode(timeline, causes, index.lo_ns, index.hi_ns, 50, budget + 1))
    assert header["exact"] == causes and header["binned"] == []
    with pytest.raises(UsageError, match="empty"):
        encode(straggler.timeline, [0], 10, 10, 100)
    with pytest.raises(UsageError, match="no such lane"):
        encode(straggler.timeline, [10**6], 0, 10, 100)
    header, _ = _decode(encode(straggler.timeline, [0] * (MAX_LANES + 5), 0, 10, 10**9))
    assert len(header["exact"]) <= MAX_LANES and header["bins"] <= 4096


def test_a_waiting_slice_names_the_late_rank(straggler: OpenRun) -> None:
    culprit = straggler.report.ranked_findings()[0].ranks[0]
    assert largest_waits(straggler.job, straggler.index.lo_ns, straggler.index.hi_ns)[0]["culprit"] == culprit
    index = straggler.index
    streams = np.array([i for i, lane in enumerate(straggler.timeline.lanes) if lane.kind == "stream"])
    rows = index.rows(index.groups_of(streams), index.lo_ns, index.hi_ns)
    waiting = np.flatnonzero(rows.category == CATEGORY["comm_wait"])
    details = slice_details(straggler.timeline, straggler.job, int(rows.row[waiting[rows.dur_ns[waiting].argmax()]]))
    late = [m["rank"] for m in details["members"] if m["late"]]
    assert len(late) == 1 and f"rank {late[0]} came last" in details["facts"]
    assert details["rank"] in [m["rank"] for m in details["members"] if m["ready_us"] > m["start_us"]]
    with pytest.raises(UsageError, match="no such slice"):
        slice_details(straggler.timeline, straggler.job, len(index))
