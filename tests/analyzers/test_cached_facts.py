"""Cached facts are used for unchanged files only, and lie in the user's cache or in the named place."""

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fsspec
import pytest
from kineto_run import Script
from reading import our_run, recorded

from ddprof.analyzers import cached_facts, engine
from ddprof.analyzers.cached_facts import GIVE_UP, Alike, Keeping, Recall, recall_of
from ddprof.analyzers.engine import Options, RankResult, analyze, read_facts
from ddprof.analyzers.facts.cache import Folder, Store
from ddprof.errors import UsageError
from ddprof.model import ProcessGroup
from ddprof.readers import Source, discover
from ddprof.report.json.contract import to_contract


@pytest.fixture
def kept_in(tmp_path: Path) -> Recall:
    return Recall(Folder(str(tmp_path / "kept")), "this code")


def _source(folder: str | Path) -> Source:
    return discover([folder]).sources[0]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return _source(recorded(tmp_path / "run", 1))


def _keep(source: Source, recall: Recall) -> None:
    facts = read_facts(source).facts
    assert facts is not None
    with Keeping(recall) as keeping:
        keeping.take(recall.keys_of([source])[0], facts)


def _is_known(source: Source, recall: Recall) -> bool:
    return recall.all_of([source], recall.keys_of([source]), Alike())[0] is not None


def _no_reading(*_: object, **__: object) -> RankResult:
    raise AssertionError("read again")


def _told(path: str | Path, how: Options | None = None) -> list[dict[str, Any]]:
    return [to_contract(report) for report in analyze([path], how)]


