"""The HTML file with all pages in a real Chromium, from file://: by keyboard, on paper, without a request."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.assets.library import PLOTLY_VERSION
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.timeline.selection import selection_statistics
from tests.dashboard.axe import serious
from tests.dashboard.browsing import open_file, trouble, wait_for
from tests.dashboard.keyboard import walk

pytestmark = pytest.mark.browser

EVIL = "<script>document.title='owned'</script>"
REAL_RUNS = (
    "traces/multi_rank/dlrm_ddp_v100_8ranks",
    "traces/cpu_gloo/ddp-cnn-2r-slowrank",
    "traces/edge_cases/missing_rank",
    "oracle_samples/01_clean_ddp4/traces",
)
TILES = "return document.getElementById('timeline-root').dataset.tiles"


def _walk_pages(chromium: Any) -> dict[str, str]:
    """Follow every link of the navigation: page -> heading."""
    headings = {}
    for link in chromium.find_elements("css selector", ".pages a"):
        link.click()
        anchor = wait_for(chromium, "return location.hash.slice(1)")
        shown = "[...document.querySelectorAll('main > .page')].filter((p) => !p.hidden).map((p) => p.id).join()"
        wait_for(chromium, f"return {shown} === '{anchor}'")  # the page turns after the address has changed
        if anchor == "timeline":
            wait_for(chromium, TILES)
        headings[anchor] = chromium.execute_script(f"return document.querySelector('#{anchor} h1').textContent")
        empty = f"""return [...document.querySelectorAll('#{anchor} svg')]
          .filter((s) => s.getBoundingClientRect().height < 40 && s.classList.contains('picture')).length"""
        assert chromium.execute_script(empty) == 0
    return headings


@pytest.fixture(scope="module")
def text(straggler: OpenRun) -> str:
    """The file of the straggler run."""
    return render(straggler)


def test_every_page_opens_without_a_complaint_or_a_request(
    chromium: Any, tmp_path: Path, text: str, straggler: OpenRun
) -> None:
    where = open_file(chromium, tmp_path / "x.html", text)
    headings = _walk_pages(chromium)
    assert list(headings) == [s.anchor for s in SUBJECTS if s.anchor != "compare"]
    assert straggler.report.verdict.headline in headings["overview"]
    assert trouble(chromium, where) == []


@pytest.mark.parametrize("sample", REAL_RUNS)
def test_real_runsopen_file(chromium: Any, tmp_path: Path, shared_run: Callable[[str], Path], sample: str) -> None:
    where = open_file(chromium, tmp_path / "x.html", render(load([str(shared_run(sample))])[0]))
    assert len(_walk_pages(chromium)) == len(SUBJECTS) - 1
    assert trouble(chromium, where) == []


def test_the_address_names_the_page_and_the_finding(
    chromium: Any, tmp_path: Path, text: str, straggler: OpenRun
) -> None:
    open_file(chromium, tmp_path / "x.html", text, "#ranks")
    assert chromium.execute_script("return document.querySelector('main > .page:not([hidden])').id") == "ranks"
    chromium.execute_script("location.hash = 'overview'")
    wait_for(chromium, "return !document.getElementById('overview').hidden")
    chromium.find_element("link text", "Show in timeline").click()
    wait_for(chromium, TILES)
    evidence = next(e for e in straggler.report.ranked_findings()[0].evidence if e.start_us is not None)
    assert evidence.start_us is not None and evidence.end_us is not None
    lo, hi = wait_for(chromium, "return [ddprof.timeline.lo / 1e3, ddprof.timeline.hi / 1e3]")
    assert lo <= evidence.start_us and evidence.end_us <= hi
    assert hi - lo < 5 * max(evidence.end_us - evidence.start_us, 4)


def test_the_canvas_is_painted_and_answers(chromium: Any, tmp_path: Path, text: str, straggler: OpenRun) -> None:
    where = open_file(chromium, tmp_path / "x.html", text, "#timeline")
    colours = """
      const c = document.querySelector('.tl-scroll canvas'), found = new Set();
      const pixels = c.getContext('2d').getImageData(220, 30, c.width - 230, c.height - 30).data;
      for (let i = 0; i < pixels.length; i += 400) found.add(pixels[i] + ',' + pixels[i + 1] + ',' + pixels[i + 2]);
      return found.size >= 4"""
    wait_for(chromium, colours)  # the next frame paints what has come
    ask = "return ddprof.timelineData.statistics({}, [0], ddprof.timeline.info.lo_ns, ddprof.timeline.info.hi_ns)"
    told = chromium.execute_script(ask)
    known = selection_statistics(straggler.timeline, [0], straggler.index.lo_ns, straggler.index.hi_ns)
    for table, key in (("causes", "cause"), ("names", "name")):
        ours = {row[key]: row["total_ns"] for row in told[table]}
        assert ours == pytest.approx({row[key]: row["total_ns"] for row in known[table]}, rel=1e-3), table
    found = chromium.execute_script("return ddprof.timelineData.search({}, 'nccl')")
    assert found["count"] > 0
    assert trouble(chromium, where) == []


def test_a_kernel_called_script_stays_text(chromium: Any, tmp_path: Path, straggler: OpenRun) -> None:
    assert straggler.loaded is not None
    job = straggler.loaded.job
    ranks = tuple(replace(facts, strings=(EVIL,) * len(facts.strings)) for facts in job.ranks)
    finding = replace(straggler.report.ranked_findings()[0], summary=EVIL)
    report = replace(straggler.report, findings=(finding,), run=replace(straggler.report.run, name=EVIL))
    hostile = OpenRun(report, replace(straggler.loaded, job=replace(job, ranks=ranks)))
    where = open_file(chromium, tmp_path / "x.html", render(hostile))
    _walk_pages(chromium)
    chromium.execute_script("location.hash = 'timeline'")
    wait_for(chromium, "return !document.getElementById('timeline').hidden")
    row = """
      const t = ddprof.timeline, lane = t.info.lanes.find((l) => l.kind === 'stream');
      t.describe(t.tile.lanes.get(lane.id).row[0], true)"""
    chromium.execute_script(row)
    wait_for(chromium, "return document.querySelector('.tl-panel h3')")
    assert chromium.find_element("css selector", ".tl-panel h3").text == EVIL
    assert chromium.title != "owned" and trouble(chromium, where) == []


def test_every_control_has_its_turn_with_tab(chromium: Any, tmp_path: Path, text: str) -> None:
    open_file(chromium, tmp_path / "x.html", text)
    for anchor in ("overview", "timeline", "ranks", "data"):
        chromium.execute_script(f"location.hash = '{anchor}'")
        wait_for(chromium, f"return !document.getElementById('{anchor}').hidden")
        if anchor == "timeline":
            wait_for(chromium, TILES)
        found = walk(chromium)
        assert found.controls >= len(SUBJECTS) + 1
        assert (found.missed, found.unseen, found.stuck) == ([], [], []), anchor


def test_enter_on_a_link_shows_the_page_and_moves_the_focus(chromium: Any, tmp_path: Path, text: str) -> None:
    from selenium.webdriver import ActionChains, Keys

    open_file(chromium, tmp_path / "x.html", text)
    link = chromium.find_element("link text", "Findings")
    chromium.execute_script("arguments[0].focus()", link)
    ActionChains(chromium).send_keys(Keys.ENTER).perform()
    wait_for(chromium, "return document.activeElement === document.querySelector('#findings h1')")
    assert chromium.execute_script("return document.querySelector('.pages [aria-current]').textContent") == "Findings"


def test_paper_holds_every_page_and_no_control(chromium: Any, tmp_path: Path, text: str) -> None:
    where = open_file(chromium, tmp_path / "x.html", text, "#timeline")
    chromium.execute_script("location.hash = 'overview'")
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        hidden = (
            "return [...document.querySelectorAll('main > .page')].filter((p) => !p.checkVisibility()).map((p) => p.id)"
        )
        assert chromium.execute_script(hidden) == []
        kinds = "button, .pages a, .tl-bar *, summary, .links a"
        controls = f"return [...document.querySelectorAll('{kinds}')].filter((e) => e.checkVisibility()).length"
        assert chromium.execute_script(controls) == 0
        ground = "return getComputedStyle(document.body).backgroundColor"
        assert chromium.execute_script(ground) == "rgb(255, 255, 255)"
    finally:
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    chromium.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    drawn = "[...document.querySelectorAll('.tl-paper canvas')].reduce((sum, c) => sum + c.height / 2, 0)"
    assert chromium.execute_script(f"return {drawn} >= ddprof.timeline.tall")  # every lane: paper does not scroll
    undrawn = (
        "return [...document.querySelectorAll('.plot')].filter((p) => !p.querySelector('.bars, .points, .hm')).length"
    )
    assert chromium.execute_script(undrawn) == 0  # at once: the event ends when this page is on paper
    chromium.execute_script("window.dispatchEvent(new Event('afterprint'))")
    pdf = base64.b64decode(chromium.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf))
    assert 3 <= pages <= 40
    wait_for(chromium, "return !document.getElementById('overview').hidden && document.getElementById('data').hidden")
    assert trouble(chromium, where) == []


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_sticks_out_sideways(chromium: Any, tmp_path: Path, text: str, width: int) -> None:
    chromium.set_window_size(width, 900)
    try:
        open_file(chromium, tmp_path / "x.html", text)
        wide = {}
        for subject in SUBJECTS:
            chromium.execute_script(f"location.hash = '{subject.anchor}'")
            wait_for(chromium, "return document.querySelectorAll('main > .page:not([hidden])').length === 1")
            shown, needed = chromium.execute_script(
                "var d=document.documentElement;return [d.clientWidth,d.scrollWidth]"
            )
            if needed > shown + 1:
                wide[subject.anchor] = needed - shown
        assert wide == {}
    finally:
        chromium.set_window_size(1280, 900)


def test_both_themes_keep_words_readable(chromium: Any, tmp_path: Path, text: str) -> None:
    open_file(chromium, tmp_path / "x.html", text)
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
    for theme in ("light", "dark"):
        chromium.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
        wait_for(chromium, script)  # the charts are drawn again once the change of theme is told


def test_charts_are_drawn_once_they_are_seen_and_again_in_another_theme(
    chromium: Any, tmp_path: Path, text: str
) -> None:
    where = open_file(chromium, tmp_path / "x.html", text)
    wait_for(chromium, "return document.querySelector('#overview .plot .main-svg')")
    assert chromium.execute_script("return document.querySelectorAll('.page[hidden] .plot .main-svg').length") == 0
    chromium.execute_script("location.hash = 'what-if'")
    fill = "const bar = document.querySelector('#what-if .bars path'); return bar && getComputedStyle(bar).fill"
    seen = []
    for theme, colour in (("light", "rgb(10, 88, 202)"), ("dark", "rgb(108, 176, 255)")):
        chromium.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
        wait_for(chromium, f"const drawn = (() => {{ {fill} }})(); return drawn === '{colour}'")
        seen.append(chromium.execute_script("return Plotly.version"))
    assert seen == [PLOTLY_VERSION] * 2
    assert trouble(chromium, where) == []


def test_charts_take_the_width_of_the_window(chromium: Any, tmp_path: Path, text: str) -> None:
    width = """
      const plot = document.querySelector("#overview .plot");
      plot.scrollIntoView();
      return plot.querySelector(".main-svg")?.width.baseVal.value"""
    try:
        chromium.set_window_size(1280, 900)
        open_file(chromium, tmp_path / "x.html", text)
        wide = wait_for(chromium, width)
        chromium.set_window_size(420, 900)
        wait_for(chromium, f"return (() => {{ {width} }})() < {wide}")
    finally:
        chromium.set_window_size(1280, 900)


def test_saved_json_is_the_report(chromium: Any, tmp_path: Path, text: str, straggler: OpenRun) -> None:
    open_file(chromium, tmp_path / "x.html", text)
    document = json.loads(chromium.execute_script("return document.getElementById('report').textContent"))
    assert document["verdict"]["headline"] == straggler.report.verdict.headline
    assert document["steps"]["per_step_us"] == list(straggler.report.steps.per_step_us)


@pytest.mark.slow  # a minute: all pages of the file at once, in both themes
def test_axe_finds_nothing_serious(chromium: Any, tmp_path: Path, text: str) -> None:
    open_file(chromium, tmp_path / "x.html", text)
    defects = {}
    for theme in ("light", "dark"):
        chromium.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
        for subject in SUBJECTS:
            chromium.execute_script(f"location.hash = '{subject.anchor}'")
            wait_for(chromium, f"return location.hash === '#{subject.anchor}'")
            if found := serious(chromium):
                defects[f"{subject.anchor}, {theme}"] = found
    assert defects == {}
