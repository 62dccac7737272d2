"""`ddprof analyze`: documents, exit codes, gates."""

import dataclasses
import json
from pathlib import Path

import pytest

from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report


def test_text_answers_what_why_who_what_to_do_how_sure(ddprof, saved: Path) -> None:
    code, out, err = ddprof("analyze", str(saved))
    assert (code, err) == (0, "")
    answers = ("Largest saving: ", "rank 2", "input.straggler", "36 ms (", "per step", "num_workers: 0 -> 4")
    assert [words for words in (*answers, "high confidence") if words not in out] == []
    assert "Checked: 2 other causes, none found" in " ".join(out.split()) and "rank 3: the trace ends early" in out
    assert "see --all" in out and "memory.headroom" not in out
    for words in ("Checked, not found: host.gc, host.sync", "memory.headroom"):
        assert words in ddprof("analyze", str(saved), "--all")[1]
    assert "ddprof explain input.straggler" in out and "\x1b" not in out


def test_json_is_one_document_which_wraps_several_runs(ddprof, saved: Path, straggler_report: Report) -> None:
    code, out, err = ddprof("analyze", str(saved), "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads(json.dumps(to_contract(straggler_report)))
    _, out, _ = ddprof("analyze", str(saved), str(saved), "--format", "json")
    document = json.loads(out)
    assert document["schema"] == "ddprof.reports/1" and len(document["reports"]) == 2


def test_what_to_type_next_is_of_the_report_above_it(ddprof, saved: Path, tmp_path: Path) -> None:
    quiet = tmp_path / "quiet.json"
    quiet.write_text(json.dumps({**json.loads(saved.read_text(encoding="utf-8")), "findings": []}), encoding="utf-8")
    _, out, _ = ddprof("analyze", str(quiet), str(saved))
    assert out.count("Next: ddprof explain") == 1
    assert out.index("Findings: none") < out.index("Next: ddprof explain input.straggler")


def test_a_run_without_a_trace_window_says_so(ddprof, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema": "ddprof.run/1", "exit_code": 0}', encoding="utf-8")
    assert "the job ended before its first trace window closed" in ddprof("analyze", str(tmp_path))[2]


STARTS = {"x.json": "{", "x.md": "### Compute-bound", "x.txt": "mnist", "x.html": "<!doctype html>"}


@pytest.mark.parametrize("name", STARTS)
def test_a_files_suffix_chooses_the_format(ddprof, saved: Path, tmp_path: Path, name: str) -> None:
    code, out, err = ddprof("analyze", str(saved), "-o", str(tmp_path / "new" / name))
    assert (code, out) == (0, "") and (tmp_path / "new" / name).read_text().startswith(STARTS[name])
    assert "rank 2 is late" in err and not list((tmp_path / "new").glob(".*"))


def test_html_is_the_file_of_ddprof_report(ddprof, saved: Path, tmp_path: Path) -> None:
    analyzed, reported = tmp_path / "a.html", tmp_path / "r.html"
    assert ddprof("analyze", str(saved), "-o", str(analyzed))[0] == 0
    assert ddprof("report", str(saved), "-o", str(reported))[0] == 0
    assert analyzed.read_text() == reported.read_text() and 'id="findings"' in analyzed.read_text()


FAILS = ["warning", "critical", "input.*", "input.straggler", "*:info"]
FAILS += ["comm_wait>20%", "step>=100ms", "recoverable>30%"]
PASSES = ["comm.*", "host.*", "comm_wait>90%", "step>0.2s", "exposed_comm<1us", "idle>50%"]
UNREADABLE = ["wrning", "speed>3ms", "step>5%", "step>1.2.3ms", "comm_wait>20", ""]


@pytest.mark.parametrize("expression", [*FAILS, *PASSES, *UNREADABLE])
def test_a_gate_fails_with_3_after_the_report_and_with_2_where_it_cannot_be_read(ddprof, saved, expression) -> None:
    code, out, err = ddprof("analyze", str(saved), "--fail-on", expression)
    assert code == (2 if expression in UNREADABLE else 3 if expression in FAILS else 0)
    assert ("Largest saving: " in out) == (code != 2) and err.startswith("ddprof: gate failed: ") == (code == 3)
    assert code != 2 or (out, err.count("\n")) == ("", 1)


def test_strict_wants_every_rank(ddprof, tmp_path: Path, straggler_report: Report) -> None:
    run, file = dataclasses.replace(straggler_report.run, world_size=5, missing_ranks=(4,)), tmp_path / "saved.json"
    file.write_text(json.dumps(to_contract(dataclasses.replace(straggler_report, run=run))))
    assert ddprof("analyze", str(file))[0] == 0
    code, out, err = ddprof("analyze", str(file), "--strict")
    assert (code, err) == (4, "ddprof: --strict: mnist: no usable trace of rank 4\n") and "Largest saving: " in out


def test_what_is_damaged_or_missing_or_cannot_be_written_is_one_line(ddprof, saved: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"schema": "ddprof.report/1", "run": {')
    for path in (damaged, tmp_path / "absent"):
        code, out, err = ddprof("analyze", str(path))
        assert (code, out, err.count("\n")) == (4, "", 1) and str(path) in err
    code, _, err = ddprof("analyze", str(saved), "-o", f"{saved}/x.json")
    assert (code, err.count("\n")) == (2, 1)
