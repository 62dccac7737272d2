"""`ddprof run` on the command line: what is refused before anything is started."""

import sys
from pathlib import Path

import pytest

SAYS = dict.fromkeys(("memory://", "memory://bucket/runs"), "ends with it")
SAYS |= {"s3://": "want s3://BUCKET/FOLDER", "gs:///": "want gs://BUCKET/FOLDER"}


@pytest.mark.parametrize(("out", "says"), SAYS.items())
def test_a_url_under_which_nothing_lasts_is_refused(ddprof, tmp_path: Path, monkeypatch, out: str, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, told, err = ddprof("run", "--out", out, "--", sys.executable, "-c", "print('started')")
    assert (code, told, list(tmp_path.iterdir())) == (2, "", [])
    assert says in err and out in err and err.count("\n") == 1
