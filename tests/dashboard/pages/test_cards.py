"""Exhibits that ignore a filter say so, and unknown is never an amount."""

from dataclasses import replace

import msgspec
import numpy as np

from ddprof.analyzers.catalogue import catalogue
from ddprof.causes import CAUSES
from ddprof.dashboard.app import _navigation
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.communication import NOT_RECORDED
from ddprof.dashboard.exhibits.communication import exhibits as communication
from ddprof.dashboard.exhibits.host import loading_words
from ddprof.dashboard.exhibits.ranks import exhibits as ranks
from ddprof.dashboard.pages.cards import exhibit_card, page_of_cause, page_of_finding
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.sidecar import LoaderSettings, TimedFetches
from ddprof.tables import NULL
from tests.dashboard.made import alone, with_job


def test_each_exhibit_says_which_filters_it_does_not_follow(straggler: OpenRun) -> None:
    view = alone(straggler, ranks="0", steps="0")
    said = {e.id: str(exhibit_card(e, "/ranks", view)) for e in ranks(view)}
    assert "whatever the filter" not in said["lateness"] + said["step-causes"]
    assert "Only one step was chosen" in said["step-causes"] and "All steps, whatever the filter." in said["blame"]
    assert "All ranks and steps, whatever the filter." in said["critical"]
    for path in ("/", "/findings", "/what-if"):
        assert "all ranks and steps, whatever the filter." in str(page_at(path).content(view))
    pages = "".join(str(page_at(path).content(alone(straggler))) for path in ("/", "/ranks", "/findings"))
    assert "whatever the filter" not in pages


def test_what_was_not_recorded_is_grey_or_said(straggler: OpenRun) -> None:
    links = {link.children: link.className for link in _navigation(alone(straggler), "/")}
    assert all("empty" in links[name] for name in ("Pipeline", "Compare", "Live"))
    assert links["Communication"] == "" and links["Overview"] == "current"
    instances = straggler.job.instances
    opened = with_job(straggler, instances=instances.replace(size_bytes=np.full(len(instances), NULL)))
    groups = next(e for e in communication(alone(opened)) if e.id == "groups")
    assert {row[-1] for row in groups.sheet.rows} == {NOT_RECORDED}


def test_every_finding_and_cause_leads_to_a_page() -> None:
    paths = {subject.path for subject in SUBJECTS}
    for name in catalogue():
        page = page_of_finding(name)
        assert page is not None and page[1] in paths, name
    assert {page_of_cause(cause) for cause in CAUSES} <= paths


def _timed(opened: OpenRun, workers: int | None, fetch_ms: float) -> str:
    """Text about the run with so many workers, timed to take so long for a batch; 0: not timed."""
    measures = opened.measures
    timed = TimedFetches(workers=workers or 0, fetch_ns=round(fetch_ms * 1e6), samples=9)
    ranks = tuple(replace(f, sidecar=f.sidecar.with_fetching(timed)) if fetch_ms else f for f in measures.job.ranks)
    settings = msgspec.structs.replace(measures.settings, dataloader=LoaderSettings(num_workers=workers))
    return loading_words(replace(measures, job=replace(measures.job, ranks=ranks), settings=settings))


def test_a_loader_is_described_by_its_workers_and_its_batch(straggler: OpenRun) -> None:
    said = "4 workers make a rank's batches, each in 36 ms, so that one is ready each 9 ms."
    assert _timed(straggler, 4, 36.0) == said
    assert _timed(straggler, 1, 36.0) == "1 worker makes a rank's batches, each in 36 ms."
    assert "makes each batch itself, in 36 ms" in _timed(straggler, 0, 36.0)
    assert _timed(straggler, None, 0).startswith("Not recorded: how many workers")
    assert _timed(straggler, 4, 0) == "The run had 4 workers per rank; what a batch costs was not timed."
