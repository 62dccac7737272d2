"""axe-core finds nothing serious on any page, light or dark: with every table open, the upload form, a running job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun, load
from tests.dashboard.axe import serious
from tests.dashboard.browsing import visit, wait_for
from tests.dashboard.test_live import running  # noqa: F401  # a fixture

pytestmark = pytest.mark.browser

UPLOAD_BYTES = 2**20
THEMES = ("light", "dark")


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], straggler: OpenRun, pipeline: OpenRun) -> str:
    """A server of two generated GPU runs that takes uploads."""
    return serve([straggler, pipeline], max_upload_bytes=UPLOAD_BYTES)


def _visit(chromium: Any, address: str, path: str, theme: str) -> None:
    """Open a page in a theme, with all its tables; the timeline with hits, a mark and the tables of a range."""
    chromium.execute_cdp_cmd("Network.setCookie", {"name": "ddprof_theme", "value": theme, "url": address})
    visit(chromium, address, path)
    wait_for(chromium, f"return document.documentElement.dataset.theme === '{theme}'")
    chromium.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    if chromium.execute_script("return document.getElementById('timeline-root') !== null"):
        chromium.execute_script("const t = ddprof.timeline; t.box.value = 'e'; t.find(); t.addNote()")
        wait_for(chromium, "return ddprof.timeline.found?.view && document.querySelector('.tl-notes input')")
        chromium.execute_script("const t = ddprof.timeline; t.range = [t.lo, t.hi]; t.statistics()")
        wait_for(chromium, "return document.querySelector('.tl-panel table')")


# Axe takes seconds on a page: in the usual run each page in one of the themes, in turn; in both with the slow tests.
@pytest.mark.parametrize(
    ("page", "theme"),
    [
        pytest.param(page, theme, id=f"{page.title}-{theme}", marks=[] if (n + t) % 2 else [pytest.mark.slow])
        for n, page in enumerate(PAGES)
        for t, theme in enumerate(THEMES)
    ],
)
def test_axe_finds_nothing_serious(chromium: Any, address: str, page: Any, theme: str) -> None:
    _visit(chromium, address, page.path, theme)
    if page.path == "/data":
        wait_for(chromium, "return document.getElementById('upload-send')")
    if page.path == "/what-if":
        wait_for(chromium, "return document.querySelector('#what-if-controls input[type=range]')")
    found = serious(chromium)
    chromium.delete_all_cookies()
    assert found == []


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_serious_while_a_job_runs(
    chromium: Any,
    serve: Callable[..., str],
    running: Path,  # noqa: F811
    theme: str,
) -> None:
    where = serve(load([str(running)]))
    _visit(chromium, where, "/live", theme)
    wait_for(chromium, "return document.querySelectorAll('#live .exhibit').length >= 2")
    found = serious(chromium)
    chromium.delete_all_cookies()
    assert found == []


def test_axe_sees_what_is_wrong(chromium: Any, address: str) -> None:
    visit(chromium, address, "/findings")
    chromium.execute_script("document.getElementById('content').append(document.createElement('button'))")
    assert [rule for rule, _ in serious(chromium)] == ["button-name"]
