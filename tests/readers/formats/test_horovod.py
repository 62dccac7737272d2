"""Horovod timelines."""

from __future__ import annotations

from pathlib import Path

from shared_formats import FORMATS, names, traces

from ddprof.model import Kind


def test_horovod_rank_seven_is_last(shared_dir: Path) -> None:
    by_rank = {t.identity.rank: t for t in traces(shared_dir / FORMATS / "horovod_timeline")}
    assert sorted(by_rank) == [0, 1, 2, 4, 5, 6, 7] and by_rank[7].identity.world_size == 8
    arrival: dict[int, dict[int, int]] = {}
    for rank, trace in by_rank.items():
        for row, seq in zip(trace.collectives["row"].tolist(), trace.collectives["seq"].tolist(), strict=True):
            arrival.setdefault(seq, {})[rank] = int(trace.events["ts_ns"][row])
    last = [max(its, key=lambda r: its[r]) for its in arrival.values()]
    assert (len(last), last.count(7)) == (90, 83)
    assert all(len(names(t, Kind.KERNEL)) == len(t.collectives) for t in by_rank.values())
