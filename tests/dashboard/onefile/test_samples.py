"""The HTML file of every shipped sample: small, the app's numbers, the same verdict with hashed names, offline."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report import phrases
from ddprof.report.json.contract import to_contract
from tests.dashboard.browsing import TILES, Page, one_in
from tests.dashboard.conftest import SAMPLES
from tests.dashboard.onefile_reader import File, equal_tables

NAMES = [file.parent.name for file in sorted(SAMPLES.glob("*/truth.json"))]
LINE = re.compile(r"\S+:\d+ \S+\(\)")  # of the script: hashed as paths and functions are
LIMIT_BYTES = 3_000_000
Sample = Callable[[str], OpenRun]
TextOf = Callable[[str], str]


@pytest.fixture(scope="module")
def text_of(sample: Callable[[str], OpenRun]) -> Callable[[str], str]:
    """`text_of(name)`: the file of a sample."""
    return cache(lambda name: render(sample(name)))


@pytest.mark.parametrize("name", NAMES)
def test_the_file_has_the_apps_numbers(sample: Sample, text_of: TextOf, name: str) -> None:
    opened, text = sample(name), text_of(name)
    file = File(text)
    assert len(text.encode()) < LIMIT_BYTES
    assert equal_tables(file, View(opened, {}, (opened,))) > 100
    assert json.loads(file.scripts["report"]) == json.loads(json.dumps(to_contract(opened.report)))
    gains = [float(row[3]) for row in file.rows.get("findings/findings", [[]])[1:]]
    priced = [f.recoverable_us.value / 1e3 for f in opened.report.ranked_findings()]
    assert gains == pytest.approx(priced, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_hashed_names_leave_the_verdict(sample: Sample, text_of: TextOf, name: str) -> None:
    opened, text = sample(name), text_of(name)
    plain = json.loads(File(text).scripts["report"])
    hashed_text = render(opened, key=b"key")
    hashed = json.loads(File(hashed_text).scripts["report"])
    for part in ("ledger", "steps"):
        assert hashed[part] == plain[part]
    said, plainly = ((r["verdict"]["bound"], LINE.sub("LINE", r["verdict"]["headline"])) for r in (hashed, plain))
    assert said == plainly
    assert [(f["id"], f["ranks"], f["recoverable_us"]) for f in hashed["findings"]] == [
        (f["id"], f["ranks"], f["recoverable_us"]) for f in plain["findings"]
    ]
    private = {host for host in plain["run"]["hosts"].values() if host} | {Path(p).name for p in plain["run"]["paths"]}
    assert [word for word in private if word in hashed_text] == []


@pytest.mark.parametrize("name", one_in(6, NAMES))
def test_it_opens_from_disk(file_of: Callable[..., Page], sample: Sample, name: str) -> None:
    page = file_of(sample(name)).open()
    for subject in (s for s in SUBJECTS if s.anchor != "compare"):
        page.js(f"location.hash = '{subject.anchor}'")
        title = f"document.querySelector('#{subject.anchor} h1')"
        page.wait(f"return {title}?.checkVisibility()")
        if subject.anchor == "overview":
            assert page.js(f"return {title}.textContent") == phrases.headline(sample(name).report)
        if subject.anchor == "timeline":
            page.wait(TILES)
    assert page.trouble() == []
