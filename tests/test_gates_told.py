"""The table of gates in docs/ci.md: each command ends as it says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from ddprof.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
_ROW = re.compile(r"^\| `ddprof ([^`]+)` \| (\d) \| (.*?) ?\|$", re.MULTILINE)
ROWS = _ROW.findall((ROOT / "docs" / "ci.md").read_text(encoding="utf-8"))


def test_the_table_is_there() -> None:
    assert len(ROWS) >= 5 and {code for _, code, _ in ROWS} == {"0", "3"}


@pytest.mark.parametrize(("command", "code", "words"), ROWS, ids=[row[0] for row in ROWS])
def test_a_gate_ends_as_the_page_says(
    command: str, code: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)  # which main() replaces
    monkeypatch.setattr("sys.argv", ["ddprof", *shlex.split(command), "--no-cache"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value.code or 0) == code
    assert words in capsys.readouterr().err
