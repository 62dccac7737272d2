"""A real Chromium on the dashboard or on a file: wait for it, visit a page, hear its complaints."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 30.0


def one_in(many: int, names: Sequence[str]) -> list[Any]:
    """Parameters of a test that takes seconds each: one in so many in the usual run, the others with the slow tests."""
    return [name if n % many == 0 else pytest.param(name, marks=pytest.mark.slow) for n, name in enumerate(names)]


def wait_for(chromium: Any, script: str) -> Any:
    """The value of a script once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := chromium.execute_script(script):
            return value
        time.sleep(0.05)
    raise AssertionError(f"never true: {script}")


def visit(chromium: Any, address: str, path: str) -> list[str]:
    """Open a page and wait until it is drawn; the console's complaints and every request to elsewhere."""
    chromium.get("about:blank")  # the page before asks its own server every few seconds
    chromium.get_log("performance")
    chromium.get_log("browser")
    chromium.get(address + path)
    _wait_until_drawn(chromium)
    return trouble(chromium, address)


def open_file(chromium: Any, file: Path, text: str, anchor: str = "") -> str:
    """Write the one-file report, open it from disk and wait for the timeline where that is asked for; its address."""
    file.write_text(text, encoding="utf-8")
    chromium.get("about:blank")
    trouble(chromium, "about:")
    chromium.get(file.as_uri() + anchor)
    if anchor.startswith("#timeline"):
        wait_for(chromium, "return document.getElementById('timeline-root').dataset.tiles")
    return str(file.as_uri())


def turn_to(chromium: Any, address: str, title: str) -> list[str]:
    """Go to another page by its link in the navigation, as a reader does, and wait until it is drawn; complaints."""
    link = chromium.find_element("css selector", "#navigation").find_element("link text", title)
    chromium.execute_script("arguments[0].click()", link)
    current = f"return document.querySelector('#navigation .current')?.textContent === {json.dumps(title)}"
    wait_for(chromium, current)
    _wait_until_drawn(chromium)
    return trouble(chromium, address)


def _wait_until_drawn(chromium: Any) -> None:
    wait_for(chromium, "return document.querySelector('#content h1, #content .notice') !== null")
    wait_for(chromium, "return !document.querySelector('[data-dash-is-loading]')")
    if chromium.execute_script("return document.getElementById('timeline-root') !== null"):
        wait_for(chromium, "return document.getElementById('timeline-root').dataset.tiles")


def open_more(chromium: Any) -> Any:
    """What is behind "More" of the timeline, opened."""
    menu = chromium.find_element("css selector", ".tl-menu")
    if not menu.is_displayed():
        chromium.find_element("css selector", ".tl-more").click()
    return menu


def trouble(chromium: Any, address: str) -> list[str]:
    """Complaints and foreign requests since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    complaints = [e["message"] for e in chromium.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
    return complaints + [u for u in asked if not u.startswith((address, "data:", "blob:", "about:"))]
