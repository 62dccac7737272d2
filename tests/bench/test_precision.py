"""Counting how often findings are right, and `python -m benchmarks.scoring --precision`."""

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from labelled_runs import Runs

from benchmarks.scoring.__main__ import command
from benchmarks.scoring.precision import precision
from benchmarks.scoring.score import compare
from ddprof.analyzers.trust.precision import Tally, read


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
    assert table.doubts == {"one_step": Tally(1, 0), "missing_ranks": Tally(1, 0)}
    assert table.undoubted == Tally()


def test_the_scorer_writes_the_table(labelled: Runs, tmp_path: Path) -> None:
    folder, file = labelled("host.gc").traces.parent, tmp_path / "precision.json"
    result = CliRunner().invoke(command, [str(folder), str(folder), "--workers", "1", "--precision", str(file)])
    assert result.exit_code == 0, result.output
    table = read(file)
    assert table.runs == {folder.name: 2} and table.findings["host.gc"]["recorded"] == Tally(2, 2)
    assert table.measured
