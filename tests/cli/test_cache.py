"""`--cache` and `--no-cache`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

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


@pytest.mark.parametrize("command", ["analyze", "compare", "report", "verify", "whatif"])
def test_every_command_that_reads_traces_has_both(ddprof: Ddprof, command: str) -> None:
    _, out, _ = ddprof(command, "--help")
    assert "--cache FOLDER" in out
    assert "--no-cache" in out
