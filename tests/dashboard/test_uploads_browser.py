"""The upload form in a real Chromium: a sample's verdict, what is refused, and the keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.api import analyze
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import visit, wait_for
from tests.dashboard.keyboard import walk

pytestmark = pytest.mark.browser

LIMIT_BYTES = 2_000_000
SAID = "return document.querySelector('#upload-said.notice')?.textContent"


@pytest.fixture
def address(serve: Callable[..., str], straggler: OpenRun) -> str:
    """A server that takes uploads."""
    return serve([straggler], max_upload_bytes=LIMIT_BYTES)


def send(chromium: Any, address: str, *files: Path) -> None:
    """Choose files on the Data page and press the button with the keyboard."""
    visit(chromium, address, "/data")
    chosen = wait_for(chromium, "return document.getElementById('upload-files')")
    chosen.send_keys("\n".join(str(file) for file in files))
    chromium.find_element("id", "upload-send").send_keys("\ue007")  # Enter


def test_an_uploaded_sample_has_its_verdict(chromium: Any, address: str, repo_root: Path) -> None:
    folder = repo_root / "sample_traces" / "late_loader" / "traces"
    send(chromium, address, *sorted(folder.glob("*.gz")))
    wait_for(chromium, "return location.search === '?run=1'")
    heading = wait_for(chromium, "return document.querySelector('h1')?.textContent")
    assert analyze(folder, cache=False, workers=1).verdict.headline in heading
    assert chromium.execute_script("return document.querySelector('.runs a.current').textContent") == "upload-1"


def test_a_damaged_file_is_one_line_and_the_page_goes_on(
    chromium: Any, address: str, tmp_path: Path, straggler_traces: Path
) -> None:
    broken = tmp_path / "<img src=x onerror=alert(1)>.json"
    broken.write_text('{"traceEvents": [')
    send(chromium, address, broken)
    words = wait_for(chromium, SAID)
    assert "_img_src=x_onerror=alert_1_.json" in words and "\n" not in words
    assert chromium.execute_script("return document.querySelector('img[src=x]')") is None
    chromium.find_element("id", "upload-files").clear()
    chromium.find_element("id", "upload-files").send_keys(str(next(iter(straggler_traces.glob("*.gz")))))
    chromium.find_element("id", "upload-send").click()
    wait_for(chromium, "return location.search === '?run=1'")


def test_what_is_too_large_is_said_by_page_and_server(chromium: Any, address: str, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (LIMIT_BYTES + 1))
    send(chromium, address, large)
    assert "larger than 1.91 MiB" in wait_for(chromium, SAID)
    direct = """
      const done = arguments[0], body = new FormData();
      body.append("files", new Blob([new Uint8Array(40e6)]), "x.json");
      fetch("data/upload", { method: "POST", body, headers: { "X-Ddprof-Upload": "1" } })
        .then(async (answer) => done([answer.status, await answer.text()]), (error) => done([0, String(error)]));"""
    status, words = chromium.execute_async_script(direct)
    assert status == 413 and "larger than 1.91 MiB" in words


def test_the_form_has_its_turn_with_tab(chromium: Any, address: str) -> None:
    visit(chromium, address, "/data")
    wait_for(chromium, "return document.getElementById('upload-send')")
    found = walk(chromium)
    assert (found.missed, found.unseen, found.stuck) == ([], [], [])
    chromium.find_element("id", "upload-send").send_keys(" ")
    assert wait_for(chromium, SAID) == "Choose one or several files first."
