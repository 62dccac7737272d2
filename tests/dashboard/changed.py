"""Runs with other facts than were recorded."""

from dataclasses import replace
from typing import Any

from ddprof.dashboard.runs.open_run import OpenRun


def with_job(opened: OpenRun, **changes: Any) -> OpenRun:
    """The run with a job of other facts."""
    assert opened.loaded is not None
    return OpenRun(opened.report, replace(opened.loaded, job=replace(opened.loaded.job, **changes)))


def named(opened: OpenRun, name: str) -> OpenRun:
    """The run and its first finding called `name`, as every kernel, range and operator is."""
    finding = replace(opened.report.ranked_findings()[0], summary=name)
    report = replace(opened.report, findings=(finding,), run=replace(opened.report.run, name=name))
    ranks = tuple(replace(facts, strings=(name,) * len(facts.strings)) for facts in opened.job.ranks)
    return with_job(replace(opened, report=report), ranks=ranks)
