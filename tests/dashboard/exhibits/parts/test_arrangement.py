"""Groups and order of ranks: what the run's own groups tell, and the reason where they tell nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.support.ui import Select

from ddprof.analyzers.job.model import GROUPS, JobFacts
from ddprof.dashboard.exhibits.parts.arrangement import arrangement
from ddprof.dashboard.exhibits.parts.numbers import lateness_us
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import Page

ARRANGED = "return ddprof.timeline && ddprof.timeline.root.dataset.arranged"
RANKS = "return [...new Set(ddprof.timeline.rows.map((r) => r.rank).filter((r) => r !== undefined))]"
HEADS = "return ddprof.timeline.rows.filter((r) => r.isHost).map((r) => r.label)"


def _grouping(job: JobFacts, name: str) -> Any:
    return next(grouping for grouping in arrangement(job)["groupings"] if grouping["id"] == name)


def _with_groups(job: JobFacts, *groups: tuple[str, str]) -> JobFacts:
    """The job with these groups, as (ranks, role)."""
    ranks, roles = map(list, zip(*groups, strict=True))
    columns = {"size": [of.count(",") + 1 for of in ranks], "ranks": ranks, "role": roles}
    return replace(job, groups=GROUPS.table({**columns, "name": [str(i) for i in range(len(groups))]}))


def test_lateness_is_that_of_the_page_ranks_and_groups_of_a_role_divide_them(straggler: OpenRun) -> None:
    late = dict(arrangement(straggler.job)["lateness_us"])
    medians_us = np.nanmedian(lateness_us(straggler.job), axis=1)
    assert late == pytest.approx(dict(zip(straggler.job.rank_ids, medians_us, strict=True)))
    assert max(late, key=lambda rank: late[rank]) in straggler.report.ranked_findings()[0].ranks
    job = _with_groups(straggler.job, ("0,1", "tp"), ("2,3", "tp"), ("2,3", "tp"), ("0,1,2,3", "dp"))
    groups = _grouping(job, "tp")["groups"]
    assert groups == [["tensor-parallel group: ranks 0, 1", [0, 1]], ["tensor-parallel group: ranks 2, 3", [2, 3]]]


def test_what_the_groups_do_not_tell_has_a_reason(straggler: OpenRun) -> None:
    job = _with_groups(straggler.job, ("0,1", "tp"), ("1,2", "tp"), (",".join(map(str, straggler.job.rank_ids)), "dp"))
    told = _grouping(job, "tp")
    assert told == {"id": "tp", "words": told["words"], "groups": [], "why": "the tensor-parallel groups overlap"}
    assert _grouping(job, "dp")["why"] == "one data-parallel group holds every rank"
    assert "no pipeline" in _grouping(replace(job, pipeline=None), "pp")["why"]
    assert "known to be" in _grouping(_with_groups(straggler.job, ("0,1", "group of 2")), "dp")["why"]


def _stages(job: JobFacts) -> list[list[int]]:
    assert job.pipeline is not None
    return [[job.rank_ids[position] for position in stage] for stage in job.pipeline.stages]


def test_stages_are_those_of_the_pipeline(pipeline: OpenRun) -> None:
    assert [ranks for _, ranks in _grouping(pipeline.job, "pp")["groups"]] == _stages(pipeline.job)


def _open(page: Page, path: str = "/timeline") -> None:
    page.visit(path)
    page.wait(ARRANGED)


def _list(page: Page, number: int) -> Select:
    return Select(page.menu().find_elements("css selector", ".tl-orders select")[number])


def test_the_latest_rank_comes_first(page: Page, straggler: OpenRun) -> None:
    _open(page)
    late = dict(arrangement(straggler.job)["lateness_us"])
    assert page.js(RANKS) == sorted(late)
    expected = sorted(late, key=lambda rank: -late[rank])
    _list(page, 1).select_by_value("late")
    assert page.js(RANKS) == expected
    head = page.js("return ddprof.timeline.rows.find((r) => r.isRank).label")
    assert f"rank {expected[0]}" in head and "+" in head
    page.wait("return location.search.includes('order=late')")
    _open(page, "/timeline?order=late")
    assert page.js(RANKS) == expected and page.trouble() == []


def test_groups_fold_to_their_latest_rank(page: Page, pipeline: OpenRun) -> None:
    _open(page, "/timeline?run=1&by=pp")
    stage, *others = _stages(pipeline.job)
    assert [head[:9] for head in page.js(HEADS)] == [f"▾ stage {n}" for n in range(1 + len(others))]
    page.js("const t = ddprof.timeline; t.toggleRank(t.rows.find((r) => r.isHost))")
    first = page.js("return ddprof.timeline.rows.filter((r) => r.isHost)[0]")
    late = dict(arrangement(pipeline.job)["lateness_us"])
    assert first["isClosed"] and first["rank"] == max(stage, key=lambda rank: (late.get(rank, -1e18), -rank))
    assert not [r for r in page.js("return ddprof.timeline.rows") if r.get("isRank") and r["rank"] in stage]
    # What leads to a rank of a closed group opens the group.
    page.js(f"const t = ddprof.timeline; t.open.add({stage[-1]}); t.layout()")
    assert page.js(HEADS)[0].startswith("▾") and page.trouble() == []


def test_what_is_not_known_is_disabled_with_the_reason_and_very_many_ranks_begin_closed(page: Page) -> None:
    """The lanes of one rank, given out as those of 300: rows are few until a group is opened."""
    _open(page)
    options = {o.get_attribute("value"): o for o in _list(page, 0).options}
    assert "no pipeline" in options["pp"].text and not options["pp"].is_enabled() and options["none"].is_enabled()
    page.js("""
      const t = ddprof.timeline, mine = t.lanesOn(0);
      const lanes = Array.from({ length: 300 }, (_, rank) => mine.map((l) => ({ ...l, rank, host: "" }))).flat();
      t.info = { ...t.info, lanes };
      t.open.clear(); t.arrange(); t.layout();""")
    rows = page.js("return ddprof.timeline.rows.length")
    assert rows == 19 and page.js("return ddprof.timeline.by") == "block"
    page.js("ddprof.timeline.toggleGroup(ddprof.timeline.groups()[0])")
    assert page.js("return ddprof.timeline.rows.length") == rows + 16
