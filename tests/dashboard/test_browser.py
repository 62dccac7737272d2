"""Use of the dashboard in a real Chromium, in which no name of a trace does anything."""

from dataclasses import replace

import numpy as np
import pytest

from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.findings import Abstention, Fix
from ddprof.report.model import HealthItem, HostClockInfo
from ddprof.sidecar import LoaderSettings, SamplerSettings, Sidecar
from tests.dashboard.browsing import DOWN, PIXELS, RIGHT, TILES, Page, Serve
from tests.dashboard.made import with_job, with_run

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
ATTACKED = "return document.querySelector('img, [onerror], #content script')"


def test_the_overview_answers_first(page: Page, straggler: OpenRun) -> None:
    page.visit("/")
    assert straggler.report.verdict.headline in page.css("h1").text
    bar = page.wait("return document.querySelector('.stepbar')?.getBoundingClientRect().bottom")
    card = page.wait("return document.querySelector('article.card')?.getBoundingClientRect().top")
    assert bar < 720 and card < 720  # seen without scrolling


def open_lanes(page: Page) -> None:
    """All lanes of all ranks, and their slices fetched."""
    tiles = page.js("ddprof.timeline.openAll(); return ddprof.timeline.root.dataset.tiles")
    page.wait(f"return Number(ddprof.timeline.root.dataset.tiles) > {tiles}")


def test_the_canvas_shows_the_colours_of_what_ran(timeline: Page) -> None:
    open_lanes(timeline)
    script = """
      const t = ddprof.timeline, row = t.visibleRows().find((r) => r.label.includes('compute'));
      const middle = (row.y + row.height / 2) * t.ratio;
      return pixels(t.canvas, [0, middle], [t.painter.fill[0]], 12) / t.canvas.width > 0.3;"""
    timeline.wait(PIXELS + script)  # the next frame paints what has come


def test_keys_zoom_pan_and_walk(timeline: Page) -> None:
    width = "return ddprof.timeline.hi - ddprof.timeline.lo"
    whole = timeline.js(width)
    timeline.keys("w", "w")
    assert timeline.js(width) == pytest.approx(whole * 0.36)
    left, _ = timeline.view
    timeline.keys("d")
    assert timeline.view[0] > left
    tiles = timeline.js(TILES)
    timeline.keys("f")
    assert timeline.js(width) == pytest.approx(whole)
    timeline.wait(f"return ddprof.timeline.root.dataset.tiles > {tiles}")
    timeline.keys(DOWN, RIGHT, RIGHT)
    assert any(words in timeline.said for words in ("compute", "µs", "ms"))
    timeline.wait("return location.search.includes('from=')")


def test_the_critical_path_runs_through_the_slow_rank(timeline: Page, straggler: OpenRun) -> None:
    timeline.wait("return ddprof.timeline.root.dataset.path > 0")
    script = """
      const time = {};
      ddprof.timeline.path.forEach((p) => { time[p.rank] = (time[p.rank] || 0) + p.hi - p.lo; });
      return Number(Object.keys(time).sort((a, b) => time[b] - time[a])[0]);"""
    assert timeline.js(script) in straggler.report.ranked_findings()[0].ranks
    timeline.keys("p")
    assert timeline.js("return ddprof.timeline.showPath") is False
    pressed = "return [...document.querySelectorAll('.tl-bar [aria-pressed]')].map((b) => b.ariaPressed)"
    assert timeline.js(pressed) == ["false", "false"]  # the key shows on its button


def test_operators_are_lanes_on_request(timeline: Page) -> None:
    timeline.press("operators")
    timeline.wait("return ddprof.timeline.rows.some((r) => r.label.includes('depth 2'))")
    timeline.wait("return document.getElementById('timeline-say').textContent.startsWith('operators of rank')")


def test_switches_numbers_ranks_and_a_suggestion_are_replayed(page: Page) -> None:
    page.visit("/what-if")
    page.wait("return document.querySelector('.prediction') && document.querySelector('.suggested button')")
    control = next(e for e in page.every(".control") if "No straggler" in e.text)
    control.find_element("css selector", "input").click()
    page.wait("return document.querySelector('.prediction').textContent.includes('→')")
    page.wait("return location.search.includes('balance=on')")
    control.find_element("css selector", "input").click()
    page.wait("return !location.search.includes('balance=on')")
    page.css(".suggested button").click()
    page.wait("return document.querySelector('.prediction').textContent.includes('less')")
    asked = page.wait("return new URLSearchParams(location.search).get('device')")
    shown = "[...document.querySelectorAll('.listing pre')].map((pre) => pre.textContent)"
    page.wait(f"return {shown}.some((text) => text.endsWith('--set device={asked}'))")
    assert page.js("return document.querySelector('#what-if-device-ranks').value") == asked[9:] and page.trouble() == []
    page.visit("/what-if")
    page.wait("return document.querySelector('#what-if-bucket_cap_mb')").send_keys("5")
    page.wait("return location.search.includes('bucket_cap_mb=5')")
    page.css("#what-if-loader").click()
    page.css("#what-if-loader-ranks").send_keys("1")
    page.wait("return new URLSearchParams(location.search).get('loader') === 'ready@1'")
    steps = "[...document.querySelectorAll('#what-if-result td')].map((cell) => cell.textContent)"
    page.wait(f"return {steps}.includes('Batches always ready @ 1') && {steps}.includes('DDP buckets 5')")
    assert page.trouble() == []


