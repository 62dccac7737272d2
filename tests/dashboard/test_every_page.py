"""Every page of the dashboard, by the Tab key, to axe-core in both themes, on paper, of real and of running jobs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import load
from tests.dashboard.access import serious, walk
from tests.dashboard.browsing import ENTER, SPACE, Page, PageOf, one_in

LEAST_CONTROLS = len(PAGES) + 5  # the navigation, the way past it, both filters, their button, the JSON, the theme
THEMES = ("light", "dark")
ALL_ROWS, SLOW = 1_000_000, [pytest.mark.slow]
# Rows of a table are alike: in the usual run the first few of each, every page in one of the themes, in turn.
IN_TURN = [
    pytest.param(p, theme, rows, id=f"{p.title}-{theme}-{rows}", marks=SLOW if (n + t) % 2 or many else [])
    for n, p in enumerate(PAGES)
    for t, theme in enumerate(THEMES)
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
    assert _visit(page, shown.path, theme) == [] and page.browser.title == "ddprof"
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
