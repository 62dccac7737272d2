"""The timeline's toolbar: one line on every screen, the picture larger than all else, nothing lost behind "More"."""

import pytest

from tests.dashboard.access import serious, walk
from tests.dashboard.browsing import ENTER, ESCAPE, Page

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


def test_on_every_screen_the_picture_is_largest_the_bar_one_line_and_every_control_is_there(page: Page) -> None:
    named = []
    for size in SIZES:
        with page.window(*size):
            page.visit("/timeline")
            page.wait("return ddprof.timeline.root.dataset.arranged && ddprof.timeline.root.dataset.counters")
            named.append(page.js(CONTROLS))
            page.js("ddprof.timeline.openAll()")
            page.wait("return document.querySelector('.tl-more').offsetTop >= 0")
            seen = page.js(PLACES)
            assert seen["picture"] > 0.45 and seen["picture"] > 2 * seen["rest"], size
            assert seen["lines"] < 1.5 and seen["sideways"] <= 0, size
            assert page.trouble() == []
    assert named[0] == named[1] == named[2]
    expected = {"Critical path", "Waits", "Next finding", "Statistics", "List lane", "Mark", "Perfetto", "Open all"}
    expected |= {"All", "operators", "fold", "Step", "Step, by a slider", "Group by", "Order by", "More"}
    assert expected <= set(named[0])


@pytest.mark.parametrize("size", SIZES[::2], ids=lambda s: f"{s[0]}x{s[1]}")
def test_more_opens_and_closes_by_the_keyboard_and_is_clean(page: Page, size: tuple[int, int]) -> None:
    with page.window(*size):
        page.visit("/timeline")
        page.js("document.querySelector('.tl-more').focus()")
        page.hands.send_keys(ENTER).perform()
        assert page.css(".tl-menu").is_displayed()
        assert page.browser.switch_to.active_element.get_attribute("aria-expanded") == "true"
        assert serious(page) == []
        way = walk(page)
        assert (way.missed, way.unseen, way.stuck) == ([], [], [])
        page.menu().find_element("css selector", "select").send_keys(ESCAPE)
        assert not page.css(".tl-menu").is_displayed() and page.browser.switch_to.active_element.text == "More"


def test_a_command_closes_it_and_a_switch_does_not(page: Page) -> None:
    with page.window(*SIZES[-1]):
        page.visit("/timeline")
        menu = page.menu()
        assert page.press("Critical path").get_attribute("aria-pressed") == "false" and menu.is_displayed()
        assert page.js("return ddprof.timeline.showPath") is False
        page.press("Mark")
        assert not menu.is_displayed()
        assert page.browser.switch_to.active_element.get_attribute("aria-label") == "Note of mark 1"
        page.js("ddprof.timeline.notes = []; ddprof.timeline.changeNotes()")
        page.menu()
        page.css("#content h1").click()
        assert not menu.is_displayed()


def test_a_pressed_key_shows_on_its_button(timeline_page: Page) -> None:
    timeline_page.keys("p")
    pressed = "return [...document.querySelectorAll('.tl-bar [aria-pressed]')].map((b) => b.ariaPressed)"
    assert timeline_page.js(pressed) == ["false", "false"]
