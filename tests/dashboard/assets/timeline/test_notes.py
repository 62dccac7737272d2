"""Marks of the timeline stay in the link, and a link that somebody else wrote can do nothing but mark."""

from urllib.parse import quote

import pytest

from tests.dashboard.browsing import ENTER, Page

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
NOTES = "return ddprof.timeline.notes"
TEXTS = "return ddprof.timeline.notes.map((n) => n.text)"
NONE = "ddprof.timeline.notes = []; ddprof.timeline.changeNotes()"
LINKS = [
    ("1.0~0~" + quote(EVIL, safe=""), [EVIL[:120]]),
    ("1.0~~ok;nonsense;1e9~~x;~~;NaN~~x;1~99999999999~x;2~~" + "%E4", ["ok"]),
    *(("1~~a%00%0Ab%E2%80%AEc", ["a  b c"]), (";".join(["1~~n"] * 50), ["n"] * 20)),
    *(("1~~" + "x" * 500, ["x" * 120]), ("1~~" + "x" * 9000, []), ("999999999999~~not in this run", [])),
]


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
