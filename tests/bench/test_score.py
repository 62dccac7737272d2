"""The score itself: what counts as found, as named, as false; and `ddprof dev score` around it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from labelled_runs import Runs

from ddprof.bench.score import Score, compare, labels, read_label, score_run
from ddprof.cli.score import SCHEMA, command
from ddprof.errors import NoUsableInput


def folder_of(labelled: Runs, name: str) -> Path:
    """The labelled folder of a run."""
    return labelled(name).traces.parent


def test_a_right_answer_counts_as_found(labelled: Runs) -> None:
    result = score_run(folder_of(labelled, "straggler.compute") / "label.json")
    assert result.right and result.found == (True,) and result.named == (True,) and result.false == ()


def test_the_wrong_rank_is_named_but_not_found(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    wrong = replace(run.report, findings=tuple(replace(f, ranks=(0,)) for f in run.report.findings))
    result = compare(run.name, run.label, wrong)
    assert (result.found, result.named, result.right) == ((False,), (True,), False)


def test_a_finding_no_fault_explains_is_false(labelled: Runs) -> None:
    clean, faulty = labelled("clean.ddp"), labelled("straggler.compute")
    result = compare(clean.name, clean.label, replace(clean.report, findings=faulty.report.findings))
    assert result.false == ("straggler.compute",)
    (row,) = Score((result,)).rows()
    assert (row["runs"], row["recall"], row["false"]) == (0, None, 1)
    assert Score((result,)).summary()["healthy_accused"] == 1


def test_a_silent_report_misses_the_fault(labelled: Runs) -> None:
    run = labelled("host.gc")
    result = compare(run.name, run.label, replace(run.report, findings=()))
    assert (result.found, result.named, result.headline_right) == ((False,), (False,), False)


def test_labels_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match=r"no label\.json"):
        labels(tmp_path)
    file = tmp_path / "label.json"
    for text in ("{", "[]", '{"clean": true}'):
        file.write_text(text)
        with pytest.raises(NoUsableInput, match=r"label\.json: not a label"):
            read_label(file)


def test_traces_that_cannot_be_read_are_a_problem_not_a_crash(labelled: Runs, tmp_path: Path) -> None:
    shutil.copy(folder_of(labelled, "host.gc") / "label.json", tmp_path / "label.json")
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "rank0.json").write_text("nothing")
    result = score_run(tmp_path / "label.json")
    assert result.problem and not result.right


def test_command_prints_a_table_or_json(labelled: Runs) -> None:
    folder = folder_of(labelled, "straggler.compute")
    text = CliRunner().invoke(command, [str(folder), "--workers", "1"])
    assert text.exit_code == 0
    assert "straggler.compute" in text.output and "100 %" in text.output and "not right" not in text.output
    document = json.loads(CliRunner().invoke(command, [str(folder), "--format", "json", "--workers", "1"]).output)
    assert document["schema"] == SCHEMA
    assert document["summary"]["faults_right"] == 1.0
    assert document["causes"][0]["cause"] == "straggler.compute"
    assert document["runs"][0]["right"] is True


def test_command_lists_what_is_not_right(labelled: Runs, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(folder_of(labelled, "clean.ddp"), folder)
    shutil.copy(folder_of(labelled, "host.gc") / "label.json", folder / "label.json")
    result = CliRunner().invoke(command, [str(tmp_path), "--workers", "1"])
    assert result.exit_code == 0
    assert "run: host.gc not found" in result.output
