"""The timeline's toolbar: one line on every screen, the picture larger than all else, nothing lost behind "More"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.axe import serious
from tests.dashboard.browsing import open_more, trouble, visit, wait_for
from tests.dashboard.keyboard import walk

pytestmark = pytest.mark.browser

SIZES = [(1440, 900), (1024, 700), (390, 844)]
# px in the window that each part of the page covers, and the height of the bar in lines of its buttons.
PLACES = """
  const seen = (e) => {
    const b = e.getBoundingClientRect();
    const span = (lo, hi, most) => Math.max(0, Math.min(hi, most) - Math.max(lo, 0));
    return span(b.left, b.right, innerWidth) * span(b.top, b.bottom, innerHeight);
  };
  const areas = (kinds) => [...document.querySelectorAll(kinds)].map(seen);
  const area = innerWidth * innerHeight;
  const bar = document.querySelector(".tl-bar").getBoundingClientRect().height;
  return {
    picture: seen(document.querySelector(".tl-scroll")) / area,
    rest: Math.max(...areas("#top, #navigation, .tl-bar, .tl-map, #content h1, #content > p")) / area,
    lines: bar / document.querySelector(".tl-more").offsetHeight,
    sideways: document.documentElement.scrollWidth - innerWidth,
  };"""
CONTROLS = """
  const words = (e) => e.getAttribute("aria-label") || e.closest("label")?.textContent.trim() || e.textContent.trim();
  return [...document.querySelectorAll(":is(.tl-bar, .tl-menu) :is(button, input, select)")].map(words).sort();"""


@contextmanager
def screen(chromium: Any, width: int, height: int) -> Iterator[None]:
    """A window of some px."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], straggler: OpenRun) -> str:
    """A server of a generated GPU run."""
    return serve([straggler])


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_the_picture_is_the_largest_thing_and_the_bar_is_one_line(
    chromium: Any, address: str, size: tuple[int, int]
) -> None:
    with screen(chromium, *size):
        visit(chromium, address, "/timeline")
        chromium.execute_script("ddprof.timeline.openAll()")
        wait_for(chromium, "return document.querySelector('.tl-more').offsetTop >= 0")
        found = chromium.execute_script(PLACES)
        assert found["picture"] > 0.45 and found["picture"] > 2 * found["rest"]
        assert found["lines"] < 1.5 and found["sideways"] <= 0
        assert trouble(chromium, address) == []


def test_every_control_is_there_on_every_screen(chromium: Any, address: str) -> None:
    named = []
    for size in SIZES:
        with screen(chromium, *size):
            visit(chromium, address, "/timeline")
            wait_for(chromium, "return ddprof.timeline.root.dataset.arranged && ddprof.timeline.root.dataset.counters")
            named.append(chromium.execute_script(CONTROLS))
    assert named[0] == named[1] == named[2]
    expected = {"Critical path", "Waits", "Next finding", "Statistics", "List lane", "Mark", "Perfetto", "Open all"}
    expected |= {"All", "operators", "fold", "Step", "Step, by a slider", "Group by", "Order by", "More"}
    assert expected <= set(named[0])


@pytest.mark.parametrize("size", SIZES[::2], ids=lambda s: f"{s[0]}x{s[1]}")
def test_more_opens_and_closes_by_the_keyboard_and_is_clean(chromium: Any, address: str, size: tuple[int, int]) -> None:
    from selenium.webdriver import ActionChains, Keys

    with screen(chromium, *size):
        visit(chromium, address, "/timeline")
        chromium.execute_script("document.querySelector('.tl-more').focus()")
        ActionChains(chromium).send_keys(Keys.ENTER).perform()
        assert chromium.find_element("css selector", ".tl-menu").is_displayed()
        assert chromium.switch_to.active_element.get_attribute("aria-expanded") == "true"
        assert serious(chromium) == []
        found = walk(chromium)
        assert (found.missed, found.unseen, found.stuck) == ([], [], [])
        open_more(chromium).find_element("css selector", "select").send_keys(Keys.ESCAPE)
        assert not chromium.find_element("css selector", ".tl-menu").is_displayed()
        assert chromium.switch_to.active_element.text == "More"


def test_a_command_closes_it_and_a_switch_does_not(chromium: Any, address: str) -> None:
    with screen(chromium, *SIZES[-1]):
        visit(chromium, address, "/timeline")
        menu = open_more(chromium)
        path = next(b for b in menu.find_elements("css selector", "button") if b.text == "Critical path")
        path.click()
        assert path.get_attribute("aria-pressed") == "false" and menu.is_displayed()
        assert chromium.execute_script("return ddprof.timeline.showPath") is False
        next(b for b in menu.find_elements("css selector", "button") if b.text.startswith("Mark")).click()
        assert not menu.is_displayed()
        assert chromium.switch_to.active_element.get_attribute("aria-label") == "Note of mark 1"
        chromium.execute_script("ddprof.timeline.notes = []; ddprof.timeline.changeNotes()")
        open_more(chromium)
        chromium.find_element("css selector", "#content h1").click()
        assert not menu.is_displayed()


def test_a_pressed_key_shows_on_its_button(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    chromium.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys("p")
    pressed = "return [...document.querySelectorAll('.tl-bar [aria-pressed]')].map((b) => b.ariaPressed)"
    assert chromium.execute_script(pressed) == ["false", "false"]
