"""The HTML file with all pages: the dashboard's exhibits and the report's own numbers, small, safe, without Dash."""

import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddprof.causes import CAUSES
from ddprof.dashboard.assets import plotly_script
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.figures.plotly.draw import draw
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.view import View
from ddprof.report.comparison.compare import compare
from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report
from tests.dashboard.browsing import Sample, one_in
from tests.dashboard.made import TRUTHS, alone, named, with_job
from tests.dashboard.onefile_reader import ANCHORS, File, equal_tables

EVIL = "<script>document.title='owned'</script>"
LIMIT_BYTES = 3_000_000
LINE = re.compile(r"\S+:\d+ \S+\(\)")  # of the script: hashed as paths and functions are


@pytest.fixture(scope="module")
def file(straggler_text: str) -> File:
    return File(straggler_text)


def test_every_table_is_the_dashboards_and_its_numbers_are_the_json_reports(file: File, straggler: OpenRun) -> None:
    assert file.pages == ANCHORS and equal_tables(file, alone(straggler)) > 500
    document = file.report
    assert document == json.loads(json.dumps(to_contract(straggler.report)))
    per_step = [us / 1e3 for us in document["steps"]["per_step_us"]]
    shown = {int(row[0]): float(row[3]) for row in file.rows["overview/steps"][1:]}
    assert [shown[i] for i in range(len(per_step))] == pytest.approx(per_step, rel=1e-3)
    replayed_ms = [w["predicted_step_us"] / 1e3 for w in document["what_if"]]
    assert [float(row[1]) for row in file.rows["what-if/what-if"][1:]] == pytest.approx(replayed_ms, rel=1e-3)
    for row in file.rows["overview/rank-causes"][1:]:
        ledger = document["ledger"]["per_rank"][row[0]]
        assert float(row[1]) == pytest.approx(ledger["compute"] / ledger["wall_us"] * 100, rel=1e-3)


def test_every_change_that_applies_is_replayed_alone(file: File, straggler: OpenRun) -> None:
    alone = {row[0]: float(row[1]) for row in file.rows["what-if/what-if-alone"][1:]}
    turned = [o.knob.words for o in straggler.offers if not o.lacking and (o.knob.is_switch or o.knob.is_factor)]
    needed = [o.knob.words for o in straggler.offers if o.knob.needs_ranks and o.suggested is None]
    assert {name.partition(",")[0].partition(" (")[0] for name in alone} >= set(turned) - set(needed)
    culprits = ", ".join(map(str, straggler.report.ranked_findings()[0].ranks))
    assert alone[f"Ranks replaced ({culprits})"] < straggler.report.steps.wall_us / 1e3 * 0.99
    assert "No collections" not in alone and "Stages balanced" not in alone


def test_the_file_asks_for_nothing_and_has_every_picture(file: File, straggler_text: str, view: View) -> None:
    links = [value for name, value in file.attributes if name in {"src", "href", "action", "background", "poster"}]
    assert links and all(value and value.startswith("#") for value in links)
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org)", straggler_text)
    assert "default-src &#x27;none&#x27;" in straggler_text
    drawn = {e.id: draw(e.chart) for s in SUBJECTS for e in s.exhibits(view) if e.chart is not None}
    assert len(drawn) > 8
    for name, figure in drawn.items():
        assert json.loads(file.scripts[f"figure-{name}"]) == json.loads(json.dumps(figure.figure)), name
    assert file.unpacked("plotly").decode() == plotly_script()


def _beside_figures(file: File) -> set[str]:
    return {name for name in file.scripts if not name.startswith("figure-")}


def _header(file: File) -> dict[str, Any]:
    tile = file.unpacked("timeline-tile")
    return dict(json.loads(tile[8 : 8 + struct.unpack("<I", tile[4:8])[0]]))


def test_the_timeline_is_in_the_file(file: File, straggler: OpenRun) -> None:
    held = json.loads(file.unpacked("timeline-held"))
    assert len(held["info"]["lanes"]) == len(straggler.timeline.lanes) and held["info"]["fixed"] is True
    assert sum(_header(file)["counts"]) == len(straggler.index)
    spans = [e for f in straggler.report.ranked_findings() for e in f.evidence if e.start_us is not None]
    assert [s["lo_us"] for s in held["config"]["spans"]] == [e.start_us for e in spans]
    assert len(file.rows["timeline/spans"]) == 1 + len(spans)
    assert held["waits"][0]["culprit"] == straggler.report.ranked_findings()[0].ranks[0]


