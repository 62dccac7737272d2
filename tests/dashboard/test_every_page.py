"""Every page of the dashboard, by the Tab key, to axe-core in both themes, on paper, of real and of running jobs.

The HTML file with all pages, from file://: by keyboard, on paper, without a request.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ddprof.dashboard.assets import PLOTLY_VERSION
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.timeline.selection import selection_statistics
from ddprof.report import phrases
from tests.dashboard.browsing import ENTER, SPACE, TILES, Page, PageOf, one_in, serious, walk
from tests.dashboard.made import TRUTHS, named
from tests.dashboard.onefile_reader import ANCHORS

LEAST_CONTROLS = len(PAGES) + 5  # the navigation, the way past it, both filters, their button, the JSON, the theme
EVIL = "<script>document.title='owned'</script>"
THEMES = ("light", "dark")
ALL_ROWS, SLOW = 1_000_000, [pytest.mark.slow]
# Rows of a table are alike: in the usual run the first few of each, every page in one of the themes, in turn.
IN_TURN = [
    pytest.param(p, theme, rows, id=f"{p.title}-{theme}-{rows}", marks=SLOW if (n + t) % 2 or many else [])
    for t, theme in enumerate(THEMES)
    for n, p in enumerate(PAGES)
    for many, rows in enumerate((4, ALL_ROWS))
]
REAL_RUNS = ["traces/edge_cases/missing_rank", "traces/multi_rank/dlrm_ddp_v100_8ranks"]
REAL_RUNS += ["traces/cpu_gloo/ddp-cnn-2r-slowrank", "oracle_samples/01_clean_ddp4/traces"]


def _visit(page: Page, path: str, theme: str) -> list[str]:
    """Open a page in a theme; its complaints."""
    page.browser.execute_cdp_cmd("Network.setCookie", {"name": "ddprof_theme", "value": theme, "url": page.address})
    complaints = page.visit(path)
    page.wait(f"return document.documentElement.dataset.theme === '{theme}'")
    return complaints


def _unfold(page: Page) -> None:
    """Open all tables; on the timeline hits, a mark and the tables of a range."""
    page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    if page.js("return document.getElementById('timeline-root') !== null"):
        page.js("const t = ddprof.timeline; t.box.value = 'e'; t.find(); t.addNote()")
        page.wait("return ddprof.timeline.found?.view && document.querySelector('.tl-notes input')")
        page.js("const t = ddprof.timeline; t.range = [t.lo, t.hi]; t.statistics()")
        page.wait("return document.querySelector('.tl-panel table')")


@pytest.mark.parametrize(("shown", "theme", "rows"), IN_TURN)
def test_tab_reaches_every_control_and_axe_finds_nothing_serious(page: Page, shown, theme: str, rows: int) -> None:
    is_open = page.js("return location.href.startsWith(arguments[0])", page.address)
    if is_open and page.js("return document.documentElement.dataset.theme") == theme:  # the page before, in its turn
        assert page.turn_to(shown.title) == []
    else:
        assert _visit(page, shown.path, theme) == []
    assert page.browser.title == "ddprof"
    if shown.path == "/data":
        page.wait("return document.getElementById('upload-send')")
    if shown.path == "/what-if":
        page.wait("return document.querySelector('#what-if-controls input[type=range]')")
        page.wait("return document.querySelectorAll('#what-if-controls input').length > 3")
    way = walk(page)
    assert way.controls >= LEAST_CONTROLS and (way.missed, way.unseen, way.stuck) == ([], [], [])
    _unfold(page)
    assert page.trouble() == [] and serious(page, rows) == []


@pytest.mark.parametrize("theme", one_in(2, THEMES))
def test_axe_finds_nothing_serious_while_a_job_runs(page_of: PageOf, running: Path, theme: str) -> None:
    page = page_of(*load([str(running)]))
    _visit(page, "/live", theme)
    page.wait("return document.querySelectorAll('#live .exhibit').length >= 2")
    _unfold(page)
    assert serious(page) == []


def test_axe_sees_what_is_wrong(page: Page) -> None:
    page.visit("/history")
    page.js("document.getElementById('content').append(document.createElement('button'))")
    assert [rule for rule, _ in serious(page)] == ["button-name"]


def test_the_keyboard_opens_a_page_and_its_numbers(page: Page) -> None:
    page.visit("/history")
    page.js("arguments[0].focus()", page.link("Ranks & steps"))
    page.hands.send_keys(ENTER).perform()
    page.js("arguments[0].focus()", page.wait("return document.querySelector('#exhibit-lateness summary')"))
    page.hands.send_keys(SPACE).perform()
    page.wait("return document.querySelector('#exhibit-lateness details').open")
    page.wait("return document.querySelectorAll('#exhibit-lateness details td').length > 3")


def test_paper_has_no_controls_and_dark_words(page: Page) -> None:
    page.visit("/")
    left = """
      const kinds = "#navigation, .filters, .filters *, .links a, .skip";
      return [...document.querySelectorAll(kinds)].filter((e) => e.checkVisibility()).map((e) => e.outerHTML)"""
    words = """
      const lightness = (c) => c.match(/\\d+/g).slice(0, 3).reduce((sum, v) => sum + Number(v), 0) / 765;
      const colour = (e) => getComputedStyle(e)[e.closest("svg") ? "fill" : "color"];
      const titles = [...document.querySelectorAll(".js-plotly-plot :is(.xtick, .ytick) text, h1, p")];
      return [titles.length, Math.max(...titles.map((e) => lightness(colour(e))))]"""
    for theme in THEMES:
        page.js(f"document.documentElement.dataset.theme = '{theme}'")
        page.wait("return document.querySelectorAll('.js-plotly-plot text').length > 5")
        with page.on_paper():
            assert page.js(left) == []
            count, lightest = page.js(words)
            assert count > 10 and lightest < 0.45
    pdf = page.printed(printBackground=True)
    assert pdf.startswith(b"%PDF") and pdf.count(b"/Type /Page\n") >= 1


@pytest.mark.parametrize("sample", one_in(4, REAL_RUNS))
def test_pages_open_on_real_runs(page_of: PageOf, shared_run: Callable[[str], Path], sample: str) -> None:
    page = page_of(*load([str(shared_run(sample))]))
    assert page.visit(PAGES[0].path) == []
    assert {shown.path: found for shown in PAGES if (found := page.turn_to(shown.title))} == {}


def _walk_pages(page: Page) -> dict[str, str]:
    """Follow every link of the navigation: page -> heading."""
    headings = {}
    for link in page.every(".pages a"):
        link.click()
        anchor = page.wait("return location.hash.slice(1)")
        shown = "[...document.querySelectorAll('main > .page')].filter((p) => !p.hidden).map((p) => p.id).join()"
        page.wait(f"return {shown} === '{anchor}'")  # the page turns after the address has changed
        if anchor == "timeline":
            page.wait(TILES)
        headings[anchor] = page.js(f"return document.querySelector('#{anchor} h1').textContent")
        low = "(svg) => svg.getBoundingClientRect().height < 40"
        assert not page.js(f"return [...document.querySelectorAll('#{anchor} svg.picture')].some({low})")
    return headings


def _show(page: Page, anchor: str) -> None:
    page.js(f"location.hash = '{anchor}'")
    page.wait(f"return !document.getElementById('{anchor}').hidden")


@pytest.mark.parametrize("name", [*one_in(4, REAL_RUNS), *one_in(30, [*TRUTHS])])
def test_files_of_all_runs_open_without_a_complaint_or_a_request(
    request: pytest.FixtureRequest, file_of: PageOf, name: str
) -> None:
    is_real = name in REAL_RUNS
    run = request.getfixturevalue("shared_run" if is_real else "sample")(name)
    opened = load([str(run)])[0] if is_real else run
    page = file_of(opened).open()
    headings = _walk_pages(page)
    assert list(headings) == ANCHORS and headings["overview"] == phrases.headline(opened.report)
    assert page.trouble() == []


def test_the_address_names_the_page_and_the_finding(file_page: Page, straggler: OpenRun) -> None:
    page = file_page.open("#ranks")
    assert page.js("return document.querySelector('main > .page:not([hidden])').id") == "ranks"
    _show(page, "overview")
    page.link("Show in timeline").click()
    page.wait(TILES)
    evidence = next(e for e in straggler.report.ranked_findings()[0].evidence if e.start_us is not None)
    assert evidence.start_us is not None and evidence.end_us is not None
    lo, hi = (ns / 1e3 for ns in page.view)
    assert lo <= evidence.start_us and evidence.end_us <= hi
    assert hi - lo < 5 * max(evidence.end_us - evidence.start_us, 4)


def test_the_canvas_is_painted_and_answers(file_timeline: Page, straggler: OpenRun) -> None:
    colours = """
      const c = document.querySelector('.tl-scroll canvas'), seen = new Set();
      const pixels = c.getContext('2d').getImageData(220, 30, c.width - 230, c.height - 30).data;
      for (let i = 0; i < pixels.length; i += 400) seen.add(pixels.slice(i, i + 3).join());
      return seen.size >= 4"""
    file_timeline.wait(colours)  # the next frame paints what has come
    ask = "return ddprof.timelineData.statistics({}, [0], ddprof.timeline.info.lo_ns, ddprof.timeline.info.hi_ns)"
    told = file_timeline.js(ask)
    known = selection_statistics(straggler.timeline, [0], straggler.index.lo_ns, straggler.index.hi_ns)
    for table, key in (("causes", "cause"), ("names", "name")):
        ours, theirs = ({row[key]: row["total_ns"] for row in answer[table]} for answer in (told, known))
        assert ours == pytest.approx(theirs, rel=1e-3), table


def test_a_kernel_called_script_stays_text(file_of: PageOf, straggler: OpenRun) -> None:
    page = file_of(named(straggler, EVIL)).open()
    _walk_pages(page)
    _show(page, "timeline")
    page.js("""
      const t = ddprof.timeline, lane = t.info.lanes.find((l) => l.kind === 'stream');
      t.describe(t.tile.lanes.get(lane.id).row[0], true)""")
    page.wait("return document.querySelector('.tl-panel h3')")
    assert page.css(".tl-panel h3").text == EVIL and page.browser.title != "owned" and page.trouble() == []


def test_every_control_has_its_turn_with_tab(file_page: Page) -> None:
    for anchor in ("overview", "timeline", "ranks", "data"):
        _show(file_page, anchor)
        if anchor == "timeline":
            file_page.wait(TILES)
        way = walk(file_page)
        assert way.controls >= len(SUBJECTS) + 1
        assert (way.missed, way.unseen, way.stuck) == ([], [], []), anchor


def test_enter_on_a_link_shows_the_page_and_moves_the_focus(file_page: Page) -> None:
    file_page.js("arguments[0].focus()", file_page.link("Findings"))
    file_page.hands.send_keys(ENTER).perform()
    file_page.wait("return document.activeElement === document.querySelector('#findings h1')")
    assert file_page.js("return document.querySelector('.pages [aria-current]').textContent") == "Findings"


def test_paper_holds_every_page_and_no_control(file_timeline: Page) -> None:
    file_timeline.js("location.hash = 'overview'")
    with file_timeline.on_paper():
        pages = "[...document.querySelectorAll('main > .page')]"
        assert file_timeline.js(f"return {pages}.filter((p) => !p.checkVisibility()).map((p) => p.id)") == []
        kinds = "button, .pages a, .tl-bar *, summary, .links a"
        controls = f"return [...document.querySelectorAll('{kinds}')].filter((e) => e.checkVisibility()).length"
        assert file_timeline.js(controls) == 0
        assert file_timeline.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    file_timeline.js("window.dispatchEvent(new Event('beforeprint'))")
    drawn = "[...document.querySelectorAll('.tl-paper canvas')].reduce((sum, c) => sum + c.height / 2, 0)"
    assert file_timeline.js(f"return {drawn} >= ddprof.timeline.tall")  # every lane: paper does not scroll
    undrawn = "[...document.querySelectorAll('.plot')].filter((p) => !p.querySelector('.bars, .points, .hm'))"
    assert file_timeline.js(f"return {undrawn}.length") == 0  # at once: the event ends when this page is on paper
    file_timeline.js("window.dispatchEvent(new Event('afterprint'))")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", file_timeline.printed(preferCSSPageSize=True))) <= 40
    file_timeline.wait("return !document.getElementById('overview').hidden && document.getElementById('data').hidden")


def test_nothing_sticks_out_sideways(file_page: Page) -> None:
    beyond = "const d = document.documentElement; return d.scrollWidth - d.clientWidth"
    for width in (400, 1280):
        with file_page.window(width):
            file_page.open()
            for anchor in ANCHORS:
                _show(file_page, anchor)
                assert file_page.js(beyond) <= 1, (anchor, width)


def test_both_themes_keep_words_readable(file_page: Page) -> None:
    script = """
      const linear = (x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
      const light = (c) => {
        const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map((x) => linear(x / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const ground = light(getComputedStyle(document.body).backgroundColor);
      const kinds = "svg text:not(.on-bar), p, h1, h2, li, td, th, summary";
      const shown = [...document.querySelectorAll(kinds)].filter((e) => e.checkVisibility());
      const contrast = shown.map((e) => {
        const own = light(getComputedStyle(e)[e.closest("svg") ? "fill" : "color"]);
        return (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05);
      });
      return contrast.length > 30 && Math.min(...contrast) >= 4.5;"""
    for theme in THEMES:
        file_page.js(f"document.documentElement.dataset.theme = '{theme}'")
        file_page.wait(script)  # the charts are drawn again once the change of theme is told


def test_charts_are_drawn_once_they_are_seen_and_again_in_another_theme_or_window(file_page: Page) -> None:
    seen = "const plot = document.querySelector('#overview .plot'); plot.scrollIntoView();"
    file_page.wait(f"{seen} return plot.querySelector('.main-svg')")
    assert file_page.js("return document.querySelectorAll('.page[hidden] .plot .main-svg').length") == 0
    width = f"{seen} return plot.querySelector('.main-svg')?.width.baseVal.value"
    wide = file_page.wait(width)
    with file_page.window(420):
        file_page.wait(f"return (() => {{ {width} }})() < {wide}")
    file_page.js("location.hash = 'what-if'")
    fill = "const bar = document.querySelector('#what-if .bars path'); return bar && getComputedStyle(bar).fill"
    for theme, colour in (("light", "rgb(10, 88, 202)"), ("dark", "rgb(108, 176, 255)")):
        file_page.js(f"document.documentElement.dataset.theme = '{theme}'")
        file_page.wait(f"const drawn = (() => {{ {fill} }})(); return drawn === '{colour}'")
        assert file_page.js("return Plotly.version") == PLOTLY_VERSION


@pytest.mark.slow  # a minute: all pages of the file at once, in both themes
def test_axe_finds_nothing_serious(file_page: Page) -> None:
    for theme in THEMES:
        file_page.js(f"document.documentElement.dataset.theme = '{theme}'")
        for subject in SUBJECTS:
            file_page.js(f"location.hash = '{subject.anchor}'")
            file_page.wait(f"return location.hash === '#{subject.anchor}'")
            assert serious(file_page, 1_000_000) == [], (subject.anchor, theme)
