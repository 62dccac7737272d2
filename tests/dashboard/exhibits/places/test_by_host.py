"""Sentences that answer an everyday question: which host, why the loader waits, and where the links lead."""

from dataclasses import replace

import pytest

from ddprof.analyzers.job.charged import waited_for_us
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.places.by_host import by_host
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View

PATHS = {subject.path for subject in SUBJECTS}


def on_hosts(opened: OpenRun, per_host: int) -> View:
    """The run as one of hosts with so many ranks each."""
    report = opened.report
    hosts = {rank: f"node{rank // per_host}" for rank in report.run.ranks}
    placed = replace(opened, report=replace(report, run=replace(report.run, hosts=hosts)))
    return View(placed, {}, (placed,))


def test_a_host_is_suspected_where_all_of_its_ranks_are_named_and_there_are_others(straggler: OpenRun) -> None:
    found = by_host(on_hosts(straggler, 2))  # ranks 2 and 3 are slow
    assert found is not None and found.reading.startswith("node1 (ranks 2, 3)")
    assert "names all of its ranks: look at the host" in found.reading
    by_rank = waited_for_us(straggler.job).sum(axis=1) / 1e3
    assert [row[-1] for row in found.sheet.rows] == pytest.approx(by_rank.reshape(-1, 2).sum(axis=1))
    found = by_host(on_hosts(straggler, 4))
    assert found is not None and "names ranks 2, 3 of its 4: look at that device or process first" in found.reading
    assert by_host(on_hosts(straggler, 8)) is None
