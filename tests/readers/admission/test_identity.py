"""Ranks are decided over all files, from the strongest evidence, and what was assumed is said."""

from pathlib import Path

import pytest
from reading import MALFORMED, broken, traces

from ddprof.model import Identity
from ddprof.readers import resolve_identities
from ddprof.readers.files.names import rank_in_name


@pytest.mark.usefixtures("decoding")
def test_rank_four_labelled_zero_is_found_out(shared_dir: Path, tmp_path: Path) -> None:
    wrong = shared_dir / MALFORMED / "duplicate_rank0_is_really_rank4.json.gz"
    for path in (wrong, *(shared_dir / "traces/multi_rank/dlrm_ddp_v100_8ranks").glob("worker[!4]*")):
        (tmp_path / path.name).symlink_to(path)
    given = traces(tmp_path)
    identities, notes = resolve_identities([t.identity for t in given], [t.path for t in given])
    by_name = {Path(t.path).name: i.rank for t, i in zip(given, identities, strict=True)}
    assert by_name[wrong.name] == 4 and sorted(r for r in by_name.values() if r is not None) == list(range(8))
    assert ["device 4" in n.effect for n in notes] == [True]
    # A missing header leaves the rank to the file name.
    identity = broken(shared_dir, "no_distributedInfo_rank5.json.gz").identity
    assert (identity.rank, identity.source) == (5, "file name")


def test_unknown_ranks_follow_process_ids_then_names_and_stated_ones_are_kept() -> None:
    by_pid, notes = resolve_identities([Identity(None, "order", pid=9), Identity(None, "order", pid=4)], ["a", "b"])
    assert [(i.rank, i.source) for i in by_pid] == [(1, "content"), (0, "content")]
    assert "process ids" in notes[0].effect
    by_name, notes = resolve_identities([Identity(None, "order"), Identity(None, "order")], ["b", "a"])
    assert [(i.rank, i.source) for i in by_name] == [(1, "order"), (0, "order")]
    assert "order of their names" in notes[0].effect
    pods = [f"job-worker-{at}_7.1764638676000000000.pt.trace.json" for at in range(12)]  # each with one pid
    in_text_order, _ = resolve_identities([Identity(None, "order", pid=7)] * 12, sorted(pods))
    assert [i.rank for i in in_text_order] == [pods.index(pod) for pod in sorted(pods)]
    known = [Identity(0, "distributedInfo", 3), Identity(None, "order"), Identity(2, "file name")]
    resolved, _ = resolve_identities(known, [*"abc"])
    assert [i.rank for i in resolved] == [0, 1, 2]
    stated = [Identity(3, "distributedInfo", 4), Identity(1, "sidecar", 4)]
    assert resolve_identities(stated, ["a", "b"]) == (stated, [])
    stated = [Identity(1, "distributedInfo", 2), Identity(0, "distributedInfo", 2)]
    resolved, (note,) = resolve_identities(stated, ["rank0.json", "rank1.json"])
    said = "2 file names contradict the ranks that the files state: rank0.json is of rank 1"
    assert (resolved, note.issue) == (stated, said)
    assert resolve_identities(stated, ["a/rank0.json", "b/rank0.json"])[1] == []  # ranks of each host in the names


@pytest.mark.parametrize(
    ("paths", "world", "ranks"),
    [
        *(([path], None, [0]) for path in ("trace_04.json", "runs.zip!trace_04.json")),
        *((["trace_04.json"], 8, [4]), (["rank4.json"], None, [4]), (["trace_4.json", "trace_5.json"], None, [4, 5])),
    ],
)
def test_a_bare_number_names_a_rank_among_several(paths: list[str], world: int | None, ranks: list[int]) -> None:
    given = [Identity(rank_in_name(path), "file name", world) for path in paths]
    resolved, notes = resolve_identities(given, paths)
    assert [identity.rank for identity in resolved] == ranks
    assert bool(notes) == (ranks == [0])


def test_a_duplicate_goes_where_its_device_or_its_name_says_or_is_left_out() -> None:
    first = Identity(0, "distributedInfo", 4, pid=1, local_device=0)
    for device, path, rank, said in ((2, "x", 2, "device 2"), (None, "trace_rank1.json", 1, "name says 1")):
        second = Identity(0, "distributedInfo", 4, pid=2, local_device=device)
        resolved, notes = resolve_identities([second, first, Identity(3, "distributedInfo", 4)], [path, "y", "z"])
        assert [i.rank for i in resolved[:2]] == [rank, 0] and said in notes[0].effect
        assert device is None or resolved[0].source == "content"
    resolved, notes = resolve_identities([first, first], ["x", "y"])
    assert [(i.rank, i.source) for i in resolved] == [(0, "distributedInfo"), (None, "duplicate")]
    assert "another window" in notes[0].effect and "left out" in notes[0].effect
