"""The HTML comparison in a real Chromium, from file://, without a network."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ddprof.report.comparison.compare import compare
from ddprof.report.comparison.html import render_html
from ddprof.report.model import Report

pytestmark = pytest.mark.browser

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def _open(chromium: Any, file: Path, text: str) -> list[str]:
    """Open the page; the console's complaints and every request other than the file itself."""
    file.write_text(text, encoding="utf-8")
    chromium.get_log("performance")
    chromium.get(file.as_uri())
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    requests = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    complaints = [entry["message"] for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"]
    return complaints + [url for url in requests if url != file.as_uri() and not url.startswith("data:")]


def _page(report: Report) -> str:
    return render_html(compare(report, report))


def test_the_page_opens_without_a_complaint_or_a_request(
    chromium: Any, tmp_path: Path, straggler_report: Report
) -> None:
    page = _page(straggler_report)
    assert _open(chromium, tmp_path / "x.html", page) == []
    assert "No change" in chromium.find_element("tag name", "h1").text


def test_the_theme_button_changes_the_ground(chromium: Any, tmp_path: Path, straggler_report: Report) -> None:
    _open(chromium, tmp_path / "x.html", _page(straggler_report))
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = chromium.execute_script(ground)
    chromium.find_element("id", "theme").click()
    assert chromium.execute_script(ground) != before


def test_a_name_from_a_trace_does_not_run(chromium: Any, tmp_path: Path, straggler_report: Report) -> None:
    report = dataclasses.replace(straggler_report, run=dataclasses.replace(straggler_report.run, name=EVIL))
    assert _open(chromium, tmp_path / "x.html", _page(report)) == []
    assert chromium.title != "owned"
    assert EVIL in chromium.find_element("tag name", "body").text


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_sticks_out_sideways(chromium: Any, tmp_path: Path, straggler_report: Report, width: int) -> None:
    chromium.set_window_size(width, 900)
    _open(chromium, tmp_path / "x.html", _page(straggler_report))
    shown, needed = chromium.execute_script("var d=document.documentElement;return [d.clientWidth,d.scrollWidth]")
    assert needed <= shown + 1
