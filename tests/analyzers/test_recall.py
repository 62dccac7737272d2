"""What is kept is used for the same files only, and lies in the user's cache or where it was told to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ddprof.analyzers import engine, recall
from ddprof.analyzers.engine import Options, RankResult, analyze, read_facts
from ddprof.analyzers.facts.cache.place import Folder
from ddprof.analyzers.recall import Recall, recall_of
from ddprof.errors import UsageError
from ddprof.readers import Source, discover
from ddprof.report.json.contract import to_contract

EVENT = '{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": {}, "dur": 9}}'


def _write(folder: Path, ranks: int = 1, first_us: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        header = f'"distributedInfo": {{"rank": {rank}, "world_size": {ranks}}}'
        events = ", ".join(EVENT.format(first_us + 10 * number) for number in range(5))
        (folder / f"rank{rank}.json").write_text(f'{{"schemaVersion": 1, {header}, "traceEvents": [{events}]}}')
    return folder


@pytest.fixture
def kept_in(tmp_path: Path) -> Recall:
    """What is kept in a folder of its own."""
    found = recall_of(str(tmp_path / "kept"))
    assert found is not None
    return found


def _keep(source: Source, recall: Recall) -> list[str]:
    facts = read_facts(source).facts
    assert facts is not None
    return [note.issue for note in recall.keep(source, facts)]


def _sources(folder: Path) -> tuple[Source, ...]:
    return discover([folder]).sources


def test_a_second_analysis_reads_nothing_and_says_the_same(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _write(tmp_path / "run", ranks=3)
    before = sorted(os.listdir(folder))
    told = [to_contract(report) for report in analyze([folder])]

    def no_reading(source: Source) -> RankResult:
        raise AssertionError(f"read again: {source.label}")

    monkeypatch.setattr(engine, "read_facts", no_reading)
    assert [to_contract(report) for report in analyze([folder])] == told
    assert sorted(os.listdir(folder)) == before  # nothing beside the traces
    assert len(list((own_cache / "ddprof" / "facts").glob("*.arrow"))) >= 3


def test_without_a_cache_nothing_is_kept_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    analyze([_write(tmp_path / "run")], Options(cache=False))
    assert sorted(os.listdir(tmp_path)) == ["run"]


def test_a_named_folder_is_used_instead_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    analyze([_write(tmp_path / "run")], Options(cache=str(tmp_path / "named")))
    assert len(os.listdir(tmp_path / "named")) == 1
    assert not (tmp_path / "cache").exists()


def test_a_file_is_no_folder_for_facts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--cache"):
        recall_of(str(tmp_path / "file"))


def test_a_file_that_has_changed_is_read_again(tmp_path: Path, kept_in: Recall) -> None:
    folder = _write(tmp_path / "run")
    _keep(_sources(folder)[0], kept_in)
    assert kept_in.facts_of(_sources(folder)[0]) is not None
    os.utime(_write(folder, first_us=2) / "rank0.json", ns=(1, 1))
    assert kept_in.facts_of(_sources(folder)[0]) is None


def test_a_file_whose_sidecar_has_changed_is_read_again(tmp_path: Path, kept_in: Recall) -> None:
    sidecar = tmp_path / "sidecar.json"
    sidecar.write_text("{}")
    (found,) = _sources(_write(tmp_path / "run"))
    source = replace(found, sidecar_path=str(sidecar))
    _keep(source, kept_in)
    assert kept_in.facts_of(source) is not None
    os.utime(sidecar, ns=(1, 1))
    assert kept_in.facts_of(source) is None


def test_facts_of_other_code_are_made_again(tmp_path: Path, kept_in: Recall) -> None:
    (source,) = _sources(_write(tmp_path / "run"))
    _keep(source, kept_in)
    assert Recall(kept_in.place, "other").facts_of(source) is None


def test_the_same_content_in_another_folder_is_another_file(tmp_path: Path, kept_in: Recall) -> None:
    here, there = (_write(tmp_path / name) for name in ("a", "b"))
    for folder in (here, there):
        os.utime(folder / "rank0.json", ns=(10**18, 10**18))
    _keep(_sources(here)[0], kept_in)
    assert kept_in.facts_of(_sources(there)[0]) is None


def test_facts_that_another_user_kept_are_not_believed(
    tmp_path: Path, kept_in: Recall, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = _sources(_write(tmp_path / "run"))
    _keep(source, kept_in)
    monkeypatch.setattr(recall, "_believed", lambda path: {os.getuid() + 1})
    assert kept_in.facts_of(source) is None


def test_a_damaged_entry_is_made_anew(tmp_path: Path, kept_in: Recall) -> None:
    (source,) = _sources(_write(tmp_path / "run"))
    _keep(source, kept_in)
    (entry,) = (tmp_path / "kept").iterdir()
    entry.write_bytes(entry.read_bytes()[:-100])
    assert kept_in.facts_of(source) is None
    _keep(source, kept_in)
    assert kept_in.facts_of(source) is not None


def test_facts_that_cannot_be_kept_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (source,) = _sources(_write(tmp_path / "run"))
    assert _keep(source, Recall(Folder(str(tmp_path / "file")), "1")) == ["facts could not be cached"]
