"""Sentences and links that answer an everyday question: where each finding leads, and why the loader waits."""

from dataclasses import replace

import msgspec

from ddprof.analyzers.catalogue import catalogue
from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.host import loading_words
from ddprof.dashboard.exhibits.parts.answered_by import page_of_cause, page_of_finding
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.sidecar import LoaderSettings, TimedFetches

PATHS = {subject.path for subject in SUBJECTS}


def test_every_finding_and_cause_leads_to_a_page(straggler: OpenRun) -> None:
    for name in catalogue():
        found = page_of_finding(name)
        assert found is not None and found[1] in PATHS, name
    assert {page_of_cause(cause) for cause in CAUSES} <= PATHS


def _timed(opened: OpenRun, workers: int | None, fetch_ms: float) -> str:
    """What is said of the run with so many workers, timed to take so long for a batch; 0: not timed."""
    measures = opened.measures
    timed = TimedFetches(workers=workers or 0, fetch_ns=round(fetch_ms * 1e6), samples=9)
    ranks = tuple(replace(f, sidecar=f.sidecar.with_fetching(timed)) if fetch_ms else f for f in measures.job.ranks)
    settings = msgspec.structs.replace(measures.settings, dataloader=LoaderSettings(num_workers=workers))
    return loading_words(replace(measures, job=replace(measures.job, ranks=ranks), settings=settings))


def test_a_loader_is_described_by_its_workers_and_its_batch(straggler: OpenRun) -> None:
    assert (
        _timed(straggler, 4, 36.0) == "4 workers make a rank's batches, each in 36 ms, so that one is ready each 9 ms."
    )
    assert _timed(straggler, 1, 36.0) == "1 worker makes a rank's batches, each in 36 ms."
    assert "makes each batch itself, in 36 ms" in _timed(straggler, 0, 36.0)
    assert _timed(straggler, None, 0).startswith("Not recorded: how many workers")
    assert _timed(straggler, 4, 0) == "The run had 4 workers per rank; what a batch costs was not timed."
