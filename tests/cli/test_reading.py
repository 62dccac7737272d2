"""Options of every command that reads a run: `--cache`, `--no-cache`, `--engine`, `--ranks`."""

import os
from pathlib import Path

import fsspec
import pytest

READING = [
    *(("analyze", "SAMPLE"), ("report", "SAMPLE"), ("compare", "SAMPLE", "SAMPLE")),
    *(("whatif", "SAMPLE", "--set", "loader=ready"), ("plan", "loader", "SAMPLE", "--now", "num_workers=2")),
    ("verify", "SAMPLE", "SAMPLE", "--with", "num_workers=4"),
]


def test_facts_are_kept_where_it_was_said_only(ddprof, sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    asked = ("analyze", sample("slow_gpu"), "--format", "json")
    named = ("--cache", str(tmp_path / "named"))
    assert len({ddprof(*asked, *how)[1] for how in ((), ("--no-cache",), named, named)}) == 1
    kept = os.listdir(tmp_path / "users" / "ddprof" / "facts")
    assert sorted(kept) == sorted(os.listdir(tmp_path / "named")) != []


def test_facts_kept_in_a_store(ddprof, sample, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no folder named "s3:" is made here
    asked = ("analyze", sample("slow_gpu"), "--format", "json", "--cache")
    told = {ddprof(*asked, f"{bucket}/facts")[:2] for _ in range(2)}
    assert {code for code, _ in told} == {0} and len(told) == 1
    files, path = fsspec.core.url_to_fs(f"{bucket}/facts")
    assert len(files.ls(path, refresh=True)) > 1
    code, out, error = ddprof(*asked, f"{bucket}-of-nobody/facts")
    assert (code, error) == (0, "") and "bucket does not exist" in out and os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_every_command_that_reads_a_run_has_them_all(ddprof, sample, command: tuple[str, ...]) -> None:
    given = [sample("starved_loader") if word == "SAMPLE" else word for word in command]
    told = ddprof(*given, "--help")[1]
    assert "--cache PLACE" in told and "--no-cache" in told
    for option, value in (("--engine", "elsewhere"), ("--ranks", "sample:none")):
        code, out, err = ddprof(*given, "--no-cache", option, value)
        assert (code, out) == (2, "") and value in err and err.count("\n") == 1
