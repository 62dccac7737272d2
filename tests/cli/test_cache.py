"""`--cache` and `--no-cache`."""

import os
from pathlib import Path

import fsspec
import pytest


def test_facts_are_kept_where_it_was_said_only(ddprof, sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    asked = ("analyze", sample("slow_gpu"), "--format", "json")
    named = ("--cache", str(tmp_path / "named"))
    assert len({ddprof(*asked, *how)[1] for how in ((), ("--no-cache",), named, named)}) == 1
    kept = os.listdir(tmp_path / "users" / "ddprof" / "facts")
    assert sorted(kept) == sorted(os.listdir(tmp_path / "named")) != []
    code, _, error = ddprof("analyze", sample("slow_gpu"), "--cache", str(tmp_path / "named"), "--no-cache")
    assert (code, "--no-cache" in error) == (2, True)


def test_facts_kept_in_a_store(ddprof, sample, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no folder named "s3:" is made here
    asked = ("analyze", sample("slow_gpu"), "--format", "json", "--cache")
    told = {ddprof(*asked, f"{bucket}/facts")[:2] for _ in range(2)}
    assert {code for code, _ in told} == {0} and len(told) == 1
    files, path = fsspec.core.url_to_fs(f"{bucket}/facts")
    assert len(files.ls(path, refresh=True)) > 1
    code, _, error = ddprof(*asked, "nosuch://facts")
    assert (code, error.count("\n")) == (2, 1) and "--cache nosuch://facts" in error
    code, out, error = ddprof(*asked, f"{bucket}-of-nobody/facts")
    assert (code, error) == (0, "") and "bucket does not exist" in out and os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["analyze", "compare", "report", "verify", "whatif"])
def test_every_command_that_reads_traces_has_both(ddprof, command: str) -> None:
    _, out, _ = ddprof(command, "--help")
    assert "--cache PLACE" in out and "--no-cache" in out
