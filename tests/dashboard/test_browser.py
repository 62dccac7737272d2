"""The dashboard in a real Chromium: every page on every kind of run, no complaint, no request to anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.findings import Abstention, Fix
from ddprof.report.model import HealthItem, HostClockInfo
from ddprof.sidecar import LoaderSettings, SamplerSettings, Sidecar
from tests.dashboard.browsing import open_more, trouble, turn_to, visit, wait_for

pytestmark = pytest.mark.browser

REAL_RUNS = (
    "traces/multi_rank/dlrm_ddp_v100_8ranks",
    "traces/cpu_gloo/ddp-cnn-2r-slowrank",
    "traces/edge_cases/missing_rank",
    "oracle_samples/01_clean_ddp4/traces",
)
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def keys(chromium: Any, *pressed: str) -> None:
    """Press keys while the timeline has the focus."""
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    chromium.execute_script("arguments[0].focus()", canvas)
    for key in pressed:
        canvas.send_keys(key)


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], straggler: OpenRun, pipeline: OpenRun) -> str:
    """A server of two generated GPU runs."""
    return serve([straggler, pipeline])


@pytest.mark.parametrize("sample", REAL_RUNS)
def test_every_page_opens_on_real_runs(
    chromium: Any, serve: Callable[..., str], shared_run: Callable[[str], Path], sample: str
) -> None:
    where = serve(load([str(shared_run(sample))]))
    assert visit(chromium, where, PAGES[0].path) == []
    assert {page.path: found for page in PAGES if (found := turn_to(chromium, where, page.title))} == {}


def test_the_overview_answers_first(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/")
    assert straggler.report.verdict.headline in chromium.find_element("tag name", "h1").text
    bar = wait_for(chromium, "return document.querySelector('.stepbar')?.getBoundingClientRect().bottom")
    card = wait_for(chromium, "return document.querySelector('article.card')?.getBoundingClientRect().top")
    assert bar < 720 and card < 720  # seen without scrolling


def test_two_clicks_from_the_verdict_to_the_event(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/")
    chromium.find_element("link text", "Show in timeline").click()
    wait_for(chromium, "return document.getElementById('timeline-root')?.dataset.tiles")
    lo, hi = chromium.execute_script("return [ddprof.timeline.lo / 1e3, ddprof.timeline.hi / 1e3]")
    evidence = next(e for e in straggler.report.ranked_findings()[0].evidence if e.start_us is not None)
    assert evidence.start_us is not None and evidence.end_us is not None
    assert lo <= evidence.start_us and evidence.end_us <= hi
    assert hi - lo < 5 * max(evidence.end_us - evidence.start_us, 4)
    assert trouble(chromium, address) == []


def open_lanes(chromium: Any) -> None:
    """All lanes of all ranks, and their slices fetched."""
    tiles = chromium.execute_script("ddprof.timeline.openAll(); return ddprof.timeline.root.dataset.tiles")
    wait_for(chromium, f"return Number(ddprof.timeline.root.dataset.tiles) > {tiles}")


def test_the_canvas_shows_the_colours_of_what_ran(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    open_lanes(chromium)
    script = """
      const c = document.querySelector('.tl-scroll canvas'), t = ddprof.timeline;
      const row = t.visibleRows().find(r => r.label.includes('compute'));
      const pixels = c.getContext('2d').getImageData(0, (row.y + row.height / 2) * t.ratio, c.width, 1).data;
      const want = ddprof.timeline.painter.fill[0].match(/[0-9a-f]{2}/gi).map(h => parseInt(h, 16));
      let found = 0;
      for (let i = 0; i < pixels.length; i += 4) if (want.every((v, k) => Math.abs(pixels[i + k] - v) < 12)) found++;
      return found / c.width > 0.3;"""
    wait_for(chromium, script)  # the next frame paints what has come


def test_keys_zoom_pan_and_walk(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    width = "return ddprof.timeline.hi - ddprof.timeline.lo"
    whole = chromium.execute_script(width)
    keys(chromium, "w", "w")
    zoomed = chromium.execute_script(width)
    assert zoomed == pytest.approx(whole * 0.36)
    left = chromium.execute_script("return ddprof.timeline.lo")
    keys(chromium, "d")
    assert chromium.execute_script("return ddprof.timeline.lo") > left
    keys(chromium, "f")
    assert chromium.execute_script(width) == pytest.approx(whole)
    time.sleep(0.3)
    keys(chromium, "\ue015", "\ue014", "\ue014")  # down, right, right
    said = chromium.find_element("id", "timeline-say").text
    assert "compute" in said or "µs" in said or "ms" in said
    wait_for(chromium, "return location.search.includes('from=')")
    assert trouble(chromium, address) == []


def test_the_critical_path_runs_through_the_slow_rank(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline")
    wait_for(chromium, "return ddprof.timeline.root.dataset.path > 0")
    script = """
      const time = {};
      ddprof.timeline.path.forEach((p) => { time[p.rank] = (time[p.rank] || 0) + p.hi - p.lo; });
      return Number(Object.keys(time).sort((a, b) => time[b] - time[a])[0]);"""
    assert chromium.execute_script(script) in straggler.report.ranked_findings()[0].ranks
    keys(chromium, "p")
    assert chromium.execute_script("return ddprof.timeline.showPath") is False


def test_operators_are_lanes_on_request(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    label = next(e for e in open_more(chromium).find_elements("css selector", "label") if "operators" in e.text)
    label.find_element("css selector", "input").click()
    wait_for(chromium, "return ddprof.timeline.rows.some((r) => r.label.includes('depth 2'))")
    wait_for(chromium, "return document.getElementById('timeline-say').textContent.startsWith('operators of rank')")
    assert trouble(chromium, address) == []


def test_a_switch_replays(chromium: Any, address: str) -> None:
    visit(chromium, address, "/what-if")
    wait_for(chromium, "return document.querySelector('.prediction') !== null")
    label = next(e for e in chromium.find_elements("css selector", ".control") if "No straggler" in e.text)
    label.find_element("css selector", "input").click()
    wait_for(chromium, "return document.querySelector('.prediction').textContent.includes('→')")
    wait_for(chromium, "return location.search.includes('balance=on')")
    assert trouble(chromium, address) == []


def test_a_suggestion_is_used_by_one_click_and_its_command_is_there(chromium: Any, address: str) -> None:
    visit(chromium, address, "/what-if")
    wait_for(chromium, "return document.querySelector('.suggested button') !== null")
    chromium.find_element("css selector", ".suggested button").click()
    wait_for(chromium, "return document.querySelector('.prediction').textContent.includes('less')")
    asked = wait_for(chromium, "return new URLSearchParams(location.search).get('device')")
    shown = "[...document.querySelectorAll('.listing pre')].map((pre) => pre.textContent)"
    wait_for(chromium, f"return {shown}.some((text) => text.endsWith('--set device={asked}'))")
    assert chromium.execute_script("return document.querySelector('#what-if-device-ranks').value") == asked[9:]
    assert trouble(chromium, address) == []


def test_numbers_ranks_and_choices_reach_the_replay(chromium: Any, address: str) -> None:
    visit(chromium, address, "/what-if")
    box = wait_for(chromium, "return document.querySelector('#what-if-bucket_cap_mb')")
    box.send_keys("5")
    wait_for(chromium, "return location.search.includes('bucket_cap_mb=5')")
    chromium.find_element("css selector", "#what-if-loader").click()
    chromium.find_element("css selector", "#what-if-loader-ranks").send_keys("1")
    wait_for(chromium, "return new URLSearchParams(location.search).get('loader') === 'ready@1'")
    steps = "[...document.querySelectorAll('#what-if-result td')].map((cell) => cell.textContent)"
    wait_for(chromium, f"return {steps}.includes('Batches always ready @ 1') && {steps}.includes('DDP buckets 5')")
    assert trouble(chromium, address) == []


def test_filters_go_into_the_address(chromium: Any, address: str) -> None:
    visit(chromium, address, "/ranks")
    box = wait_for(chromium, "return document.querySelector('#filter-ranks')")
    box.send_keys("0-1\n")
    wait_for(chromium, "return location.search.includes('ranks=0-1')")
    wait_for(chromium, "return document.querySelector('#exhibit-lateness details')?.textContent.includes('rank 1')")
    wait_for(chromium, "return !document.querySelector('#exhibit-lateness details').textContent.includes('rank 2')")


def test_the_theme_changes_and_stays(chromium: Any, address: str) -> None:
    visit(chromium, address, "/")
    before = chromium.execute_script("return document.documentElement.dataset.theme")
    chromium.find_element("id", "theme").click()
    wait_for(chromium, f"return document.documentElement.dataset.theme !== '{before}' && document.querySelector('h1')")
    visit(chromium, address, "/ranks")
    wait_for(chromium, f"return document.documentElement.dataset.theme !== '{before}'")
    chromium.delete_all_cookies()


def _hostile(opened: OpenRun) -> OpenRun:
    """The run with every name of its traces, findings, settings, hosts and files an attack."""
    assert opened.loaded is not None
    report, job = opened.report, opened.loaded.job
    evil_group = (EVIL,) * len(job.groups)
    ranks = tuple(
        replace(
            facts,
            strings=(EVIL,) * len(facts.strings),
            path=EVIL,
            identity=replace(facts.identity, host=EVIL),
            sidecar=Sidecar(schema=EVIL, dataloader=LoaderSettings(dataset=EVIL, sampler=SamplerSettings(name=EVIL))),
        )
        for facts in job.ranks
    )
    groups = job.groups.replace(name=np.array(evil_group, object))
    fix = Fix(EVIL, EVIL, EVIL, EVIL, EVIL, EVIL)
    findings = tuple(
        replace(f, summary=EVIL, evidence=tuple(replace(e, text=EVIL, event=EVIL) for e in f.evidence), fixes=(fix,))
        for f in report.findings
    )
    hostile = replace(
        report,
        findings=findings,
        verdict=replace(report.verdict, headline=EVIL),
        run=replace(
            report.run, name=EVIL, device_name=EVIL, framework=(EVIL,), hosts=dict.fromkeys(report.run.ranks, EVIL)
        ),
        what_if=tuple(replace(w, change=EVIL) for w in report.what_if),
        health=(HealthItem(EVIL, EVIL, "warning"),),
        abstentions=(Abstention(EVIL, EVIL),),
        checked=(EVIL,),
        clock=replace(
            report.clock, method=EVIL, hosts={EVIL: HostClockInfo(1.0, 0.0, 1.0), "b": HostClockInfo(0.0, 0.0, 1.0)}
        ),
    )
    return OpenRun(hostile, replace(opened.loaded, job=replace(job, ranks=ranks, groups=groups)))


def test_names_from_a_trace_do_not_run(chromium: Any, serve: Callable[..., str], straggler: OpenRun) -> None:
    hostile = _hostile(straggler)
    where = serve([hostile, hostile])
    assert visit(chromium, where, PAGES[0].path) == []
    for page in PAGES:
        assert turn_to(chromium, where, page.title) == []
        chromium.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        wait_for(chromium, "return !document.querySelector('details[open] .sheet:empty')")
        assert chromium.title == "ddprof", page.path
        assert chromium.execute_script("return document.querySelector('img, [onerror], #content script')") is None


def test_names_do_not_run_in_what_the_timeline_says(
    chromium: Any, serve: Callable[..., str], straggler: OpenRun
) -> None:
    visit(chromium, serve([_hostile(straggler)]), "/timeline?finding=0")
    assert EVIL in chromium.find_element("id", "timeline-say").text
    open_lanes(chromium)
    chromium.find_element("css selector", ".tl-bar input[type=search]").send_keys("onerror\n")
    wait_for(chromium, "return ddprof.timeline.found?.view")
    point = """
      const t = ddprof.timeline;
      for (const r of t.visibleRows())
        for (let x = 240; x < t.width; x += 2) {
          const found = t.at(x, r.y + r.height / 2);
          if (found.data && t.tile.names[found.data.name[found.slice]]?.includes('onerror')) {
            const box = t.canvas.getBoundingClientRect(), y = box.top + r.y + r.height / 2;
            const at = { clientX: box.left + x, clientY: y };
            t.canvas.dispatchEvent(new MouseEvent('mousemove', at));
            t.drag = x;
            window.dispatchEvent(new MouseEvent('mouseup', at));
            return true;
          }
        }
      return false;"""
    wait_for(chromium, point)
    assert EVIL in wait_for(chromium, "return document.querySelector('.tl-panel h3')?.textContent")
    assert EVIL in wait_for(chromium, "return document.querySelector('.tl-tip:not([hidden])')?.textContent")
    chromium.execute_script(
        "ddprof.timeline.range = [ddprof.timeline.lo, ddprof.timeline.hi]; ddprof.timeline.statistics()"
    )
    wait_for(chromium, "return document.querySelectorAll('.tl-panel table').length === 2")
    assert EVIL in chromium.find_element("css selector", ".tl-panel").text
    assert chromium.title == "ddprof"
    assert chromium.execute_script("return document.querySelector('img, [onerror], #content script')") is None
