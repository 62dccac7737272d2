"""Trials in a real Chromium: every page that shows them fits and is clean, and the button copies the command."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ddprof.dashboard.exhibits.parts.trials import short_names
from ddprof.dashboard.runs.open_run import load
from tests.dashboard.access import serious
from tests.dashboard.browsing import Page, PageOf, Serve
from tests.dashboard.tuned import ANSWER

SIZES_PX = ((390, 844), (1440, 900))  # of a phone and of a desk


@pytest.fixture(scope="module")
def address(serve: Serve, tuned_folder: Path) -> str:
    return serve(load([str(tuned_folder)]))


def test_names_that_are_alike_are_told_apart() -> None:
    names = [f"num_workers=2, prefetch_factor={n} at a.py:{n}" for n in range(2)]
    assert short_names([replace(ANSWER.tried[0], settings=(name,)) for name in names]) == names


@pytest.mark.parametrize("path", ["/tuning", "/findings", "/what-if"])
def test_pages_with_trials_fit_on_a_desk_and_on_a_phone_and_are_clean(page: Page, path: str) -> None:
    assert page.visit(path) == []
    for width, height in SIZES_PX:
        with page.window(width, height):
            assert page.js("return document.documentElement.scrollWidth") <= width
    page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for theme in ("light", "dark") if path == "/tuning" else ("dark",):
        page.js(f"document.documentElement.dataset.theme = '{theme}'")
        assert serious(page) == [], theme


def _press_copy(page: Page) -> str:
    """Press the first button that copies, and return what it has put on the clipboard."""
    # A clipboard of the test: that of the machine belongs to whoever sits at it.
    page.js(
        "Object.defineProperty(navigator, 'clipboard', { configurable: true, value: "
        "{ writeText: (text) => { window.copied = text; return Promise.resolve(); } } })"
    )
    page.js("document.querySelector('.page:not([hidden]) button.copy, #content button.copy').click()")
    return str(page.wait("return window.copied"))


def test_a_button_copies_the_command_or_selects_it_without_a_clipboard(page: Page, tuned_folder: Path) -> None:
    page.visit("/tuning")
    assert _press_copy(page).startswith(f"ddprof run --apply {tuned_folder.resolve()}/FIXES.toml -- torchrun")
    page.wait("return document.querySelector('button.copy').textContent === 'Copied'")
    page.js("Object.defineProperty(navigator, 'clipboard', { configurable: true, value: undefined })")
    page.js("getSelection().removeAllRanges(); document.querySelector('button.copy').click()")
    page.wait("return getSelection().toString().startsWith('ddprof run --apply')")


def test_the_file_copies_too(file_of: PageOf, tuned_folder: Path) -> None:
    page = file_of(load([str(tuned_folder)])[0]).open("#tuning")
    page.wait("return !document.getElementById('tuning').hidden")
    assert _press_copy(page).startswith("ddprof run --apply") and serious(page) == []
