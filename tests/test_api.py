"""`import ddprof; ddprof.analyze(...)`."""

import json
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

import ddprof
from ddprof.api import AnalyzedRun, TimelineView, analyze_all, load
from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput, UsageError
from ddprof.report.listed import FindingList
from ddprof.report.model import Report

CAUSES_US = [f"{cause}_us" for cause in CAUSES]


def test_findings_verdict_and_ledger(saved: Path) -> None:
    run = ddprof.analyze(saved)
    assert [f.id for f in run.findings] == ["input.straggler", "comm.bandwidth_bound"]
    assert (run.verdict.bound, run.step_us) == ("straggler", 100_000)
    assert list(run.ledger.columns) == ["wall_us", *CAUSES_US] and run.ledger.index.name == "rank"
    assert run.ledger.loc[2, "dataloader_us"] == 38_000
    assert (run.ledger[CAUSES_US].sum(axis=1) - run.ledger["wall_us"]).abs().max() < 1
    findings = run.findings
    assert len(findings) == 2 and findings[-1] in findings and [f.id for f in findings[1:]] == ["comm.bandwidth_bound"]
    head, first, second = repr(findings).splitlines()
    assert head.split() == ["finding", "who", "gain", "confidence", "what"]
    assert first.split()[:2] == ["critical", "input.straggler"] and "36 ms" in first and "high" in first
    assert "comm.bandwidth_bound" in second and findings._repr_html_().count("<tr>") == 3
    assert findings == tuple(findings) and findings != ()


def test_json_html_and_notebook_and_what_a_saved_report_does_not_hold(saved: Path, tmp_path: Path) -> None:
    run = ddprof.analyze([saved])
    assert json.loads(run.to_json()) == json.loads(saved.read_text())
    assert run.save_html(tmp_path / "x.html").read_text().startswith("<!doctype html>")
    assert "Largest saving: " in run._repr_html_() and "Largest saving: " in str(run) and len(str(run)) < 1_000
    assert run.to_text().startswith(str(run)[:40]) and len(run.to_text()) > len(str(run))
    assert max(len(repr(run)), len(str(run.report))) < 500
    for read in (lambda: run.steps, lambda: run.collectives, lambda: run.plots, run.timeline):
        with pytest.raises(NoUsableInput, match="a saved report holds no"):
            read()


def test_several_runs_need_analyze_all_and_nothing_is_refused(saved: Path, tmp_path: Path) -> None:
    for ask, words in (
        (lambda: ddprof.analyze([saved, saved]), "2 runs found"),
        (lambda: ddprof.analyze(tmp_path), None),
        (lambda: load(tmp_path / "absent.json"), None),
    ):
        with pytest.raises(NoUsableInput, match=words):
            ask()
    assert len(analyze_all([saved, saved])) == 2 and load(saved).verdict.bound == "straggler"


def test_kernels_have_real_names_and_a_saved_report_has_none(repo_root: Path, saved: Path) -> None:
    run = ddprof.analyze(repo_root / "sample_traces" / "slow_gpu" / "traces", cache=False)
    assert {"compute", "communication"} <= {*run.kernels["kind"]} and run.kernels["kernel"].str.contains("gemm").any()
    busy = run.ledger[["compute_us", "comm_wait_us", "comm_transfer_us", "pipeline_bubble_us", "memcpy_us"]].sum(axis=1)
    assert (run.kernels.groupby("rank")["busy_us"].sum() - busy).abs().max() < 1e-3 * busy.max()
    with pytest.raises(NoUsableInput, match="holds no kernels"):
        _ = ddprof.analyze(saved).kernels


def test_what_there_is_can_be_listed_and_names_are_literal_in_a_notebook(straggler_report: Report) -> None:
    assert {"analyze", "AnalyzedRun", "step", "annotate", "capture"} <= set(dir(ddprof))
    assert all(hasattr(ddprof, name) for name in dir(ddprof))
    hostile = replace(straggler_report.findings[0], summary="<script>x</script>\x1b[2J")
    listed = FindingList(replace(straggler_report, findings=(hostile,)))
    assert "<script>" not in listed._repr_html_() and "\x1b" not in repr(listed)
    assert "no findings" in repr(FindingList(replace(straggler_report, findings=())))


@pytest.fixture(scope="module")
def late(repo_root: Path) -> AnalyzedRun:
    return ddprof.analyze(repo_root / "sample_traces" / "late_loader" / "traces", cache=False)


def test_steps_of_every_rank_sum_to_the_ledger_and_collectives_name_who_came_last(late: AnalyzedRun) -> None:
    steps = late.steps
    assert steps.index.names == ["rank", "step"]
    assert list(steps.columns) == ["number", "start_us", "wall_us", *CAUSES_US]
    assert (steps[CAUSES_US].sum(axis=1) - steps["wall_us"]).abs().max() < 1
    assert (steps.groupby("rank")[["wall_us", *CAUSES_US]].mean() - late.ledger).abs().max().max() < 1
    assert steps["start_us"].min() == 0
    table = late.collectives
    assert set(table["op"]) == {"all_reduce"} and (table["size_bytes"] > 0).all()
    assert (table["last_rank"] == 2).mean() > 0.9  # the loader of rank 2 is late
    assert (table["longest_wait_us"] >= 0).all() and (table["transfer_us"] > 0).all()
    assert table["start_us"].is_monotonic_increasing or table["start_us"].notna().all()


def test_the_page_and_text_of_traces_are_whole_and_the_timeline_is_a_frame(late: AnalyzedRun, tmp_path: Path) -> None:
    page, first = late.save_html(tmp_path / "x.html").read_text(), late.findings[0].id
    assert 'id="timeline"' in page and "A saved report does not hold" not in page and len(page.encode()) < 3_000_000
    assert first in page and first in late.to_text()
    view = late.timeline(height=500)
    assert 'id="timeline"' in view.html and 'id="ranks"' not in view.html
    frame = view._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"') and "height:500px" in frame
    assert unescape(frame.split('srcdoc="')[1].split('"')[0]) == view.html and len(repr(view)) < 100
    assert "save_html" in TimelineView("x" * 17_000_000, 1)._repr_html_()


def test_pictures_are_figures_with_their_question_answer_and_legend(late: AnalyzedRun) -> None:
    assert {"steps", "blame", "kernels"} <= set(late.plots)
    figure = late.plot("blame", dark=True)
    assert late.plots["blame"] in figure.layout.title.text and "■" in figure.layout.title.text
    assert len(figure.data) and "var(--" not in figure.to_json()
    with pytest.raises(UsageError, match=r"no picture 'blam' of this run \(did you mean blame\?\); there are steps, "):
        late.plot("blam")
