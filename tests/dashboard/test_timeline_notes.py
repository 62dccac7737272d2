"""Marks of the timeline stay in the link, and a link that somebody else wrote can do nothing but mark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import open_file, trouble, visit, wait_for

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
NOTES = "return ddprof.timeline.notes"
ENTER = "\ue007"


@pytest.fixture
def address(serve: Callable[..., str], straggler: OpenRun) -> str:
    """A server of one run."""
    return serve([straggler])


def _mark(chromium: Any, note: str) -> None:
    """Press m on the picture and type a note."""
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    chromium.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys("m")
    wait_for(chromium, "return document.activeElement.closest('.tl-notes') !== null")
    chromium.switch_to.active_element.send_keys(note + ENTER)
    wait_for(chromium, "return document.activeElement === ddprof.timeline.canvas")
    wait_for(chromium, f"return decodeURIComponent(location.hash).includes({note!r})")


def test_a_mark_and_its_note_come_back_with_the_link(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline")
    chromium.execute_script("const t = ddprof.timeline; t.activeLane = t.rows.find((r) => r.rank === 1).lane;")
    chromium.execute_script("ddprof.timeline.activeLane = ddprof.timeline.info.lanes.find((l) => l.rank === 0).id")
    _mark(chromium, "here: 50 % ~ slow; why?")
    chromium.execute_script("ddprof.timeline.activeLane = undefined; ddprof.timeline.zoom(0.5, ddprof.timeline.lo)")
    _mark(chromium, "ünïcode ☂")
    set_ = chromium.execute_script(NOTES)
    assert [note["text"] for note in set_] == ["ünïcode ☂", "here: 50 % ~ slow; why?"]
    link = chromium.current_url
    assert "from=" in link and "notes=" in link
    assert visit(chromium, link[: link.index("/timeline")], link[link.index("/timeline") :]) == []
    assert chromium.execute_script(NOTES) == set_
    fields = chromium.find_elements("css selector", ".tl-notes input")
    assert [field.get_attribute("value") for field in fields] == [note["text"] for note in set_]
    shown = chromium.find_elements("css selector", ".tl-notes li button")[0]
    shown.click()
    lo, hi = chromium.execute_script("return [ddprof.timeline.lo, ddprof.timeline.hi]")
    assert lo <= set_[0]["at"] <= hi
    chromium.find_element("css selector", "[aria-label='Remove mark 1']").click()
    chromium.find_element("css selector", "[aria-label='Remove mark 1']").click()
    assert chromium.execute_script("return [location.hash, ddprof.timeline.notes.length]") == ["", 0]
    assert trouble(chromium, address) == []


def test_flags_do_not_cover_one_another(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
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
    flags = chromium.execute_script(script)
    assert len(flags) == 3 and len({flag["top"] for flag in flags}) == 3


def test_a_long_name_does_not_widen_the_page(chromium: Any, address: str) -> None:
    chromium.set_window_size(500, 900)
    try:
        visit(chromium, address, "/timeline")
        chromium.execute_script("ddprof.timeline.tell('x'.repeat(500))")
        wide = "const d = document.documentElement; return d.scrollWidth - d.clientWidth"
        assert chromium.execute_script(wide) <= 1
    finally:
        chromium.set_window_size(1280, 900)


def test_marks_stay_while_other_pages_are_read(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    _mark(chromium, "kept")
    for title in ("Findings", "Timeline"):
        link = chromium.find_element("css selector", "#navigation").find_element("link text", title)
        chromium.execute_script("arguments[0].click()", link)
        wait_for(chromium, f"return document.querySelector('#navigation .current')?.textContent === '{title}'")
    wait_for(chromium, "return location.hash.endsWith('~kept')")
    assert chromium.execute_script("return ddprof.timeline.notes.map((n) => n.text)") == ["kept"]
    chromium.execute_script("ddprof.timeline.notes = []; ddprof.timeline.changeNotes()")


def test_a_mark_is_where_the_pointer_is(chromium: Any, address: str) -> None:
    from selenium.webdriver import ActionChains

    visit(chromium, address, "/timeline")
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    chromium.execute_script("arguments[0].focus()", canvas)
    ActionChains(chromium).move_to_element_with_offset(canvas, 100, 0).send_keys("m").perform()
    wait_for(chromium, "return ddprof.timeline.notes.length === 1")
    at = chromium.execute_script(
        "const t = ddprof.timeline; return [t.notes[0].at, t.ns(t.width / 2 + 100), t.hi - t.lo]"
    )
    assert at[0] == pytest.approx(at[1], abs=at[2] / 200)
    chromium.execute_script("ddprof.timeline.notes = []; ddprof.timeline.changeNotes()")


@pytest.mark.parametrize(
    ("hash_", "texts"),
    [
        ("1.0~0~" + quote(EVIL, safe=""), [EVIL[:120]]),
        ("1.0~~ok;nonsense;1e9~~x;~~;NaN~~x;1~99999999999~x;2~~" + "%E4", ["ok"]),
        ("1~~a%00%0Ab%E2%80%AEc", ["a  b c"]),
        ("1~~" + "x" * 500, ["x" * 120]),
        (";".join(["1~~n"] * 50), ["n"] * 20),
        ("1~~" + "x" * 9000, []),
        ("999999999999~~not in this run", []),
    ],
)
def test_a_link_can_only_mark(chromium: Any, address: str, hash_: str, texts: list[str]) -> None:
    assert visit(chromium, address, "/timeline#notes=" + hash_) == []
    wait_for(chromium, "return ddprof.timeline.root.dataset.path !== undefined")
    assert chromium.execute_script("return ddprof.timeline.notes.map((n) => n.text)") == texts
    assert chromium.title == "ddprof"
    assert chromium.execute_script("return document.querySelector('img, [onerror], #content script')") is None
    chromium.execute_script("ddprof.timeline.notes = []; ddprof.timeline.changeNotes()")


def test_the_link_is_bounded(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    script = """
      const t = ddprof.timeline;
      for (let i = 0; i < 30; i++) { t.addNote(); t.notes.forEach((n) => { n.text = '\\u2602'.repeat(120); }); }
      return [t.notes.length, t.say.textContent, location.hash.length]"""
    count, said, length = chromium.execute_script(script)
    assert 0 < count <= 20 and said.startswith("The link holds no more marks") and length < 12_000
    chromium.execute_script("ddprof.timeline.notes = []; ddprof.timeline.changeNotes()")


def test_a_file_keeps_marks_too(chromium: Any, tmp_path: Path, straggler: OpenRun) -> None:
    address = open_file(chromium, tmp_path / "x.html", render(straggler), "#timeline")
    _mark(chromium, "in a file")
    link = chromium.current_url
    assert "#timeline//notes=" in link
    chromium.get("about:blank")
    chromium.get(link)
    wait_for(chromium, "return document.getElementById('timeline-root').dataset.tiles")
    assert chromium.execute_script("return ddprof.timeline.notes.map((n) => n.text)") == ["in a file"]
    assert not chromium.find_elements("css selector", "#timeline[hidden]")
    assert trouble(chromium, address) == []
