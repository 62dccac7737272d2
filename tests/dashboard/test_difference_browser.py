"""The timeline of two runs in a real Chromium: one click from Compare, with a legend and an empty state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import trouble, visit, wait_for

pytestmark = pytest.mark.browser


def test_one_click_from_compare(
    chromium: Any, serve: Callable[..., str], straggler: OpenRun, pipeline: OpenRun
) -> None:
    address = serve([straggler, pipeline])
    visit(chromium, address, "/compare")
    chromium.find_element("partial link text", "Show both in the timeline").click()
    wait_for(chromium, "return document.getElementById('timeline-root')?.dataset.tiles")
    chromium.execute_script("ddprof.timeline.openAll()")
    labels = chromium.execute_script("return ddprof.timeline.rows.map((r) => r.label)")
    assert any(label.startswith("after: ") for label in labels) and any(
        label.startswith("before: ") for label in labels
    )
    legend = chromium.find_element("css selector", ".tl-legend").text
    assert "only here" in legend and "10 % of the step" in legend
    chromium.execute_script("ddprof.timeline.takeStep(1)")
    wait_for(chromium, "return ddprof.timeline.root.dataset.step === '1'")
    chromium.execute_script("ddprof.timeline.describe(0, true)")
    wait_for(chromium, "return document.querySelector('.tl-panel h3')")
    assert "in step" in chromium.find_element("css selector", ".tl-panel").text
    assert trouble(chromium, address) == []


def test_a_saved_report_has_no_timeline_of_two(chromium: Any, serve: Callable[..., str], straggler: OpenRun) -> None:
    address = serve([straggler, OpenRun(straggler.report)])
    visit(chromium, address, "/compare")
    assert "No timeline of the two" in chromium.find_element("id", "content").text
    visit(chromium, address, "/timeline?beside=1")
    assert "saved report" in chromium.find_element("id", "content").text
    assert trouble(chromium, address) == []
