"""`--cache` and `--no-cache`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

Ddprof = Callable[..., tuple[int, str, str]]


def test_facts_are_kept_where_it_was_said_and_nowhere_else(
    ddprof: Ddprof, repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    sample = str(repo_root / "sample_traces" / "slow_gpu")
    told = {ddprof("analyze", sample, "--format", "json", *how)[1] for how in ([], ["--no-cache"])}
    told |= {ddprof("analyze", sample, "--format", "json", "--cache", str(tmp_path / "named"))[1] for _ in range(2)}
    assert len(told) == 1
    kept = os.listdir(tmp_path / "users" / "ddprof" / "facts")
    assert sorted(kept) == sorted(os.listdir(tmp_path / "named")) != []


def test_both_options_contradict_each_other(ddprof: Ddprof, repo_root: Path, tmp_path: Path) -> None:
    sample = str(repo_root / "sample_traces" / "slow_gpu")
    code, _, error = ddprof("analyze", sample, "--cache", str(tmp_path / "named"), "--no-cache")
    assert (code, "--no-cache" in error) == (2, True)


def test_facts_are_kept_in_a_store_and_what_is_none_is_one_line(
    ddprof: Ddprof, repo_root: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no folder named "s3:" is made here
    sample = str(repo_root / "sample_traces" / "slow_gpu")
    told = {ddprof("analyze", sample, "--format", "json", "--cache", f"{bucket}/facts")[:2] for _ in range(2)}
    assert {code for code, _ in told} == {0} and len(told) == 1
    files, path = fsspec.core.url_to_fs(f"{bucket}/facts")
    assert len(files.ls(path, refresh=True)) > 1
    code, _, error = ddprof("analyze", sample, "--cache", "nosuch://facts")
    assert (code, error.count("\n")) == (2, 1) and "--cache nosuch://facts" in error
    code, out, error = ddprof("analyze", sample, "--cache", f"{bucket}-of-nobody/facts")
    assert (code, error) == (0, "") and "bucket does not exist" in out
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["analyze", "compare", "report", "verify", "whatif"])
def test_every_command_that_reads_traces_has_both(ddprof: Ddprof, command: str) -> None:
    _, out, _ = ddprof(command, "--help")
    assert "--cache PLACE" in out
    assert "--no-cache" in out
