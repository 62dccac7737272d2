"""Every page: it is drawn for every kind of run and holds the report's numbers; what ignores a filter says so."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from dash.development.base_component import Component

from ddprof.analyzers.catalogue import catalogue
from ddprof.causes import CAUSES
from ddprof.dashboard.app import _navigation, page_content
from ddprof.dashboard.exhibits import communication, ranks
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.host import loading_words
from ddprof.dashboard.pages.cards import exhibit_card, page_of_cause, page_of_finding
from ddprof.dashboard.pages.catalogue import PAGES, page_at
from ddprof.dashboard.pages.page import Page
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View, parse_query
from ddprof.report.model import Report
from ddprof.sidecar import LoaderSettings, TimedFetches
from ddprof.tables import NULL
from tests.dashboard.made import alone, serialised, texts, with_job


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.title)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_is_drawn(page: Page, dark: bool, straggler: OpenRun, pipeline: OpenRun) -> None:
    for opened in (straggler, pipeline):
        view = replace(alone(opened), dark=dark)
        content = page.content(view)
        assert any(isinstance(c, Component) for c in content) and len(serialised(content)) > 200
        for exhibit in page.exhibits(view):
            assert exhibit.question.endswith("?") and exhibit.reading.endswith(".")
            assert all(len(row) == len(exhibit.sheet.columns) for row in exhibit.sheet.rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.title)
def test_a_saved_report_shows_what_it_holds(page: Page, straggler_report: Report) -> None:
    assert " ".join(texts(page.content(alone(OpenRun(straggler_report)))))


def test_filters_narrow_the_tables_and_a_bad_one_or_address_is_one_sentence(straggler: OpenRun) -> None:
    view = View(straggler, parse_query("?ranks=0-1&steps=1"), (straggler,))
    lateness = next(e for e in page_at("/ranks").exhibits(view) if e.id == "lateness")
    assert [row[0] for row in lateness.sheet.rows] == ["rank 0", "rank 1"]
    assert lateness.sheet.columns == ("rank", "step 1 (ms)") and view.link("/host") == "/host?ranks=0-1&steps=1"
    view = alone(straggler, ranks="x")
    assert list(texts(page_content(view, "/ranks"))) == ["'x' is not a number or a range such as 0-3"]
    assert list(texts(page_content(view, "/nowhere"))) == ["there is no page /nowhere"]


def test_the_pipeline_page_names_the_slow_stage(pipeline: OpenRun) -> None:
    assert pipeline.job.pipeline is not None
    exhibit = next(e for e in page_at("/pipeline").exhibits(alone(pipeline)) if e.id == "pipeline")
    work = [row[2] for row in exhibit.sheet.rows]
    assert len(work) == len(pipeline.job.pipeline.stages) and f"Stage {int(np.argmax(work))} " in exhibit.reading


def test_compare_says_what_changed(straggler: OpenRun) -> None:
    report = straggler.report
    job = {**report.ledger.job, "gc": 5_000.0, "wall_us": report.ledger.job["wall_us"] + 5_000.0}
    steps = replace(report.steps, wall_us=report.steps.wall_us + 5_000.0)
    slower = OpenRun(replace(report, ledger=replace(report.ledger, job=job), steps=steps))
    table = next(iter(page_at("/compare").exhibits(View(straggler, {}, (straggler, slower))))).sheet
    changed = {row[0]: row[3] for row in table.rows}
    assert changed["garbage collection"] == pytest.approx(5.0) and changed["step"] == pytest.approx(5.0)


def test_each_exhibit_says_which_filters_it_does_not_follow(straggler: OpenRun) -> None:
    view = alone(straggler, ranks="0", steps="0")
    said = {e.id: str(exhibit_card(e, "/ranks", view)) for e in ranks.exhibits(view)}
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
    groups = next(e for e in communication.exhibits(alone(opened)) if e.id == "groups")
    assert {row[-1] for row in groups.sheet.rows} == {communication.NOT_RECORDED}


def test_every_finding_and_cause_leads_to_a_page() -> None:
    paths, pages = {subject.path for subject in SUBJECTS}, {name: page_of_finding(name) for name in catalogue()}
    assert [name for name, page in pages.items() if page is None or page[1] not in paths] == []
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
