"""The score itself: what counts as found, as named, as false; and `python -m benchmarks.scoring` around it,
with `--precision`: how often findings are right."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from labelled_runs import Runs

from benchmarks.scoring.__main__ import SCHEMA, as_text, command, fault_text
from benchmarks.scoring.precision import precision
from benchmarks.scoring.run_score import RunScore
from benchmarks.scoring.score import Score, compare, labels, read_label, score_run
from ddprof.analyzers.trust.confidence import Tally, read
from ddprof.errors import NoUsableInput

# Labelled messy runs made by others: what came out right once stays right.
RIGHT = (
    "03_clean_fsdp4_ahead", "08_slowgpu_ddp4_ahead", "09_starved_ddp2_ahead_compiled_nested",
    "10_loaderstrag_fsdp4_foreign_partial", "13_imbalance_ddp8_shifted_varlen", "16_cpustalls_small4_nomarks_stacks",
    "18_clean_small4_accum_lost",
)  # fmt: skip


def folder_of(labelled: Runs, name: str) -> Path:
    return labelled(name).traces.parent


def test_found_is_the_right_rank_and_named_the_right_finding(labelled: Runs) -> None:
    result = score_run(folder_of(labelled, "straggler.compute") / "label.json")
    assert result.right and result.found == result.named == (True,) and result.false == ()
    run = labelled("straggler.compute")
    wrong = replace(run.report, findings=tuple(replace(f, ranks=(0,)) for f in run.report.findings))
    result = compare(run.name, run.label, wrong)
    assert (result.found, result.named, result.right) == ((False,), (True,), False)


def test_every_run_of_a_folder_is_judged_and_independent_ones_are_not_one_job(labelled: Runs) -> None:
    clean, faulty = labelled("clean.ddp"), labelled("straggler.compute")
    label = {**clean.label, "independent_runs": 2}
    alike = compare(clean.name, label, clean.report, clean.report)
    assert (alike.problem != "", alike.bound_right, alike.false) == (False, True, ())
    mixed = compare(clean.name, label, clean.report, faulty.report)
    assert mixed.false == ("straggler.compute",) and not mixed.bound_right
    assert mixed.wall_error is not None and alike.wall_error is not None and mixed.wall_error > alike.wall_error
    first = replace(clean.report, run=replace(clean.report.run, ranks=(0,)))
    part = compare(faulty.name, faulty.label, first, faulty.report)
    whole = compare(faulty.name, faulty.label, faulty.report)
    assert (part.found, part.wall_error, part.bound_right) == (whole.found, whole.wall_error, whole.bound_right)
    label["mess"] = ["unrelated"]
    mixed = compare(clean.name, label, clean.report)
    assert not mixed.right and "2 independent runs, taken for a job of 4 ranks" in fault_text(mixed)
    assert compare(clean.name, label, clean.report, clean.report).right and mixed.wall_error is not None
    assert compare(clean.name, {**label, "skip_numbers": True}, clean.report).wall_error is None


def test_the_first_fix_is_judged_where_the_label_says_which_helps(labelled: Runs) -> None:
    run = labelled("three units a layer")
    assert run.score.fixes == (True,)
    (finding, *others) = run.report.findings
    other = replace(finding, fixes=(replace(finding.fixes[0], setting="reshard_after_forward"),))
    wrong = compare(run.name, run.label, replace(run.report, findings=(other, *others)))
    assert (wrong.fixes, wrong.found, wrong.right) == ((False,), (True,), True)
    assert Score((wrong, run.score)).summary()["first_fix_right"] == 0.5
    assert labelled("straggler.compute").score.fixes == (None,)


def test_a_finding_no_fault_explains_is_false_and_a_silent_report_misses_the_fault(labelled: Runs) -> None:
    clean, faulty, run = labelled("clean.ddp"), labelled("straggler.compute"), labelled("host.gc")
    accused = compare(clean.name, clean.label, replace(clean.report, findings=faulty.report.findings))
    (row,) = Score((accused,)).rows()
    assert (row["runs"], row["recall"], row["false"], accused.false) == (0, None, 1, ("straggler.compute",))
    assert Score((accused,)).summary()["healthy_accused"] == 1
    silent = compare(run.name, run.label, replace(run.report, findings=()))
    assert (silent.found, silent.named, silent.headline_right) == ((False,), (False,), False)


def test_labels_that_are_none_are_named_and_unreadable_traces_a_problem(labelled: Runs, tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match=r"no label\.json"):
        labels(tmp_path)
    file = tmp_path / "label.json"
    for text in ("{", "[]", '{"clean": true}'):
        file.write_text(text)
        with pytest.raises(NoUsableInput, match=r"label\.json: not a label"):
            read_label(file)
    shutil.copy(folder_of(labelled, "host.gc") / "label.json", file)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "rank0.json").write_text("nothing")
    result = score_run(file)
    assert result.problem and not result.right


def test_command_prints_a_table_or_json_and_lists_what_is_not_right(labelled: Runs, tmp_path: Path) -> None:
    folder = folder_of(labelled, "straggler.compute")
    text = CliRunner().invoke(command, [str(folder), "--workers", "1"])
    assert text.exit_code == 0
    assert "straggler.compute" in text.output and "100 %" in text.output and "not right" not in text.output
    document = json.loads(CliRunner().invoke(command, [str(folder), "--format", "json", "--workers", "1"]).output)
    assert document["schema"] == SCHEMA and document["summary"]["faults_right"] == 1.0
    assert document["causes"][0]["cause"] == "straggler.compute" and document["runs"][0]["right"] is True
    folder = shutil.copytree(folder_of(labelled, "clean.ddp"), tmp_path / "run")
    shutil.copy(folder_of(labelled, "host.gc") / "label.json", folder / "label.json")
    result = CliRunner().invoke(command, [str(tmp_path), "--workers", "1"])
    assert result.exit_code == 0 and "run: host.gc not found" in result.output


def test_a_mess_has_a_row_and_a_corpus_without_has_none(labelled: Runs) -> None:
    clean, faulty = labelled("clean.ddp"), labelled("straggler.compute")
    cold = {**clean.label, "mess": ["cold"], "forbidden_ids": ["straggler.compute"], "accept_step_us": [1e3]}
    accused = compare(clean.name, cold, replace(clean.report, findings=faulty.report.findings))
    right = compare(faulty.name, {**faulty.label, "mess": ["cold", "lost"], "skip_ledger": True}, faulty.report)
    row, lost = Score((accused, right)).messes()
    assert (row["mess"], row["runs"], row["right"], row["healthy"], row["accused"]) == ("cold", 2, 0.5, 1, 1)
    assert row["forbidden"] == 1 and (lost["mess"], lost["runs"], lost["right"]) == ("lost", 1, 1.0)
    assert right.ledger_error is None and right.gain_error is not None and right.gain_error < 0.02
    assert accused.wall_error is not None and accused.wall_error > 1 and "forbidden" in fault_text(accused)
    text = as_text(Score((accused, right)))
    assert "forbidden" in text and "cold" in text and "step off by" in text
    result = Score((score_run(folder_of(labelled, "straggler.compute") / "label.json"),))
    assert result.messes() == [] and "mess" not in as_text(result)


def test_a_gain_inside_the_true_range_is_no_error(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    (fault,) = run.label["faults"]
    for high_us, error in ((1e9, 0.0), (0.0, pytest.approx(fault["share"], rel=0.05))):
        ranged = {**run.label, "faults": [{**fault, "recoverable_range_us": [0.0, high_us]}]}
        assert compare(run.name, ranged, run.report).gain_error == error


def test_true_findings_with_the_right_ranks_are_right_and_doubts_are_counted_apart(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    wrong = replace(run.report, findings=tuple(replace(f, ranks=(0,)) for f in run.report.findings))
    scores = [compare(run.name, run.label, report) for report in (run.report, run.report, wrong)]
    table = precision({"a": scores[:1], "b": scores[1:]}, "2026-11-23")
    assert table.runs == {"a": 1, "b": 2} and table.findings["straggler.compute"]["compared"] == Tally(3, 2)
    assert table.undoubted == sum((t for row in table.findings.values() for t in row.values()), Tally())
    run, clean = labelled("host.gc"), labelled("clean.ddp")
    doubted = tuple(replace(f, doubts=("one_step", "missing_ranks")) for f in run.report.findings)
    table = precision({"a": [compare(clean.name, clean.label, replace(clean.report, findings=doubted))]}, "")
    assert (table.doubts, table.undoubted) == ({"one_step": Tally(1, 0), "missing_ranks": Tally(1, 0)}, Tally())


def test_the_scorer_writes_the_table(labelled: Runs, tmp_path: Path) -> None:
    folder, file = folder_of(labelled, "host.gc"), tmp_path / "precision.json"
    result = CliRunner().invoke(command, [str(folder), str(folder), "--workers", "1", "--precision", str(file)])
    assert result.exit_code == 0, result.output
    table = read(file)
    assert table.runs == {folder.name: 2} and table.findings["host.gc"]["recorded"] == Tally(2, 2) and table.measured


@pytest.fixture(scope="module")
def scores(shared_dir: Path) -> dict[str, RunScore]:
    folder = shared_dir / "wild" / "labelled"
    if not folder.is_dir():
        pytest.skip("the labelled messy runs are not among the real traces")
    return {path.parent.name: score_run(path) for path in labels(folder)}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_stays_right(scores: dict[str, RunScore], name: str) -> None:
    assert scores[name].right, scores[name]


def test_every_mess_has_a_row(scores: dict[str, RunScore]) -> None:
    rows = {row["mess"]: row for row in Score(tuple(scores.values())).messes()}
    assert {"cold", "prof", "ahead", "rdv", "lost", "unrelated", "truncated"} <= set(rows)
    assert sum(bool(run.mess) for run in scores.values()) == len(scores)
    assert not any(run.problem and "independent" not in run.problem for run in scores.values())
