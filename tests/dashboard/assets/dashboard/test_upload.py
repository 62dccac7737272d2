"""The upload form in a real Chromium, by its keys: a sample's verdict, and what is refused."""

from pathlib import Path

import pytest

from ddprof.api import analyze
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import ENTER, SPACE, Page, Serve
from tests.dashboard.conftest import UPLOAD_BYTES

OPENED = "return /^.run=\\d+$/.test(location.search)"
SAID = "return document.querySelector('#upload-said.notice')?.textContent"


@pytest.fixture(scope="module")
def address(serve: Serve, straggler: OpenRun) -> str:
    """A server of its own, for uploads change it."""
    return serve([straggler], max_upload_bytes=UPLOAD_BYTES)


def send(page: Page, *files: Path) -> None:
    """Choose files on the Data page and press the button with the keyboard."""
    page.visit("/data")
    page.wait("return document.getElementById('upload-files')").send_keys("\n".join(map(str, files)))
    page.css("#upload-send").send_keys(ENTER)


def test_an_uploaded_sample_has_its_verdict(page: Page, repo_root: Path) -> None:
    folder = repo_root / "sample_traces" / "late_loader" / "traces"
    send(page, *sorted(folder.glob("*.gz")))
    page.wait(OPENED)
    heading = page.wait("return document.querySelector('h1')?.textContent")
    assert analyze(folder, cache=False, workers=1).verdict.headline in heading
    assert page.js("return document.querySelector('.runs a.current').textContent").startswith("upload-")


def test_a_damaged_file_is_one_line_and_the_page_goes_on(page: Page, tmp_path: Path, straggler_traces: Path) -> None:
    broken = tmp_path / "<img src=x onerror=alert(1)>.json"
    broken.write_text('{"traceEvents": [')
    send(page, broken)
    words = page.wait(SAID)
    assert "_img_src=x_onerror=alert_1_.json" in words and "\n" not in words
    assert page.js("return document.querySelector('img[src=x]')") is None
    page.css("#upload-files").clear()
    page.css("#upload-files").send_keys(str(min(straggler_traces.glob("*.gz"))))
    page.css("#upload-send").click()
    page.wait(OPENED)


def test_what_is_too_large_is_said_by_page_and_server(page: Page, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (UPLOAD_BYTES + 1))
    send(page, large)
    assert "larger than 1.91 MiB" in page.wait(SAID)
    direct = """
      const done = arguments[0], body = new FormData();
      body.append("files", new Blob([new Uint8Array(40e6)]), "x.json");
      fetch("data/upload", { method: "POST", body, headers: { "X-Ddprof-Upload": "1" } })
        .then(async (answer) => done([answer.status, await answer.text()]), (error) => done([0, String(error)]));"""
    status, words = page.browser.execute_async_script(direct)
    assert status == 413 and "larger than 1.91 MiB" in words


def test_nothing_is_sent_where_no_file_was_chosen(page: Page) -> None:
    page.visit("/data")
    page.wait("return document.getElementById('upload-send')").send_keys(SPACE)
    assert page.wait(SAID) == "Choose one or several files first."
