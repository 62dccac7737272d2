"""Runs the command line in this process: arguments in, exit code and both streams out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddprof.cli import main as cli_main
from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ddprof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Invoke:
    """`ddprof("analyze", path)` -> (exit code, stdout, stderr)."""
    monkeypatch.setattr("sys.excepthook", sys.__excepthook__)

    def invoke(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ddprof", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli_main.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return invoke


@pytest.fixture(scope="session")
def sample(repo_root: Path) -> Callable[[str], str]:
    """`sample("healthy")` -> the folder of that shipped sample."""
    return lambda name: str(repo_root / "sample_traces" / name)


@pytest.fixture
def saved(tmp_path: Path, straggler_report: Report) -> Path:
    """The synthetic report as the JSON file that `--format json` would have written."""
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(to_contract(straggler_report), indent=1))
    return file
