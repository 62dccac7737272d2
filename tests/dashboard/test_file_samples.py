"""The HTML file of every shipped sample: small, the app's numbers, the same verdict with hashed names, offline."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.conftest import SAMPLES
from tests.dashboard.onefile_reader import File

NAMES = [file.parent.name for file in sorted(SAMPLES.glob("*/truth.json"))]
LINE = re.compile(r"\S+:\d+ \S+\(\)")  # of the script: hashed as paths and functions are
LIMIT_BYTES = 3_000_000


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_small_and_hashed_names_leave_the_verdict(sample: Callable[[str], OpenRun], name: str) -> None:
    """That its numbers are the app's is a check of tests/consistency."""
    opened = sample(name)
    text = render(opened)
    assert len(text.encode()) < LIMIT_BYTES
    plain = json.loads(File(text).scripts["report"])
    hashed_text = render(opened, key=b"key")
    hashed = json.loads(File(hashed_text).scripts["report"])
    for part in ("ledger", "steps"):
        assert hashed[part] == plain[part]
    said, plainly = ((r["verdict"]["bound"], LINE.sub("LINE", r["verdict"]["headline"])) for r in (hashed, plain))
    assert said == plainly
    found, same = ([(f["id"], f["ranks"], f["recoverable_us"]) for f in r["findings"]] for r in (hashed, plain))
    assert found == same
    private = {host for host in plain["run"]["hosts"].values() if host} | {Path(p).name for p in plain["run"]["paths"]}
    assert [word for word in private if word in hashed_text] == []
