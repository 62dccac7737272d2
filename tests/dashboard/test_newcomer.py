"""A newcomer opens each shipped sample: the Overview names the culprit, and two clicks lead to the event.

The first click is "Show in timeline" on the finding's card, the second is on the shaded span.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.findings import Evidence, Finding
from ddprof.units import format_ranks
from tests.dashboard.browsing import one_in, trouble, visit, wait_for

pytestmark = pytest.mark.browser

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
TRUTHS: dict[str, dict[str, Any]] = {
    file.parent.name: json.loads(file.read_text(encoding="utf-8")) for file in sorted(SAMPLES.glob("*/truth.json"))
}
FAULTY = [name for name, truth in TRUTHS.items() if truth["findings"]]
NO_EVENT = {"memory.headroom", "input.unsharded"}  # a level and a setting: nothing of the timeline is their event

# A place of the canvas, not of a row that its end cuts, where a slice of this rank lies in the middle of the span.
_PLACE = """
  const [rank, lo, hi] = arguments, t = ddprof.timeline, x = t.painter.x((lo + hi) / 2 * 1e3);
  const rows = t.visibleRows().filter((r) => r.rank === rank && r.lane !== undefined);
  const middle = (r) => r.y + r.height / 2;
  const row = rows.reverse().find((r) => middle(r) < t.height && t.at(x, middle(r)).data);
  return row ? [x, row.y + row.height / 2] : null;"""


@pytest.fixture(scope="module")
def open_runs(tmp_path_factory: pytest.TempPathFactory) -> list[OpenRun]:
    """All samples that hold a fault; copies of them, for facts are kept beside traces."""
    folder = tmp_path_factory.mktemp("samples")
    return [load([str(shutil.copytree(SAMPLES / name, folder / name))])[0] for name in FAULTY]


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], open_runs: list[OpenRun]) -> str:
    """One server of them all."""
    return serve(open_runs)


def _found(opened: OpenRun, fault: dict[str, Any]) -> tuple[int, Finding]:
    """The finding that says what the truth says, and its place on the Overview."""
    named = {fault["id"], *fault["or"]}
    ranked = list(enumerate(opened.report.ranked_findings()))
    return next((n, f) for n, f in ranked if f.id in named and f.ranks == tuple(fault["ranks"]))


@pytest.mark.parametrize("name", one_in(2, FAULTY))
def test_the_overview_names_the_culprit_and_two_clicks_show_the_event(
    chromium: Any, address: str, open_runs: list[OpenRun], name: str
) -> None:
    run = FAULTY.index(name)
    for fault in TRUTHS[name]["findings"]:
        number, finding = _found(open_runs[run], fault)
        visit(chromium, address, f"/?run={run}")
        card = chromium.find_elements("css selector", "article.card")[number]
        assert finding.summary in card.text
        if fault["ranks"]:
            assert format_ranks(fault["ranks"]) in chromium.find_element("tag name", "h1").text
            assert format_ranks(fault["ranks"]) in card.text
        links = card.find_elements("link text", "Show in timeline")
        if finding.id in NO_EVENT:
            assert links == []
            continue
        links[0].click()
        evidence = next(e for e in finding.evidence if e.start_us is not None)
        _click_the_span(chromium, evidence)
        assert trouble(chromium, address) == []


def _click_the_span(chromium: Any, evidence: Evidence) -> None:
    from selenium.webdriver import ActionChains

    wait_for(chromium, "return document.getElementById('timeline-root')?.dataset.tiles")
    focus = chromium.execute_script("return ddprof.timeline.focus")
    assert (focus["rank"], focus["lo_us"], focus["hi_us"]) == (evidence.rank, evidence.start_us, evidence.end_us)
    assert evidence.text in chromium.find_element("id", "timeline-say").text
    window = [evidence.rank, evidence.start_us, evidence.end_us]
    script = f"const find = (...a) => (function () {{ {_PLACE} }})(...a); return find(...{json.dumps(window)});"
    x, y = wait_for(chromium, script)
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    # Selenium counts from the middle of the element.
    size = canvas.size
    ActionChains(chromium).move_to_element_with_offset(
        canvas, round(x - size["width"] / 2), round(y - size["height"] / 2)
    ).click().perform()
    wait_for(chromium, "return document.querySelector('.tl-panel h3')?.textContent")
    said = chromium.find_element("css selector", ".tl-panel").text
    assert f"rank {evidence.rank}" in said
    details = chromium.execute_script("return ddprof.timeline.pinned")
    assert details["rank"] == evidence.rank
    middle = (window[1] + window[2]) / 2
    slack = (window[2] - window[1]) / 50  # two pixels of what is shown
    assert details["start_us"] - slack <= middle <= details["start_us"] + details["dur_us"] + slack
