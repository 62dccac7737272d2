"""Ranks are decided over all files, from the strongest evidence, and what was assumed is said."""

from __future__ import annotations

import pytest

from ddprof.model import Identity
from ddprof.readers import resolve_identities
from ddprof.readers.files.names import rank_in_name, without_stamp


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank12.json", 12),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("worker0_step_12.1694128201545.pt.trace.json.gz", 0),
        ("run_r5.json", 5),
        ("trace_rank_3.json", 3),
        ("rank3.host.999.0.pt.trace.json", 3),
        ("trace1.json", 1),
        ("global_rank7_local_rank3.json", 7),
        ("gpu-worker-00_4013.1764638676001234567.pt.trace.json.gz", None),
        ("Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", None),
        ("control.json.gz", None),
        ("llama_trace_4layers0_dim_1024.json.gz", None),
        ("franks2.json", None),
    ],
)
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert rank_in_name(f"/some/rank9/{name}") == rank


def test_windows_of_one_process_have_one_name() -> None:
    assert (
        without_stamp("h_77.1623143089861.pt.trace.json") == without_stamp("h_77.1623143099861.pt.trace.json") == "h_77"
    )


def test_stated_ranks_are_kept() -> None:
    stated = [Identity(3, "distributedInfo", 4), Identity(1, "sidecar", 4)]
    assert resolve_identities(stated, ["a", "b"]) == (stated, [])


def test_unknown_ranks_follow_process_ids_then_names() -> None:
    by_pid, notes = resolve_identities([Identity(None, "order", pid=9), Identity(None, "order", pid=4)], ["a", "b"])
    assert [(i.rank, i.source) for i in by_pid] == [(1, "content"), (0, "content")]
    assert "process ids" in notes[0].effect
    by_name, notes = resolve_identities([Identity(None, "order"), Identity(None, "order")], ["b", "a"])
    assert [(i.rank, i.source) for i in by_name] == [(1, "order"), (0, "order")]
    assert "file names" in notes[0].effect


def test_unknown_ranks_take_the_vacant_ones() -> None:
    known = [Identity(0, "distributedInfo", 3), Identity(None, "order"), Identity(2, "file name")]
    resolved, _ = resolve_identities(known, ["a", "b", "c"])
    assert [i.rank for i in resolved] == [0, 1, 2]


def duplicate(second: Identity, path: str = "x") -> tuple[Identity, str]:
    first = Identity(0, "distributedInfo", 4, pid=1, local_device=0)
    resolved, notes = resolve_identities([second, first, Identity(3, "distributedInfo", 4)], [path, "y", "z"])
    assert resolved[1].rank == 0
    return resolved[0], notes[0].effect


def test_a_duplicate_goes_where_its_device_says() -> None:
    found, effect = duplicate(Identity(0, "distributedInfo", 4, pid=2, local_device=2))
    assert (found.rank, found.source) == (2, "content") and "device 2" in effect


def test_a_duplicate_goes_where_its_name_says() -> None:
    found, effect = duplicate(Identity(0, "distributedInfo", 4, pid=2, local_device=None), "trace_rank1.json")
    assert found.rank == 1 and "name says 1" in effect


def test_a_duplicate_without_evidence_is_left_out() -> None:
    same = Identity(0, "distributedInfo", 4, pid=1, local_device=0)
    resolved, notes = resolve_identities([same, same], ["x", "y"])
    assert [(i.rank, i.source) for i in resolved] == [(0, "distributedInfo"), (None, "duplicate")]
    assert "another window" in notes[0].effect and "left out" in notes[0].effect


def test_different_worlds_are_said() -> None:
    _, notes = resolve_identities([Identity(0, "distributedInfo", 8), Identity(1, "distributedInfo", 2)], ["a", "b"])
    assert "different world sizes (2, 8)" in notes[0].issue
