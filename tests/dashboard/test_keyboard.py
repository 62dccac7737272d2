"""The dashboard with the keyboard alone, and on paper."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import trouble, visit, wait_for
from tests.dashboard.keyboard import walk

pytestmark = pytest.mark.browser

LEAST_CONTROLS = len(PAGES) + 5  # the navigation, the way past it, both filters, their button, the JSON, the theme


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], straggler: OpenRun, pipeline: OpenRun) -> str:
    """A server of two generated GPU runs."""
    return serve([straggler, pipeline])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.title)
def test_every_page_opens_and_every_control_has_its_turn_with_tab(chromium: Any, address: str, page: Any) -> None:
    assert visit(chromium, address, page.path) == []
    assert chromium.title == "ddprof"
    if page.path == "/what-if":
        wait_for(chromium, "return document.querySelectorAll('#what-if-controls input').length > 3")
    found = walk(chromium)
    assert found.controls >= LEAST_CONTROLS
    assert (found.missed, found.unseen, found.stuck) == ([], [], [])
    assert trouble(chromium, address) == []


def test_the_keyboard_opens_a_page_and_its_numbers(chromium: Any, address: str) -> None:
    from selenium.webdriver import ActionChains, Keys

    visit(chromium, address, "/")
    link = chromium.find_element("link text", "Ranks & steps")
    chromium.execute_script("arguments[0].focus()", link)
    ActionChains(chromium).send_keys(Keys.ENTER).perform()
    fold = wait_for(chromium, "return document.querySelector('#exhibit-lateness summary')")
    chromium.execute_script("arguments[0].focus()", fold)
    ActionChains(chromium).send_keys(Keys.SPACE).perform()
    wait_for(chromium, "return document.querySelector('#exhibit-lateness details').open")
    wait_for(chromium, "return document.querySelectorAll('#exhibit-lateness details td').length > 3")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_paper_has_no_controls_and_dark_words(chromium: Any, address: str, theme: str) -> None:
    visit(chromium, address, "/")
    chromium.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
    wait_for(chromium, "return document.querySelectorAll('.js-plotly-plot text').length > 5")
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        left = """
          const kinds = "#navigation, .filters, .filters *, .links a, .skip";
          const shown = [...document.querySelectorAll(kinds)].filter((e) => e.checkVisibility());
          return shown.map((e) => e.outerHTML.slice(0, 80))"""
        assert chromium.execute_script(left) == []
        words = """
          const lightness = (c) => c.match(/\\d+/g).slice(0, 3).reduce((sum, v) => sum + Number(v), 0) / 765;
          const colour = (e) => getComputedStyle(e)[e.closest("svg") ? "fill" : "color"];
          const titles = [...document.querySelectorAll(".js-plotly-plot :is(.xtick, .ytick) text, h1, p")];
          return [titles.length, Math.max(...titles.map((e) => lightness(colour(e))))]"""
        count, lightest = chromium.execute_script(words)
        assert count > 10 and lightest < 0.45
    finally:
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    pdf = base64.b64decode(chromium.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF") and pdf.count(b"/Type /Page\n") >= 1
