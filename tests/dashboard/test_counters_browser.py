"""Counter tracks in a real Chromium: below the lanes, or said once that there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import open_more, trouble, visit, wait_for

pytestmark = pytest.mark.browser
COUNTED = "return ddprof.timeline && ddprof.timeline.root.dataset.counters"
BOX = "return ddprof.timeline.counterBox.textContent"


def test_tracks_or_that_there_are_none(chromium: Any, serve: Callable[..., str], straggler: OpenRun) -> None:
    address = serve([straggler])
    visit(chromium, address, "/timeline")
    wait_for(chromium, COUNTED)
    assert chromium.execute_script(BOX) == "no counters"
    rows = chromium.execute_script("return ddprof.timeline.rows.length")
    chromium.execute_script("""
      const t = ddprof.timeline;
      t.counters = [{ label: "node-a GPU 0 power", unit: "W", rank: null, at_us: [0, 10000], values: [100, 250] }];
      t.offerCounters(); t.layout(); t.painter.paint();""")
    assert chromium.execute_script("return ddprof.timeline.rows.length") == rows + 2
    assert chromium.execute_script("return ddprof.timeline.rows.at(-1).label") == "node-a GPU 0 power"
    open_more(chromium).find_element("xpath", "//label[contains(., 'counters')]/input").click()
    assert chromium.execute_script("return ddprof.timeline.rows.length") == rows
    assert trouble(chromium, address) == []