def test_filters_go_into_the_address(page: Page) -> None:
    page.visit("/ranks")
    page.wait("return document.querySelector('#filter-ranks')").send_keys("0-1\n")
    page.wait("return location.search.includes('ranks=0-1')")
    page.wait("return document.querySelector('#exhibit-lateness details')?.textContent.includes('rank 1')")
    page.wait("return !document.querySelector('#exhibit-lateness details').textContent.includes('rank 2')")


def test_the_theme_changes_and_stays(page: Page) -> None:
    page.visit("/")
    before = page.js("return document.documentElement.dataset.theme")
    page.css("#theme").click()
    page.wait(f"return document.documentElement.dataset.theme !== '{before}' && document.querySelector('h1')")
    page.visit("/ranks")
    page.wait(f"return document.documentElement.dataset.theme !== '{before}'")


def _hostile(opened: OpenRun) -> OpenRun:
    """The run with every name of its traces, findings, settings, hosts and files an attack."""
    report, job = opened.report, opened.job
    sidecar = Sidecar(schema=EVIL, dataloader=LoaderSettings(dataset=EVIL, sampler=SamplerSettings(name=EVIL)))
    ranks = [replace(f, path=EVIL, sidecar=sidecar, strings=(EVIL,) * len(f.strings)) for f in job.ranks]
    ranks = [replace(facts, identity=replace(facts.identity, host=EVIL)) for facts in ranks]
    groups = job.groups.replace(name=np.array([EVIL] * len(job.groups), object))
    findings = [replace(finding, summary=EVIL, fixes=(Fix(*[EVIL] * 6),)) for finding in report.findings]
    findings = [replace(f, evidence=tuple(replace(e, text=EVIL, event=EVIL) for e in f.evidence)) for f in findings]
    hosts = dict.fromkeys(report.run.ranks, EVIL)
    clocks = {EVIL: HostClockInfo(1.0, 0.0, 1.0), "b": HostClockInfo(0.0, 0.0, 1.0)}
    run = with_run(opened, name=EVIL, device_name=EVIL, framework=(EVIL,), hosts=hosts)
    told = {"health": (HealthItem(EVIL, EVIL, "warning"),), "abstentions": (Abstention(EVIL, EVIL),)}
    clock, verdict = replace(report.clock, method=EVIL, hosts=clocks), replace(report.verdict, headline=EVIL)
    what_if = tuple(replace(w, change=EVIL) for w in report.what_if)
    hostile = replace(run.report, findings=tuple(findings), verdict=verdict, what_if=what_if, clock=clock)
    hostile = replace(hostile, checked=(EVIL,), **told)
    return with_job(replace(run, report=hostile), ranks=tuple(ranks), groups=groups)


@pytest.fixture(scope="module")
def hostile(serve: Serve, straggler: OpenRun) -> str:
    return serve([_hostile(straggler)] * 2)


@pytest.mark.parametrize("third", range(3))
def test_names_from_a_trace_do_not_run(chromium, hostile: str, third: int) -> None:
    page = Page(chromium, hostile)
    assert page.visit("/history") == []
    for shown in PAGES[third::3]:
        assert page.turn_to(shown.title) == []
        page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        page.wait("return !document.querySelector('details[open] .sheet:empty')")
        assert page.browser.title == "ddprof" and page.js(ATTACKED) is None, shown.path


def test_names_do_not_run_in_what_the_timeline_says(chromium, hostile: str) -> None:
    page = Page(chromium, hostile)
    page.visit("/timeline?finding=0")
    assert EVIL in page.said
    open_lanes(page)
    page.css(".tl-bar input[type=search]").send_keys("onerror\n")
    page.wait("return ddprof.timeline.found?.view")
    point = """
      const t = ddprof.timeline;
      for (const r of t.visibleRows())
        for (let x = 240; x < t.width; x += 2) {
          const y = r.y + r.height / 2, { data, slice } = t.at(x, y), box = t.canvas.getBoundingClientRect();
          if (!data || !t.tile.names[data.name[slice]]?.includes('onerror')) continue;
          const at = { clientX: box.left + x, clientY: box.top + y };
          t.canvas.dispatchEvent(new MouseEvent('mousemove', at));
          t.drag = x;
          window.dispatchEvent(new MouseEvent('mouseup', at));
          return true;
        }
      return false;"""
    page.wait(point)
    assert EVIL in page.wait("return document.querySelector('.tl-panel h3')?.textContent")
    assert EVIL in page.wait("return document.querySelector('.tl-tip:not([hidden])')?.textContent")
    page.js("ddprof.timeline.range = [ddprof.timeline.lo, ddprof.timeline.hi]; ddprof.timeline.statistics()")
    page.wait("return document.querySelectorAll('.tl-panel table').length === 2")
    assert EVIL in page.css(".tl-panel").text and page.browser.title == "ddprof" and page.js(ATTACKED) is None