def test_many_slices_are_merged_and_said_so(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddprof.dashboard.onefile.document.EXACT_SLICES", 200)
    text = render(straggler)
    header = _header(File(text))
    assert sum(header["counts"]) <= 200 and len(header["binned"]) > 0
    assert "Lanes with many slices are merged in this file" in text


def test_eight_ranks_stay_small(shared_run: Callable[[str], Path]) -> None:
    opened = load([str(shared_run("traces/multi_rank/dlrm_ddp_v100_8ranks"))])[0]
    text = render(opened)
    assert len(opened.report.run.ranks) == 8 and len(text.encode()) < LIMIT_BYTES
    assert equal_tables(File(text), alone(opened)) > 300


def test_names_from_traces_stay_text(straggler: OpenRun) -> None:
    text = render(named(straggler, EVIL + "\x1b[31m"))
    file = File(text)
    assert _beside_figures(file) == {"report", "timeline-held", "timeline-tile", "plotly", "code"}
    assert EVIL not in text and "\x1b" not in text
    assert EVIL.encode() in file.unpacked("timeline-tile")  # drawn on the canvas and as text content only
    assert not [name for name, _ in file.attributes if name.startswith("on")]


def test_redaction_reaches_every_page(straggler: OpenRun) -> None:
    called = named(straggler, "secret_kernel_of_acme")
    ranks = tuple(replace(f, identity=replace(f.identity, host="acme-node-17")) for f in called.job.ranks)
    opened = with_job(called, ranks=ranks)
    assert "secret_kernel_of_acme" in render(opened)
    text = render(opened, key=b"key")
    file = File(text)
    whole = text.encode() + file.unpacked("timeline-held") + file.unpacked("timeline-tile")
    assert b"acme" not in whole and all(Path(f.path).name.encode() not in whole for f in ranks)
    assert file.report["verdict"]["bound"] == straggler.report.verdict.bound
    assert [f["id"] for f in file.report["findings"]] == [f.id for f in opened.report.findings]
    assert "waiting for late ranks" in text and "checkpoint/logging" in text


def test_a_compare_page_and_a_saved_report(straggler: OpenRun, pipeline: OpenRun, straggler_report: Report) -> None:
    file = File(render(straggler, before=pipeline))
    assert "compare" in file.pages
    shown, told = (
        {row[0]: row[3] for row in file.rows["compare/compare-causes"]},
        compare(pipeline.report, straggler.report),
    )
    changed_us = {"step": told.step.change_us, **{CAUSES[delta.name].label: delta.change_us for delta in told.causes}}
    for name, us in changed_us.items():
        assert float(shown[name]) == pytest.approx(us / 1e3, rel=1e-3, abs=1e-3), name
    text = render(OpenRun(straggler_report))
    assert text.count("A saved report does not hold what this page shows") == sum(s.needs_traces for s in SUBJECTS)
    assert File(text).pages == ANCHORS and _beside_figures(File(text)) == {"report", "plotly", "code"}


def test_it_needs_neither_dash_nor_plotly(straggler_traces: Path, tmp_path: Path) -> None:
    script = "import sys\nfor name in ('dash', 'plotly', 'flask', 'werkzeug'): sys.modules[name] = None\n"
    script += "from ddprof.cli.main import main\nmain()\n"
    out = tmp_path / "x.html"
    command = ["-c", script, "report", str(straggler_traces), "-o", str(out), "--workers", "1"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "timeline-tile" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", one_in(6, [*TRUTHS]))
def test_the_file_of_a_sample_is_small_and_hashed_names_leave_the_verdict(sample: Sample, name: str) -> None:
    """That its numbers are the app's is a check of tests/consistency."""
    texts = render(sample(name)), render(sample(name), key=b"key")
    plain, hashed = (File(text).report for text in texts)
    assert len(texts[0].encode()) < LIMIT_BYTES
    assert (hashed["ledger"], hashed["steps"]) == (plain["ledger"], plain["steps"])
    said, plainly = ((r["verdict"]["bound"], LINE.sub("LINE", r["verdict"]["headline"])) for r in (hashed, plain))
    assert said == plainly
    gains, same = ([(f["id"], f["ranks"], f["recoverable_us"]) for f in r["findings"]] for r in (hashed, plain))
    assert gains == same
    private = {host for host in plain["run"]["hosts"].values() if host} | {Path(p).name for p in plain["run"]["paths"]}
    assert [word for word in private if word in texts[1]] == []
