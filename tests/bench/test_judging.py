"""The arithmetic of the regression suite: what is right, how far a prediction is off."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.workload_pairs.execute import FinishedJob
from benchmarks.workload_pairs.judge import Judgement, judge, merged
from benchmarks.workload_pairs.pairs import QUICK, Job, Pair, contests, pairs
from benchmarks.workload_pairs.summary import kendall_tau, summarize
from benchmarks.workload_pairs.table import BEGIN, END, markdown, put_into
from ddprof.errors import UsageError
from ddprof.findings import Finding, Recoverable
from ddprof.report.model import Ledger, Replay, Report, RunInfo, Steps, Verdict
from ddprof.workloads.catalogue import WORKLOADS

PAIR = Pair(WORKLOADS["mnist_ddp"], "slow-host", "host")


def report(step_ms: float, *findings: Finding, unprofiled_ms: float | None = None) -> Report:
    bare_us = None if unprofiled_ms is None else unprofiled_ms * 1e3
    steps, verdict = Steps(12, "profiler_step", step_ms * 1e3, unprofiled_us=bare_us), Verdict("straggler", "")
    return Report(RunInfo(2, (0, 1)), steps, Ledger(), verdict, findings, replay=Replay(0.01))


def finding(rank: int, gain_ms: float) -> Finding:
    gain = Recoverable(gain_ms * 1e3, 0.9e3 * gain_ms, 1.1e3 * gain_ms)
    return Finding("straggler.host", "", (rank,), gain.value, gain, 0.9)


def outcome(fix: str, step_ms: float, told: Report | None, problem: str = "") -> FinishedJob:
    return FinishedJob(Job(PAIR.workload, PAIR.fault, fix), Path("run"), step_ms, told, problem)


def test_the_matrix_has_every_fix_and_only_takes_parts_of_it() -> None:
    matrix = pairs()
    assert len([p for p in matrix if p.truth.priced]) >= 40
    assert {p.workload.name for p in matrix} == set(WORKLOADS)
    assert not any(p.truth.needs == "cuda" for p in matrix)
    assert any(p.truth.needs == "cuda" for p in pairs(device="cuda"))
    assert {(p.workload.name, p.fault, p.fix) for p in pairs(quick=True)} == set(QUICK)
    names = [job.name for contest in contests(matrix) for job in contest]
    assert len(names) == len(set(names)) and set(WORKLOADS) <= {name.split(".")[0] for name in names}
    assert {p.workload.name for p in pairs(["gpt_fsdp2"])} == {"gpt_fsdp2"}
    assert [p.fixed.name for p in pairs(["mnist_ddp.checkpoint.async"])] == ["mnist_ddp.checkpoint.async"]
    saving = pairs(["mnist_ddp.checkpoint"])
    assert [p.fix for p in saving] == ["async", "never"]
    assert [[job.fix for job in contest] for contest in contests(saving)] == [["", "async", "never"]]
    with pytest.raises(UsageError, match="no such workload"):
        pairs(["vgg"])


def test_a_gain_holds_for_the_steps_without_profiler_where_they_are_timed() -> None:
    found = replace(finding(1, 50.0), unprofiled_us=Recoverable(48e3, 40e3, 56e3))
    told = report(125.0, found, unprofiled_ms=100.0)
    judged = judge(PAIR, outcome("", 110.0, told), outcome("host", 55.0, report(80.0)))
    assert judged.found and judged.leads and judged.gone
    assert judged.predicted_ms == pytest.approx(0.52 * 110.0)  # the machine is a tenth slower by then
    assert (judged.low_ms, judged.high_ms) == (pytest.approx(0.44 * 110.0), pytest.approx(0.60 * 110.0))
    assert judged.covered and judged.error == pytest.approx(abs(57.2 - 55.0) / 55.0)
    assert judged.traced_error == pytest.approx(5.0 / 80.0)
    assert judged.gains == (pytest.approx(0.48), pytest.approx(0.50))
    traced = judge(PAIR, outcome("", 150.0, report(125.0, finding(1, 50.0))), outcome("host", 90.0, report(80.0)))
    assert traced.predicted_ms == pytest.approx(150.0 * 0.6)


def test_the_wrong_rank_and_a_failed_run_are_not_right() -> None:
    wrong = judge(PAIR, outcome("", 100.0, report(125.0, finding(0, 50.0))), outcome("host", 62.0, report(80.0)))
    assert not wrong.found and wrong.error is None and wrong.also_said == ("straggler.host [0]",)
    failed = judge(PAIR, outcome("", 0.0, None, "exit code 1"), outcome("host", 62.0, report(80.0)))
    assert failed.problem == "exit code 1"
    figures = summarize([wrong, failed], ["mnist_ddp.none host.gc []"], 1)
    assert (figures["failed"], figures["found"], figures["sign_right"], figures["error_median"]) == (1, 0.0, 0.0, None)


def test_trials_are_merged_by_their_median() -> None:
    def trial(fixed_ms: float, rank: int = 1) -> Judgement:
        before = outcome("", 100.0, report(100.0, finding(rank, 40.0)))
        return judge(PAIR, before, outcome("host", fixed_ms, report(60.0)))

    assert merged([trial(58.0), trial(70.0), trial(61.0)]).fixed_ms == pytest.approx(61.0)
    assert not merged([trial(60.0), trial(60.0, rank=0)]).found


def test_kendall_tau_counts_pairs_in_order() -> None:
    assert kendall_tau([(0.1, 0.2), (0.2, 0.3), (0.3, 0.4)]) == pytest.approx(1.0)
    assert kendall_tau([(0.1, 0.2), (0.2, 0.1)]) == pytest.approx(-1.0) and kendall_tau([(0.1, 0.1)]) is None


def test_the_table_replaces_what_was_between_the_marks(tmp_path: Path) -> None:
    judged = judge(PAIR, outcome("", 100.0, report(125.0, finding(1, 50.0))), outcome("host", 52.0, report(80.0)))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    put_into(page, markdown([judged], summarize([judged], [], 1), "2026-01-01", "2 cores"))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| mnist_ddp, slow-host, host | straggler.host [1] | right | 100.0 ms |" in text
    assert "| 60.0 (56.0 to 64.0) ms | 52.0 ms | 15.4 % ! |" in text
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(UsageError):
        put_into(page, text)
