"""The timeline on every screen: one bar, the picture largest, nothing lost behind "More"; on paper all of its rows.

Its marks stay in the link, and a link that somebody else wrote can do nothing but mark.
"""

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.dashboard.browsing import ENTER, ESCAPE, PIXELS, Page, serious, walk

SIZES = [(1440, 900), (1024, 700), (390, 844)]
# px in the window that each part of the page covers, and the height of the bar in lines of its buttons.
PLACES = """
  const span = (lo, hi, most) => Math.max(0, Math.min(hi, most) - Math.max(lo, 0));
  const places = (kinds) => [...document.querySelectorAll(kinds)].map((e) => e.getBoundingClientRect());
  const area = (b) => span(b.left, b.right, innerWidth) * span(b.top, b.bottom, innerHeight);
  const largest = (kinds) => Math.max(...places(kinds).map(area)) / (innerWidth * innerHeight);
  return {
    picture: largest(".tl-scroll"),
    rest: largest("#top, #navigation, .tl-bar, .tl-map, #content h1, #content > p"),
    lines: places(".tl-bar")[0].height / document.querySelector(".tl-more").offsetHeight,
    sideways: document.documentElement.scrollWidth - innerWidth,
  };"""
CONTROLS = """
  const words = (e) => e.getAttribute("aria-label") || e.closest("label")?.textContent.trim() || e.textContent.trim();
  return [...document.querySelectorAll(":is(.tl-bar, .tl-menu) :is(button, input, select)")].map(words).sort();"""
PRINT = "window.dispatchEvent(new Event('beforeprint'))"
SHEETS = "[...document.querySelectorAll('.tl-paper canvas')]"
# Share of the rows with slices that have one of their colours: the strips' axes are 26 px, their scale is 2.
PAINTED = f"""{PIXELS}
  const t = ddprof.timeline, rows = t.rows.filter((r) => r.lane !== undefined);
  let seen = 0;
  for (const c of {SHEETS})
    for (let y = 0; y < c.height; y += 2) seen += pixels(c, [380, y], t.painter.fill, 4) > 20;
  return [seen * 2, rows.length, {SHEETS}.map((c) => c.height)];"""
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
NOTES, TEXTS = "return ddprof.timeline.notes", "return ddprof.timeline.notes.map((n) => n.text)"
NONE = "ddprof.timeline.notes = []; ddprof.timeline.changeNotes()"
LINKS = [
    (f"1.0~0~{quote(EVIL, safe='')};2~~a%00%0Ab%E2%80%AEc;3~~" + "x" * 500, [EVIL[:120], "a  b c", "x" * 120]),
    ("1.0~~ok;nonsense;1e9~~x;~~;NaN~~x;1~99999999999~x;2~~%E4;999999999999~~not in this run", ["ok"]),
    *((";".join(["1~~n"] * 50), ["n"] * 20), ("1~~" + "x" * 9000, [])),
]


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


@pytest.fixture
def small(page: Page) -> Iterator[Page]:
    """The timeline with the lanes of all ranks in a window in which only some rows are in view."""
    with page.window(1000, 420):
        page.visit("/timeline")
        page.wait("return ddprof.timeline.root.dataset.path !== undefined")
        page.js("const t = ddprof.timeline; t.open = new Set(t.info.lanes.map((l) => l.rank)); t.layout()")
        page.wait("return ddprof.timeline.visibleRows().length < ddprof.timeline.rows.length / 2")
        yield page


def test_all_rows_are_drawn_and_what_is_cut_is_said(small: Page) -> None:
    small.js(PRINT)
    assert small.trouble() == []  # Chromium itself warns of reading pixels
    painted, rows, heights = small.js(PAINTED)
    assert len(heights) > 1 and sum(heights) / 2 >= small.js("return ddprof.timeline.tall") and max(heights) / 2 < 620
    assert painted > 0.5 * 2 * 13 * rows  # two pixels a unit; the least height of a row is 13
    assert small.css(".tl-paper p").get_attribute("textContent") == ""
    small.js("window.dispatchEvent(new Event('afterprint'))")
    assert small.js(f"return {SHEETS}.length") == 0
    many = "const t = ddprof.timeline; t.rows = Array.from({ length: 500 }, () => t.rows[1]); return t.rows.length"
    assert small.js(many) == 500
    small.js(PRINT)
    assert small.css(".tl-paper p").get_attribute("textContent").startswith("Printed are the first 400 of 500 rows")


def test_paper_is_light_and_shows_the_range(small: Page) -> None:
    small.js("document.documentElement.dataset.theme = 'dark'; ddprof.timeline.zoom(0.3)")
    whole = small.js(f"{PRINT}; return {SHEETS}[0].toDataURL()")
    assert small.js(f"return [...{SHEETS}[0].getContext('2d').getImageData(2, 2, 1, 1).data]") == [255, 255, 255, 255]
    small.js("ddprof.timeline.zoom(0.3)")
    assert small.js(f"{PRINT}; return {SHEETS}[0].toDataURL()") != whole
    pdf = small.printed(preferCSSPageSize=True)
    assert len(re.findall(rb"/Subtype\s*/Image", pdf)) >= 2 and 2 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) <= 6


