"""Trials in a real Chromium: every page that shows them, the button that copies, the address that chooses a tuning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import load
from tests.dashboard.axe import serious
from tests.dashboard.browsing import one_in, open_file, visit, wait_for

pytestmark = pytest.mark.browser

PAGES = ("/tuning", "/findings", "/what-if")
PHONE_PX, DESK_PX = (390, 844), (1440, 900)


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], tuned_folder: Path) -> str:
    """A server of the folder of a tuning."""
    return serve(load([str(tuned_folder)]))


def _sized(chromium: Any, size_px: tuple[int, int]) -> None:
    metrics = {"width": size_px[0], "height": size_px[1], "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("path", PAGES)
def test_pages_with_trials_fit_on_a_desk_and_on_a_phone(chromium: Any, address: str, path: str) -> None:
    try:
        for size_px in (DESK_PX, PHONE_PX):
            _sized(chromium, size_px)
            assert visit(chromium, address, path) == []
            assert chromium.execute_script("return document.documentElement.scrollWidth") <= size_px[0], size_px
    finally:
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("path", one_in(2, PAGES))
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium: Any, address: str, path: str, theme: str) -> None:
    chromium.execute_cdp_cmd("Network.setCookie", {"name": "ddprof_theme", "value": theme, "url": address})
    visit(chromium, address, path)
    wait_for(chromium, f"return document.documentElement.dataset.theme === '{theme}'")
    chromium.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    found = serious(chromium)
    chromium.delete_all_cookies()
    assert found == []


def _press_copy(chromium: Any) -> str:
    """Press the first button that copies, and return what it has put on the clipboard."""
    # A clipboard of the test: that of the machine belongs to whoever sits at it.
    chromium.execute_script(
        "Object.defineProperty(navigator, 'clipboard', { configurable: true, value: "
        "{ writeText: (text) => { window.copied = text; return Promise.resolve(); } } })"
    )
    chromium.execute_script("document.querySelector('.page:not([hidden]) button.copy, #content button.copy').click()")
    return str(wait_for(chromium, "return window.copied"))


def test_a_button_copies_the_command(chromium: Any, address: str, tuned_folder: Path) -> None:
    visit(chromium, address, "/tuning")
    copied = _press_copy(chromium)
    assert copied.startswith(f"ddprof run --apply {tuned_folder.resolve()}/FIXES.toml -- torchrun")
    wait_for(chromium, "return document.querySelector('button.copy').textContent === 'Copied'")


def test_without_a_clipboard_the_command_is_selected(chromium: Any, address: str) -> None:
    visit(chromium, address, "/tuning")
    chromium.execute_script("Object.defineProperty(navigator, 'clipboard', { configurable: true, value: undefined })")
    chromium.execute_script("document.querySelector('button.copy').click()")
    wait_for(chromium, "return getSelection().toString().startsWith('ddprof run --apply')")


def test_the_file_copies_too(chromium: Any, tuned_folder: Path, tmp_path: Path) -> None:
    open_file(chromium, tmp_path / "report.html", render(load([str(tuned_folder)])[0]), "#tuning")
    wait_for(chromium, "return !document.getElementById('tuning').hidden")
    assert _press_copy(chromium).startswith("ddprof run --apply")
    assert serious(chromium) == []