def test_a_second_analysis_reads_nothing(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = recorded(tmp_path / "run", ranks=3)
    before, told = sorted(os.listdir(folder)), _told(folder)
    monkeypatch.setattr(engine, "read_facts", _no_reading)
    assert _told(folder) == told
    assert sorted(os.listdir(folder)) == before  # nothing beside the traces
    assert len(list((own_cache / "ddprof" / "facts").glob("*.facts"))) >= 3


@pytest.mark.parametrize("named", [False, True])
def test_nothing_is_kept_in_the_users_folder_without_a_cache_or_with_a_named_one(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    analyze([source.path], Options(cache=str(tmp_path / "named") if named else False))
    assert sorted(os.listdir(tmp_path)) == ["named", "run"][not named :]
    assert not named or len(os.listdir(tmp_path / "named")) == 1


def test_a_file_is_no_folder_for_facts_and_a_url_of_this_machine_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--cache"):
        recall_of(str(tmp_path / "file"))
    recall = recall_of(f"file://{tmp_path}/kept")
    assert recall is not None and recall.place == Folder(str(tmp_path / "kept"))


@pytest.mark.parametrize("changed", ["rank0.json", "sidecar.json"])
def test_a_file_or_sidecar_that_changed_is_new(tmp_path: Path, source: Source, kept_in: Recall, changed: str) -> None:
    sidecar = tmp_path / "run" / "sidecar.json"
    sidecar.write_text("{}")
    source = replace(source, sidecar_path=str(sidecar))
    _keep(source, kept_in)
    assert _is_known(source, kept_in)
    os.utime(tmp_path / "run" / changed, ns=(1, 1))
    assert not _is_known(replace(_source(tmp_path / "run"), sidecar_path=str(sidecar)), kept_in)


def test_files_of_other_folders_or_without_stamps_are_others(tmp_path: Path, kept_in: Recall) -> None:
    here, there = (recorded(tmp_path / name, 1) for name in ("a", "b"))
    for folder in (here, there):
        os.utime(folder / "rank0.json", ns=(10**18, 10**18))
    _keep(_source(here), kept_in)
    assert not _is_known(_source(there), kept_in)
    source = Source("memory://nowhere/rank0.json", "kineto", size_bytes=100)
    assert kept_in.keys_of([source]) == [None] and kept_in.all_of([source], [None], Alike()) == [None]


def test_entries_of_other_code_or_another_user_or_damaged_ones_are_not_believed(
    tmp_path: Path, source: Source, kept_in: Recall, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keep(source, kept_in)
    assert not _is_known(source, Recall(kept_in.place, "other"))
    with monkeypatch.context() as patched:
        patched.setattr(cached_facts, "_believed", lambda path: {os.getuid() + 1})
        assert not _is_known(source, kept_in)
    assert _is_known(source, kept_in)
    (entry,) = (tmp_path / "kept").iterdir()
    entry.write_bytes(entry.read_bytes()[:-100])
    assert not _is_known(source, kept_in)
    _keep(source, kept_in)  # made anew
    assert _is_known(source, kept_in)


def _upload(folder: Path, url: str) -> None:
    files, path = fsspec.core.url_to_fs(url)
    for file in sorted(folder.glob("*.json")):
        files.pipe_file(f"{path}/{file.name}", file.read_bytes())


@pytest.fixture(params=["memory_url", "bucket"])
def remote(request: pytest.FixtureRequest) -> str:
    """A URL below which nothing lies yet."""
    return f"{request.getfixturevalue(request.param)}/place"


def test_traces_and_facts_in_stores_are_read_once(tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _upload(recorded(tmp_path / "run", ranks=3), f"{remote}/run")
    how = Options(cache=f"{remote}/facts")
    told = _told(f"{remote}/run", how)
    assert not [item for item in told[0]["health"] if "cached" in item["issue"]]
    files, path = fsspec.core.url_to_fs(f"{remote}/facts")
    assert len(files.ls(path)) == 3
    monkeypatch.setattr(engine, "read_facts", _no_reading)
    assert _told(f"{remote}/run", how) == told and not (tmp_path / "cache").exists()


def test_a_trace_or_companion_of_a_store_that_changed_is_new(tmp_path: Path, remote: str, kept_in: Recall) -> None:
    files, root = fsspec.core.url_to_fs(f"{remote}/run")
    _upload(our_run(tmp_path / "run", windows=1), f"{remote}/run")

    def known() -> list[bool]:
        sources = discover([f"{remote}/run"]).sources
        keys = kept_in.keys_of(sources)
        assert None not in keys
        known = [facts is not None for facts in kept_in.all_of(sources, keys, Alike())]
        for source in sources:
            _keep(source, kept_in)
        return known

    assert known() == [False, False] and known() == [True, True]
    first = _source(f"{remote}/run")
    stem = str(first.sidecar_path).rpartition("/")[2].removesuffix(".sidecar.json")
    named = [(f"{stem}.{kind}.jsonl", b"{}\n") for kind in ("workers", "stacks", "worker0.9.stacks")]
    for name, content in (*named, (named[-1][0], b"[]\n")):  # the last of one size with what it replaces
        files.pipe_file(f"{root}/{name}", content)
        assert known() == [False, True], (name, content)
    trace = f"{root}/{first.path.rpartition('/')[2]}"
    files.pipe_file(trace, files.cat_file(trace).replace(b"op 1", b"op 9", 1))
    assert known() == [False, True] and known() == [True, True]


def test_keys_read_no_file(tmp_path: Path, remote: str, kept_in: Recall, monkeypatch: pytest.MonkeyPatch) -> None:
    _upload(our_run(tmp_path / "run", windows=1), f"{remote}/run")
    sources = discover([f"{remote}/run"]).sources
    system, _ = fsspec.core.url_to_fs(remote)
    for name in ("open", "cat_file", "get_file"):
        monkeypatch.setattr(type(system), name, _no_reading)
    assert None not in kept_in.keys_of(sources)


def test_what_a_store_refused_is_not_kept(tmp_path: Path, memory_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _upload(our_run(tmp_path / "run", windows=1), memory_url)
    files, _ = fsspec.core.url_to_fs(memory_url)
    files.pipe_file(str(_source(memory_url).sidecar_path).replace(".sidecar.json", ".workers.jsonl"), b"")
    opened = type(files).open

    def refusing(system: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        if path.endswith(".workers.jsonl"):
            raise RuntimeError("please slow down")
        return opened(system, path, *args, **kwargs)

    how = Options(cache=str(tmp_path / "kept"))
    monkeypatch.setattr(type(files), "open", refusing)
    assert any("slow down" in item.issue for report in analyze([memory_url], how) for item in report.health)
    monkeypatch.undo()
    assert not any("slow down" in item.issue for report in analyze([memory_url], how) for item in report.health)


@pytest.mark.parametrize(
    ("url", "says"), [("ftps3://bucket/facts", "Protocol not known: ftps3"), ("gs://bucket/facts", "gcsfs")]
)
def test_a_place_that_no_package_reaches_is_one_line(url: str, says: str) -> None:
    if url.startswith("gs:") and find_spec("gcsfs"):
        pytest.skip("gcsfs is installed")
    with pytest.raises(UsageError, match=f"^--cache {url}: no place for facts: .*{says}") as error:
        recall_of(url)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("place", "where", "ranks", "error", "most"),
    [
        (Folder, "kept", 8, OSError(28, "No space left on device", "x.facts"), GIVE_UP),
        (Store, "memory://refused", 40, PermissionError("Access Denied"), GIVE_UP + Store.at_once - 1),
    ],
)
def test_facts_that_cannot_be_kept_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: type, where: str, ranks: int, error: OSError, most: int
) -> None:
    asked: list[str] = []

    def refuse(_: object, key: str, *__: object) -> None:
        asked.append(key)
        raise error

    for method in ("load", "save") if place is Store else ("save",):
        monkeypatch.setattr(place, method, refuse)
    cache = where if "://" in where else str(tmp_path / where)
    (report,) = analyze([recorded(tmp_path / "run", ranks=ranks)], Options(cache=cache))
    notes = [(note.issue, note.rank) for note in report.health if "cached" in note.issue]
    assert notes == [(f"facts could not be cached: {error.strerror or error}", None)] and len(asked) <= most


def test_equal_names_and_groups_are_one_object_and_others_stay_apart(tmp_path: Path) -> None:
    script = Script()
    script.launch()
    first = replace(script.facts(tmp_path), strings=("a", "b"), process_groups=(ProcessGroup("0", ranks=(0, 1)),))
    equal = replace(first, strings=tuple("ab"), process_groups=(ProcessGroup("0", ranks=(0, 1)),))
    alike = Alike()
    held = [alike.shared(facts) for facts in (first, equal, replace(first, strings=("a", "c")))]
    assert held[0].strings is held[1].strings and held[0].process_groups is held[1].process_groups
    assert [facts.strings for facts in held] == [("a", "b"), ("a", "b"), ("a", "c")]