def _mark(page: Page, note: str) -> None:
    page.keys("m")
    page.wait("return document.activeElement.closest('.tl-notes') !== null")
    page.browser.switch_to.active_element.send_keys(note + ENTER)
    page.wait("return document.activeElement === ddprof.timeline.canvas")
    page.wait(f"return decodeURIComponent(location.hash).includes({note!r})")


def test_a_mark_and_its_note_come_back_with_the_link(timeline: Page) -> None:
    timeline.js("ddprof.timeline.activeLane = ddprof.timeline.info.lanes.find((l) => l.rank === 0).id")
    _mark(timeline, "here: 50 % ~ slow; why?")
    timeline.js("ddprof.timeline.activeLane = undefined; ddprof.timeline.zoom(0.5, ddprof.timeline.lo)")
    _mark(timeline, "ünïcode ☂")
    set_ = timeline.js(NOTES)
    assert [note["text"] for note in set_] == ["ünïcode ☂", "here: 50 % ~ slow; why?"]
    timeline.wait("return location.search.includes('from=')")
    link = timeline.browser.current_url
    assert "notes=" in link and timeline.visit(link.removeprefix(timeline.address)) == [] and timeline.js(NOTES) == set_
    values = [field.get_attribute("value") for field in timeline.every(".tl-notes input")]
    assert values == [note["text"] for note in set_]
    timeline.every(".tl-notes li button")[0].click()
    lo, hi = timeline.view
    assert lo <= set_[0]["at"] <= hi
    for _ in set_:
        timeline.css("[aria-label='Remove mark 1']").click()
    assert timeline.js("return [location.hash, ddprof.timeline.notes.length]") == ["", 0]


def test_flags_do_not_cover_one_another_and_the_link_is_bounded(timeline: Page) -> None:
    script = """
      const t = ddprof.timeline, drawn = [], middle = (t.lo + t.hi) / 2;
      const { flag } = ddprof.Painter.prototype;
      ddprof.Painter.prototype.flag = function (flags, ...more) {
        flag.call(this, flags, ...more);
        drawn.splice(0, drawn.length, ...flags);
      };
      t.notes = [0, 1, 2].map((i) => ({ at: middle + i, rank: null, text: "at the same place" }));
      t.painter.paint();
      ddprof.Painter.prototype.flag = flag;
      t.notes = [];
      return drawn;"""
    flags = timeline.js(script)
    assert len(flags) == 3 and len({flag["top"] for flag in flags}) == 3
    timeline.visit("/timeline")
    script = """
      const t = ddprof.timeline;
      for (let i = 0; i < 30; i++) { t.addNote(); t.notes.forEach((n) => { n.text = '\\u2602'.repeat(120); }); }
      return [t.notes.length, t.say.textContent, location.hash.length]"""
    count, said, length = timeline.js(script)
    assert 0 < count <= 20 and said.startswith("The link holds no more marks") and length < 12_000
    timeline.js(NONE)


def test_a_long_name_does_not_widen_the_page(page: Page) -> None:
    with page.window(500):
        page.visit("/timeline")
        page.js("ddprof.timeline.tell('x'.repeat(500))")
        assert page.js("const d = document.documentElement; return d.scrollWidth - d.clientWidth") <= 1


def test_marks_stay_while_other_pages_are_read_and_are_where_the_pointer_is(timeline: Page) -> None:
    _mark(timeline, "kept")
    for title in ("Findings", "Timeline"):
        timeline.turn_to(title)
    timeline.wait("return location.hash.endsWith('~kept')")
    assert timeline.js(TEXTS) == ["kept"]
    timeline.js(NONE)
    timeline.visit("/timeline")
    timeline.keys()
    timeline.hands.move_to_element_with_offset(timeline.canvas, 100, 0).send_keys("m").perform()
    timeline.wait("return ddprof.timeline.notes.length === 1")
    places = "const t = ddprof.timeline; return [t.notes[0].at, t.ns(t.width / 2 + 100), t.hi - t.lo]"
    at, pointed, span = timeline.js(places)
    assert at == pytest.approx(pointed, abs=span / 200)
    timeline.js(NONE)


@pytest.mark.parametrize(("hash_", "texts"), LINKS)
def test_a_link_can_only_mark(page: Page, hash_: str, texts: list[str]) -> None:
    assert page.visit("/timeline#notes=" + hash_) == []
    page.wait("return ddprof.timeline.root.dataset.path !== undefined")
    assert page.js(TEXTS) == texts and page.browser.title == "ddprof"
    assert page.js("return document.querySelector('img, [onerror], #content script')") is None
    page.js(NONE)


def test_a_file_keeps_marks_too(file_timeline: Page) -> None:
    _mark(file_timeline, "in a file")
    link = file_timeline.browser.current_url
    assert "#timeline//notes=" in link
    file_timeline.open(link.removeprefix(file_timeline.address))
    assert file_timeline.js(TEXTS) == ["in a file"] and not file_timeline.every("#timeline[hidden]")
