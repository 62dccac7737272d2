"""The HTML comparison in a real Chromium, from file://, without a network."""

import dataclasses
from pathlib import Path

import pytest

from ddprof.report.comparison.compare import compare
from ddprof.report.model import Report
from ddprof.slices.comparison.compare_page import render_html
from tests.dashboard.browsing import Page

pytestmark = pytest.mark.browser

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def _open(chromium, file: Path, report: Report) -> list[str]:
    """Complaints of the console and requests to elsewhere, once the page is open."""
    file.write_text(render_html(compare(report, report)), encoding="utf-8")
    return Page(chromium, file.as_uri()).open().trouble()


def test_the_page_opens_and_no_name_of_a_trace_runs(chromium, tmp_path: Path, straggler_report: Report) -> None:
    assert _open(chromium, tmp_path / "x.html", straggler_report) == []
    assert "No change" in chromium.find_element("tag name", "h1").text
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = chromium.execute_script(ground)
    chromium.find_element("id", "theme").click()
    assert chromium.execute_script(ground) != before
    for width in (400, 1280):
        chromium.set_window_size(width, 900)
        _open(chromium, tmp_path / "x.html", straggler_report)
        shown, needed = chromium.execute_script("var d=document.documentElement;return [d.clientWidth,d.scrollWidth]")
        assert needed <= shown + 1
    report = dataclasses.replace(straggler_report, run=dataclasses.replace(straggler_report.run, name=EVIL))
    assert _open(chromium, tmp_path / "x.html", report) == []
    assert chromium.title != "owned" and EVIL in chromium.find_element("tag name", "body").text
