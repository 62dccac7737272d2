"""`ddprof run` on the command line: what is refused before anything is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Invoke = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("memory://", "ends with it"),
        ("memory://bucket/runs", "ends with it"),
        ("s3://", "want s3://BUCKET/FOLDER"),
        ("gs:///", "want gs://BUCKET/FOLDER"),
    ],
)
def test_a_url_under_which_nothing_lasts_is_refused_in_one_line(
    ddprof: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, told, err = ddprof("run", "--out", out, "--", sys.executable, "-c", "print('started')")
    assert (code, told) == (2, "")
    assert says in err and out in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
