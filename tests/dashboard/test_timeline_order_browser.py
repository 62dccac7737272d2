"""Ordering, grouping and closing groups of ranks in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver.support.ui import Select

from ddprof.dashboard.exhibits.parts.arrangement import arrangement
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import open_more, trouble, visit, wait_for

pytestmark = pytest.mark.browser

ARRANGED = "return ddprof.timeline && ddprof.timeline.root.dataset.arranged"
RANKS = "return [...new Set(ddprof.timeline.rows.map((r) => r.rank).filter((r) => r !== undefined))]"
HEADS = "return ddprof.timeline.rows.filter((r) => r.isHost).map((r) => r.label)"


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], straggler: OpenRun, pipeline: OpenRun) -> str:
    """A server of a run with a late rank, and one with a pipeline."""
    return serve([straggler, pipeline])


def _open(chromium: Any, address: str, path: str) -> None:
    visit(chromium, address, path)
    wait_for(chromium, ARRANGED)


def _list(chromium: Any, number: int) -> Select:
    return Select(open_more(chromium).find_elements("css selector", ".tl-orders select")[number])


def test_the_latest_rank_comes_first(chromium: Any, address: str, straggler: OpenRun) -> None:
    _open(chromium, address, "/timeline")
    late = dict(arrangement(straggler.job)["lateness_us"])
    assert chromium.execute_script(RANKS) == sorted(late)
    _list(chromium, 1).select_by_value("late")
    expected = sorted(late, key=lambda rank: -late[rank])
    assert chromium.execute_script(RANKS) == expected
    head = chromium.execute_script("return ddprof.timeline.rows.find((r) => r.isRank).label")
    assert f"rank {expected[0]}" in head and "+" in head
    wait_for(chromium, "return location.search.includes('order=late')")
    _open(chromium, address, "/timeline?order=late")
    assert chromium.execute_script(RANKS) == expected
    assert trouble(chromium, address) == []


def test_groups_fold_to_their_latest_rank(chromium: Any, address: str, pipeline: OpenRun) -> None:
    _open(chromium, address, "/timeline?run=1&by=pp")
    job = pipeline.job
    assert job.pipeline is not None
    heads = chromium.execute_script(HEADS)
    assert [head[:9] for head in heads] == [f"▾ stage {n}" for n in range(len(job.pipeline.stages))]
    chromium.execute_script("const t = ddprof.timeline; t.toggleRank(t.rows.find((r) => r.isHost))")
    first = chromium.execute_script("return ddprof.timeline.rows.filter((r) => r.isHost)[0]")
    stage = [job.rank_ids[position] for position in job.pipeline.stages[0]]
    late = dict(arrangement(job)["lateness_us"])
    assert first["isClosed"] and first["rank"] == max(stage, key=lambda rank: (late.get(rank, -1e18), -rank))
    assert not [
        r for r in chromium.execute_script("return ddprof.timeline.rows") if r.get("isRank") and r["rank"] in stage
    ]
    # What leads to a rank of a closed group opens the group.
    chromium.execute_script(f"const t = ddprof.timeline; t.open.add({stage[-1]}); t.layout()")
    assert chromium.execute_script(HEADS)[0].startswith("▾")
    assert trouble(chromium, address) == []


def test_what_is_not_known_is_disabled_with_the_reason(chromium: Any, address: str) -> None:
    _open(chromium, address, "/timeline")
    options = {o.get_attribute("value"): o for o in _list(chromium, 0).options}
    assert not options["pp"].is_enabled() and "no pipeline" in options["pp"].text
    assert options["none"].is_enabled()


def test_very_many_ranks_begin_with_closed_groups(chromium: Any, address: str) -> None:
    """The lanes of one rank, given out as those of 300: rows are few until a group is opened."""
    _open(chromium, address, "/timeline")
    chromium.execute_script("""
      const t = ddprof.timeline, mine = t.lanesOn(0);
      const lanes = Array.from({ length: 300 }, (_, rank) => mine.map((l) => ({ ...l, rank, host: "" }))).flat();
      t.info = { ...t.info, lanes };
      t.open.clear(); t.arrange(); t.layout();""")
    rows = chromium.execute_script("return ddprof.timeline.rows.length")
    assert rows == 19 and chromium.execute_script("return ddprof.timeline.by") == "block"
    chromium.execute_script("ddprof.timeline.toggleGroup(ddprof.timeline.groups()[0])")
    assert chromium.execute_script("return ddprof.timeline.rows.length") == rows + 16
