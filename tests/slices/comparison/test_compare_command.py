"""`ddprof compare`, `explain` and `verify` on the command line, and the comparison as a page in a real Chromium."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from ddprof.report.comparison.compare import compare
from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report
from ddprof.slices.comparison.compare_command import render_html
from tests.dashboard.browsing import Page

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
UNVERIFIED = [
    ((), 2, "either AFTER or `-- COMMAND"),
    (("AFTER",), 2, "either --with"),
    (("AFTER", "--finding", "host.gc"), 2, "its findings: input.starved"),
    (("OTHER", "--with", "loader=ready", "--no-cache"), 4, "another kind of run"),
    (("--with", "loader=ready", "--no-cache", "--", "false"), 1, "ended with 1: nothing verified"),
]
LIMITS = [(1.1, "5%", 3), (1.1, "20%", 0), (1.1, "5ms", 3), (1.1, "20ms", 0), (0.9, "5%", 0)]


def _saved(file: Path, report: Report, factor: float, **run: object) -> str:
    wall_us, per_step_us = report.steps.wall_us * factor, tuple(v * factor for v in report.steps.per_step_us)
    steps = dataclasses.replace(report.steps, wall_us=wall_us, per_step_us=per_step_us)
    changed = dataclasses.replace(report, steps=steps, run=dataclasses.replace(report.run, **run))
    file.write_text(json.dumps(to_contract(changed)))
    return str(file)


@pytest.fixture
def before(tmp_path: Path, straggler_report: Report) -> str:
    return _saved(tmp_path / "before.json", straggler_report, 1.0)


@pytest.mark.parametrize(("factor", "limit", "code"), LIMITS)
def test_beyond_the_limit_it_exits_with_3(ddprof, tmp_path, before, straggler_report, factor, limit, code) -> None:
    after = _saved(tmp_path / "after.json", straggler_report, factor)
    got, out, err = ddprof("compare", before, after, "--max-regression", limit)
    assert got == code and ("Slower" if factor > 1 else "Faster") in out
    assert err.startswith("ddprof: gate failed: the step is 10 ms (10 %) slower") == (code == 3)


def test_gates_see_news_and_refuse_other_jobs(ddprof, tmp_path: Path, before: str, straggler_report: Report) -> None:
    assert ddprof("compare", before, before, "--fail-on", "warning")[0] == 0
    clean = _saved(tmp_path / "clean.json", dataclasses.replace(straggler_report, findings=()), 1.0)
    code, _, err = ddprof("compare", clean, before, "--fail-on", "warning")
    assert code == 3 and "input.straggler" in err
    after = _saved(tmp_path / "after.json", straggler_report, 1.1, world_size=8)
    assert ddprof("compare", before, after)[0] == 0
    code, out, err = ddprof("compare", before, after, "--max-regression", "5%")
    assert (code, "ranks: 4 against 8" in err, "Not comparable" in out) == (4, True, True)
    assert ddprof("compare", before, after, "--max-regression", "5%", "--allow-different")[0] == 3


def test_json_comparison_and_a_limit_that_cannot_be_read(ddprof, before: str) -> None:
    code, out, err = ddprof("compare", before, before, "--format", "json")
    assert (code, err, json.loads(out)["schema"]) == (0, "", "ddprof.compare/1")
    assert ddprof("compare", before, before, "--max-regression", "5 percent")[0] == 2


def test_explain_lists_and_explains(ddprof) -> None:
    code, out, _ = ddprof("explain")
    assert code == 0 and "input.straggler" in out
    code, out, _ = ddprof("explain", "input.straggler")
    assert code == 0 and all(words in out for words in ("What it detects", "How to fix", "Limits", "Sources"))


def _open(chromium, file: Path, report: Report) -> list[str]:
    """Complaints of the console and requests to elsewhere, once the page is open."""
    file.write_text(render_html(compare(report, report)), encoding="utf-8")
    return Page(chromium, file.as_uri()).open().trouble()


@pytest.mark.browser
def test_the_page_opens_and_no_name_of_a_trace_runs(chromium, tmp_path: Path, straggler_report: Report) -> None:
    assert _open(chromium, tmp_path / "x.html", straggler_report) == []
    assert "No change" in chromium.find_element("tag name", "h1").text
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = chromium.execute_script(ground)
    chromium.find_element("id", "theme").click()
    assert chromium.execute_script(ground) != before
    for width in (400, 1280):
        chromium.set_window_size(width, 900)
        _open(chromium, tmp_path / "x.html", straggler_report)
        shown, needed = chromium.execute_script("var d=document.documentElement;return [d.clientWidth,d.scrollWidth]")
        assert needed <= shown + 1
    report = dataclasses.replace(straggler_report, run=dataclasses.replace(straggler_report.run, name=EVIL))
    assert _open(chromium, tmp_path / "x.html", report) == []
    assert chromium.title != "owned" and EVIL in chromium.find_element("tag name", "body").text


@pytest.fixture
def runs(sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two copies of one run, so that "nothing changed" is the right prediction."""
    monkeypatch.setenv("DDPROF_DATA_HOME", str(tmp_path / "data"))
    for name in ("before", "after"):
        shutil.copytree(sample("starved_loader"), tmp_path / name)
    return str(tmp_path / "before"), str(tmp_path / "after")


def test_a_true_prediction_is_kept_and_quoted_unless_it_is_not_wanted(ddprof, runs, tmp_path: Path) -> None:
    asked = ("verify", *runs, "--with", "bandwidth=1", "--no-cache")
    assert ddprof(*asked, "--no-record")[0] == 0 and not (tmp_path / "data").exists()
    code, out, _ = ddprof(*asked, "--format", "json")
    document = json.loads(out)
    assert code == 0 and document["outcome"] == "inside" and document["kinds"] == ["scale_transfer"]
    assert document["measured_low_us"] is None or document["measured_low_us"] <= document["measured_us"]
    for folder in ("data", "before"):
        assert (tmp_path / folder / "calibration.jsonl").read_text().count("\n") == 1
    assert "2 of 2 similar predictions were within range" in ddprof(*asked)[1]


def test_a_false_prediction_is_said_and_the_finding_remembers(ddprof, runs) -> None:
    code, out, _ = ddprof("verify", *runs, "--finding", "input.starved", "--no-cache")
    assert code == 0 and "outside the predicted range" in out and "too short" in out
    code, out, _ = ddprof("analyze", runs[0], "--format", "json", "--no-cache")
    known = {f["id"]: f["calibration"] for f in json.loads(out)["findings"]}
    assert known["input.starved"] == {"inside": 0, "predictions": 1}


@pytest.mark.parametrize(("extra", "code", "says"), UNVERIFIED)
def test_what_cannot_be_verified_is_one_line(ddprof, runs, sample, extra, code: int, says: str, tmp_path: Path) -> None:
    arguments = [{"AFTER": runs[1], "OTHER": sample("healthy")}.get(word, word) for word in extra]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    ended, out, err = ddprof("verify", runs[0], *arguments[:at], "--out", str(tmp_path / "out"), *arguments[at:])
    assert (ended, out) == (code, "") and says in err
