"""A saved report, as commands are given one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report


@pytest.fixture
def saved(tmp_path: Path, straggler_report: Report) -> Path:
    """The synthetic report as the JSON file that `--format json` would have written."""
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(to_contract(straggler_report), indent=1))
    return file
