"""Dumps in, the verdict out: every kind of hang, every version of the dump, pickle and JSON, NCCL and gloo."""

import contextlib
import json
import pickle
import random
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hang_dumps import CASES, VERSIONS, Job, played

from ddprof.errors import NoUsableInput
from ddprof.slices.hangs.explain import explain
from ddprof.slices.hangs.text import hang_document, render_hang

_ODD: tuple[Any, ...] = (None, -1, 2**61, 2**70, "x", [], {}, "[0, 1]", 1.5, True, [[[]]], "nccl:send 7->9", 0)
NOT_KNOWN = ("two groups", "crossed", "crossed and awaited")  # who is in a group that only its waiters have called


@pytest.mark.parametrize("as_json", [False, True], ids=["pickle", "json"])
@pytest.mark.parametrize("torch", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_every_kind_in_every_version(name: str, torch: str, as_json: bool, tmp_path: Path) -> None:
    case, hang = CASES[name], explain([str(played(name, torch).write(tmp_path, as_json=as_json))])
    assert (hang.kind, hang.ranks) == (case.kind, case.ranks), hang.sentence
    for words in case.words:
        assert words in hang.sentence


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("lost message", "inside")])
def test_gloo_which_names_no_ranks_and_knows_no_states(name: str, tmp_path: Path) -> None:
    case, hang = CASES[name], explain([str(played(name, "2.13", "gloo").write(tmp_path))])
    if name in NOT_KNOWN:
        assert hang.kind != "none"
        return
    assert (hang.kind, hang.ranks) == (case.kind, case.ranks), hang.sentence


@pytest.mark.parametrize("key", ["input_sizes", "output_sizes", "input_dtypes", "profiling_name"])
@pytest.mark.parametrize("rank", [0, 3])
def test_what_is_not_recorded_of_a_call_is_no_disagreement(key: str, rank: int, tmp_path: Path) -> None:
    for name, kind, ranks in (("not entered", "not_entered", (2,)), ("other shape", "mismatch", (0,))):
        job = played(name)
        job.entries[rank][-1][key] = 7
        hang = explain([str(job.write(tmp_path / name))])
        assert any(f"nccl_trace_rank_{rank}: entries[{len(job.entries[rank]) - 1}].{key} not" in n for n in hang.notes)
        if (name, rank) != ("other shape", 0):  # its shape is the other
            assert (hang.kind, hang.ranks) == (kind, ranks), hang.sentence


def test_a_byte_order_mark_changes_nothing_and_a_dump_that_was_not_begun_is_named(tmp_path: Path) -> None:
    """A rank that dies while it opens its dump leaves an empty file."""
    dump = played("not entered").write(tmp_path, as_json=True) / "nccl_trace_rank_0"
    plain = explain([str(tmp_path)])
    dump.write_bytes(b"\xef\xbb\xbf" + dump.read_bytes())
    assert explain([str(tmp_path)]) == plain
    for rank, content in ((0, b""), (3, b"\0" * 100)):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(content)
    (tmp_path / "rank1.log").write_text("of a rank that left a dump")
    told = [note.split("rank_")[-1] for note in explain([str(tmp_path)]).notes]
    assert told == [f"{rank}: neither a dump of calls nor stacks; left out" for rank in (0, 3)]


def test_ranks_that_give_alike_and_take_otherwise(tmp_path: Path) -> None:
    job = Job(3)
    job.call("all_reduce")
    for ranks, taken in (([0, 1], 24), ([2], 16)):
        job.call("_all_gather_base", ranks, (8,), out=(taken,), state="started", line=12)
    hang = explain([str(job.write(tmp_path))])
    assert hang.ranks == (2,) and "of [8] into [24] (train.py:12" in hang.sentence
    assert "of [8] into [16]" in hang.sentence


def test_dumps_in_a_store_and_a_rank_without_one_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of a rank")
    with pytest.raises(NoUsableInput):
        explain([str(tmp_path)])
    job = played("not entered")
    folder = job.write(tmp_path / "dumps")
    for file in folder.iterdir():
        fsspec.filesystem("memory").pipe(f"/hangs/run/{file.name}", file.read_bytes())
    assert explain(["memory://hangs/run"]).sentence == explain([str(folder)]).sentence
    with pytest.raises(NoUsableInput, match="memory://hangs/nothing: cannot be read"):
        explain(["memory://hangs/nothing"])
    hang = explain([str(job.write(tmp_path / "three", ranks=[0, 1, 3]))])
    assert (hang.kind, hang.ranks) == ("inside", (2,)) and "of rank 2 nothing was recorded" in hang.sentence


def test_the_text_has_a_line_per_rank_and_no_control_characters(tmp_path: Path) -> None:
    text = render_hang(explain([str(played("skipped").write(tmp_path))]))
    assert text.startswith("Rank 1 went on to barrier") and "0, 2, 3" in text
    assert any(line.startswith("1 ") and "train.py:12" not in line.split("barrier")[0] for line in text.splitlines())


@pytest.mark.parametrize(("code", "kind"), [(0, "none"), (143, "after"), (1, "after"), (None, "after")])
def test_a_job_that_stands_still_after_its_script_is_told(code: int | None, kind: str, tmp_path: Path) -> None:
    for rank in range(2):
        left = {"rank": rank, "world_size": 2, "state": "exit", "end": {"at_ns": 10**18}}
        (tmp_path / f"rank{rank}.host.10{rank}.0.sidecar.json").write_text(json.dumps(left))
    (tmp_path / "manifest.json").write_text(json.dumps({"exit_code": code, "ended_ns": 10**18 + 63 * 10**9}))
    hang = explain([str(tmp_path)])
    assert hang.kind == kind and ("63 s later" in hang.sentence) == bool(code)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_dumps_give_a_verdict_or_a_reason(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    torch, backend = rng.choice(list(VERSIONS)), rng.choice(["nccl", "gloo"])
    job = played(rng.choice(list(CASES)), torch, backend)
    for rank in range(job.world):
        dump: Any = job.dump(rank)
        for _ in range(4):
            dump = _damaged(dump, rng)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump))
    with contextlib.suppress(NoUsableInput):
        hang = explain([str(tmp_path)])
        assert hang.sentence and render_hang(hang) and json.dumps(hang_document(hang))


def _damaged(value: Any, rng: random.Random) -> Any:
    """A copy with one value of it replaced, doubled, left out, or moved."""
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        return {**value, key: rng.choice(_ODD) if rng.random() < 0.3 else _damaged(value[key], rng)}
    if isinstance(value, list | tuple) and value:
        items, at = list(value), rng.randrange(len(value))
        rng.shuffle(items) if rng.random() < 0.15 else None
        deeper = [_damaged(items[at], rng)]
        return [*items[:at], *rng.choice([[rng.choice(_ODD)], [items[at]] * 2, [], deeper, deeper]), *items[at + 1 :]]
    return rng.choice(_ODD)
