"""Groups and order of ranks: what the run's own groups tell, and the reason where they tell nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddprof.analyzers.job.model import GROUPS, JobFacts
from ddprof.dashboard.exhibits.parts.arrangement import arrangement
from ddprof.dashboard.exhibits.parts.numbers import lateness_us
from ddprof.dashboard.runs.open_run import OpenRun


def _grouping(job: JobFacts, name: str) -> Any:
    return next(grouping for grouping in arrangement(job)["groupings"] if grouping["id"] == name)


def _with_groups(job: JobFacts, *groups: tuple[str, str]) -> JobFacts:
    """The job with these groups, as (ranks, role)."""
    columns = {
        "size": [ranks.count(",") + 1 for ranks, _ in groups],
        "ranks": [ranks for ranks, _ in groups],
        "role": [role for _, role in groups],
        "name": [str(i) for i in range(len(groups))],
    }
    return replace(job, groups=GROUPS.table(columns))


def test_lateness_is_that_of_the_page_ranks(straggler: OpenRun) -> None:
    late = dict(arrangement(straggler.job)["lateness_us"])
    by_step = lateness_us(straggler.job)
    assert late == pytest.approx(dict(zip(straggler.job.rank_ids, np.nanmedian(by_step, axis=1), strict=True)))
    assert max(late, key=lambda rank: late[rank]) in straggler.report.ranked_findings()[0].ranks


def test_groups_of_a_role_divide_the_ranks(straggler: OpenRun) -> None:
    job = _with_groups(straggler.job, ("0,1", "tp"), ("2,3", "tp"), ("2,3", "tp"), ("0,1,2,3", "dp"))
    groups = _grouping(job, "tp")["groups"]
    assert groups[:2] == [["tensor-parallel group: ranks 0, 1", [0, 1]], ["tensor-parallel group: ranks 2, 3", [2, 3]]]
    assert len(groups) == 2


def test_what_the_groups_do_not_tell_has_a_reason(straggler: OpenRun) -> None:
    ranks = ",".join(map(str, straggler.job.rank_ids))
    job = _with_groups(straggler.job, ("0,1", "tp"), ("1,2", "tp"), (ranks, "dp"))
    assert _grouping(job, "tp") | {"words": ""} == {
        "id": "tp",
        "words": "",
        "groups": [],
        "why": "the tensor-parallel groups overlap",
    }
    assert _grouping(job, "dp")["why"] == "one data-parallel group holds every rank"
    assert "no pipeline" in _grouping(replace(job, pipeline=None), "pp")["why"]
    assert "known to be" in _grouping(_with_groups(straggler.job, ("0,1", "group of 2")), "dp")["why"]


def test_stages_are_those_of_the_pipeline(pipeline: OpenRun) -> None:
    job = pipeline.job
    assert job.pipeline is not None
    stages = [[job.rank_ids[position] for position in stage] for stage in job.pipeline.stages]
    assert [ranks for _, ranks in _grouping(job, "pp")["groups"]] == stages
