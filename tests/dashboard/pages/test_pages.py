"""Every page: it is drawn for every kind of run and holds the report's numbers; what ignores a filter says so."""

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from dash.development.base_component import Component

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.settings.knobs import Setting
from ddprof.causes import CAUSES
from ddprof.cli.whatif import command as whatif
from ddprof.dashboard.app import _navigation, page_content
from ddprof.dashboard.exhibits import communication, ranks
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.host import loading_words
from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.pages import what_if
from ddprof.dashboard.pages.cards import exhibit_card, finding_card, page_of_cause, page_of_finding
from ddprof.dashboard.pages.catalogue import PAGES, page_at
from ddprof.dashboard.pages.page import Page
from ddprof.dashboard.pages.what_if import wanted_settings
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.view import View, parse_query
from ddprof.report.model import Report
from ddprof.sidecar import LoaderSettings, TimedFetches
from ddprof.tables import NULL
from tests.dashboard.made import SAMPLES, alone, serialised, texts, with_job

REFUSED = [
    *(("device", "replaced", "which ranks"), ("device", "replaced@99", "no rank 99")),
    *(("device", "replaced@x", "ranks are written"), ("loader", "nonsense", "the only value is ready")),
    *(("bucket_cap_mb", "-3", "want a number"), ("gc", "off", "no garbage collection")),
]
STAGES = {"microbatches": "8", "interleave": "2", "stages": "balanced"}
COPIED = [
    ("straggler.compute", {"device": "replaced@{culprit}", "bandwidth": "2"}),
    ("comm.latency_bound", {"bucket_cap_mb": "25"}),
    ("bubble", STAGES),
    pytest.param("pipeline.bubble", STAGES, marks=pytest.mark.slow),  # 8 seconds of replays
]


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


def replayed(opened: OpenRun, **query: str) -> float:
    settings, refused = wanted_settings(opened, query)
    assert refused == []
    return what_if.predict(opened, settings).after_us


def test_as_recorded_is_the_measured_step_and_removing_the_straggler_pays(straggler: OpenRun) -> None:
    nothing, before = what_if.predict(straggler, ()), straggler.report.steps.wall_us
    assert nothing.levels == () and nothing.after_us == pytest.approx(before)
    balanced = replayed(straggler, balance="on")
    assert balanced < before * 0.99 and replayed(straggler, balance="on", compute="2") < balanced


def test_every_control_can_be_replayed_alone(straggler: OpenRun) -> None:
    values = {"switch": "", "factor": "2", "number": "8", "choice": ""}
    for control in what_if.controls_of(alone(straggler)):
        value = control["suggested"] or values[control["kind"]] or control["on"]
        value = control["choices"][0] if control["choices"] else value
        value += "@0" if control["ranks"] == "needed" and "@" not in value else ""
        settings, refused = wanted_settings(straggler, {control["key"]: value})
        assert refused == [] and len(settings) == 1, control["key"]
        replay = what_if.predict(straggler, settings)
        assert len(replay.levels) == 1 and replay.after_us > 0, control["key"]
        assert replay.low_us <= replay.after_us <= replay.high_us, control["key"]


@pytest.mark.parametrize("text", ["nan", "inf", "-5", "x", "1e9"])
def test_a_factor_from_the_address_stays_within_its_control(text: str, straggler: OpenRun) -> None:
    ((setting,), _) = wanted_settings(straggler, {"bandwidth": text})
    assert 1.0 <= float(setting.value) <= 8.0


@pytest.mark.parametrize(("key", "text", "why"), REFUSED)
def test_what_cannot_be_asked_is_refused_in_words(key: str, text: str, why: str, view: View) -> None:
    said = " ".join(texts(what_if.outcome(view, {key: text, "balance": "on"})))
    assert why in said and "less" in said  # the rest is replayed


def test_the_result_is_a_sentence_and_what_does_not_apply_is_hidden_and_says_why(view: View) -> None:
    sentence = what_if.outcome(view, {"balance": "on"})[0].children
    assert "→" in sentence and "less" in sentence
    keys = {control["key"] for control in what_if.controls_of(view)}
    assert not keys & {"gc", "stages", "microbatches", "reshard_after_forward"}
    said = " ".join(texts(what_if.content(view)))
    assert "no garbage collection in the recorded steps" in said and "no pipeline stages found in this run" in said


def test_controls_say_what_findings_suggest_and_those_lead_to_a_remedy(straggler: OpenRun) -> None:
    view, finding = alone(straggler), straggler.report.ranked_findings()[0]
    assert [f for f in straggler.report.ranked_findings() if f.id == "straggler.compute"] == [finding]
    first, *others = what_if.controls_of(view)
    wanted = f"replaced@{','.join(map(str, finding.ranks))}"
    assert first["key"] == "device" and first["suggested"] == wanted and first["because"] == 1
    loader = next(control for control in others if control["key"] == "loader")
    assert loader["current"].endswith("in the loader per step")
    assert f"/what-if?{urlencode({'device': wanted})}" in serialised([finding_card(view, 0, finding, full=False)])


@pytest.mark.parametrize(("kind", "query"), COPIED)
def test_the_copied_command_says_the_number_of_the_page(
    kind: str, query: dict[str, str], tmp_path: Path, drawn: Callable[[str], Path]
) -> None:
    quoted = tmp_path / "a run"  # the path wants quoting
    shutil.copytree(SAMPLES / kind if kind == "bubble" else drawn(kind), quoted)
    opened = load([str(quoted)], workers=1)[0]
    culprit = (opened.report.ranked_findings()[0].ranks or (0,))[0]
    query = {key: value.format(culprit=culprit) for key, value in query.items()}
    (command,) = [text for text in texts(what_if.outcome(alone(opened, **query), query)) if text.startswith("ddprof ")]
    name, subcommand, *words = shlex.split(command)
    assert (name, subcommand) == ("ddprof", "whatif")
    done = CliRunner().invoke(whatif, [*words, "--format", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = [json.loads(done.stdout)[key] for key in ("predicted_step_us", "low_us", "high_us")]
    replay = what_if.predict(opened, wanted_settings(opened, query)[0])
    assert replay.gain_us != 0 and told == pytest.approx([replay.after_us, replay.low_us, replay.high_us], abs=1e-3)


def test_a_run_that_no_path_names_has_no_command_several_their_folders(straggler_traces: Path, tmp_path: Path) -> None:
    opened = load([str(file) for file in sorted(straggler_traces.iterdir())], workers=1)[0]
    assert opened.argument == "" and try_it.of_settings(opened, [Setting("bandwidth", "2")]) == ()
    assert "No single path names this run" in " ".join(texts(what_if.outcome(alone(opened), {"bandwidth": "2"})))
    several = [shutil.copytree(SAMPLES / name / "traces", tmp_path / name) for name in ("gc", "slow_gpu")]
    assert sorted(run.argument for run in load([str(tmp_path)], workers=1)) == list(map(str, several))
