"""Pairs of runs: the arithmetic of what is right and how far a prediction is off; the fault is found with its rank, and
is gone with its fix. Recorded ones in the fast tests."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Model
from benchmarks.oracle.write import write
from benchmarks.workload_pairs import __main__ as cli
from benchmarks.workload_pairs.execute import MEASURED, FinishedJob, command
from benchmarks.workload_pairs.judge import Judgement, judge, merged
from benchmarks.workload_pairs.pairs import QUICK, Job, Pair, contests, pairs
from benchmarks.workload_pairs.summary import kendall_tau, summarize
from benchmarks.workload_pairs.table import BEGIN, END, markdown, put_into
from benchmarks.workload_pairs.turns import Turns
from ddprof.errors import UsageError
from ddprof.findings import Finding, Recoverable
from ddprof.report.model import Ledger, Replay, Report, RunInfo, Steps, Verdict
from ddprof.workloads.catalogue import WORKLOADS

PAIR, STORAGE = Pair(WORKLOADS["mnist_ddp"], "slow-host", "host"), "mnist_ddp.loader-straggler.storage"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


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
    assert len([p for p in matrix if p.truth.priced]) >= 40 and {p.workload.name for p in matrix} == set(WORKLOADS)
    assert [any(p.truth.needs == "cuda" for p in some) for some in (matrix, pairs(device="cuda"))] == [False, True]
    assert {(p.workload.name, p.fault, p.fix) for p in pairs(quick=True)} == set(QUICK)
    names = [job.name for contest in contests(matrix) for job in contest]
    assert len(names) == len(set(names)) and set(WORKLOADS) <= {name.split(".")[0] for name in names}
    assert {p.workload.name for p in pairs(["gpt_fsdp2"])} == {"gpt_fsdp2"}
    assert [p.fixed.name for p in pairs(["mnist_ddp.checkpoint.async"])] == ["mnist_ddp.checkpoint.async"]
    saving = contests(pairs(["mnist_ddp.checkpoint"]))
    assert [[job.fix for job in contest] for contest in saving] == [["", "async", "never"]]
    with pytest.raises(UsageError, match="no such workload"):
        pairs(["vgg"])


def test_a_gain_holds_for_the_steps_without_profiler_where_they_are_timed() -> None:
    found = replace(finding(1, 50.0), unprofiled_us=Recoverable(48e3, 40e3, 56e3))
    before = outcome("", 110.0, report(125.0, found, unprofiled_ms=100.0))
    judged = judge(PAIR, before, outcome("host", 55.0, report(80.0)))
    assert judged.found and judged.leads and judged.gone
    assert judged.predicted_ms == pytest.approx(0.52 * 110.0)  # the machine is a tenth slower by then
    assert (judged.low_ms, judged.high_ms) == pytest.approx((0.44 * 110.0, 0.60 * 110.0)) and judged.covered
    assert (judged.error, judged.traced_error) == pytest.approx((abs(57.2 - 55.0) / 55.0, 5.0 / 80.0))
    assert judged.gains == pytest.approx((0.48, 0.50))
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
    assert "| mnist_ddp, slow-host, host | straggler.host [1] | right | 100.0 |" in text
    assert "| 60.0 (56.0 to 64.0) | 52.0 | 15.4 % ! |" in text
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(UsageError):
        put_into(page, text)


@needs_torch
def test_a_recorded_pair_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pair,) = pairs([STORAGE])
    sizes: Any = {"ranks": 2, "steps": 4, "model": Model(layers=2, params_per_layer=3_000_000), "loader_us": 9_000.0}
    # Folders of jobs that have run: traces of two ranks and what each measured of itself.
    for job, step_ms, faults in ((pair.faulted, 90.0, [fault("input.straggler", 8.0, 1)]), (pair.fixed, 50.0, [])):
        write(simulate(small_run(*faults, **sizes)), tmp_path / "0" / job.name)
        (tmp_path / "0" / job.name / MEASURED).write_text(json.dumps(Turns(step_ms, [step_ms]).as_dict()))
    monkeypatch.setattr(cli, "_device", lambda: "cpu")
    results = tmp_path / "results.json"
    words = ["--only", STORAGE, "--reuse", "--out", str(tmp_path), "--results", str(results)]
    done = CliRunner().invoke(cli.command, words)
    assert done.exit_code == 0, done.output
    told_rightly(json.loads(results.read_text(encoding="utf-8")), done.stdout)


@needs_torch
def test_jobs_are_started_with_their_fault_and_fix(tmp_path: Path) -> None:
    (pair,) = pairs([STORAGE])
    faulted, fixed = (" ".join(command(job, tmp_path)) for job in (pair.faulted, pair.fixed))
    assert "--fault loader-straggler" in faulted and "--fix" not in faulted
    assert "--fault loader-straggler --fix storage" in fixed and f"ddprof.cli.main run --run-dir {tmp_path}" in fixed


def told_rightly(told: dict[str, Any], said: str) -> None:
    (pair,) = told["pairs"]
    assert pair["found"] and pair["gone"] and pair["gain_shares"][0] > 0 and pair["gain_shares"][1] > 0
    assert pair["replay_error"] < 0.05
    assert "| mnist_ddp, loader-straggler, storage | input.straggler [1] | right" in said


def bench(folder: Path, *arguments: str) -> tuple[Any, str]:
    """Judgements that the program writes of the pairs, which are all found, and what it prints."""
    results = folder / "results.json"
    words = ["--out", str(folder), "--results", str(results), *arguments]
    line = [sys.executable, "-m", "benchmarks.workload_pairs", *words]
    done = subprocess.run(line, cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, check=False)
    told = json.loads(results.read_text(encoding="utf-8"))
    assert [(pair["pair"], pair["said"]) for pair in told["pairs"] if not pair["found"]] == [], done.stderr
    return told, done.stdout


@pytest.mark.slow
@pytest.mark.torch
def test_the_quick_matrix(tmp_path: Path) -> None:
    told, said = bench(tmp_path, "--quick")
    assert told["summary"]["sign_right"] == 1.0
    told_rightly({"pairs": [pair for pair in told["pairs"] if "loader-straggler" in pair["pair"]]}, said)


@pytest.mark.slow
@pytest.mark.torch
def test_faults_of_a_real_pipeline(tmp_path: Path) -> None:
    """Their cost depends on how many cores the two stages have, so only causes and the replay are judged."""
    wanted = ("pipeline_1f1b.stage-imbalance.even", "pipeline_1f1b.few-microbatches.microbatches")
    told, _ = bench(tmp_path, *(f"--only={name}" for name in wanted))
    ranks = {pair["finding"]: pair["ranks"] for pair in told["pairs"]}
    assert ranks == {"pipeline.imbalance": [1], "pipeline.bubble": []} and told["summary"]["healthy_accused"] == []
    assert all(pair["replay_error"] < 0.05 for pair in told["pairs"])
