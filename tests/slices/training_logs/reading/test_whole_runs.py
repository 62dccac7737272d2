"""Statements on the whole run: NCCL's own lines, benchmarks, totals, and a loss that is no number."""

from pathlib import Path

import pytest

from ddprof.readers.source import Source
from ddprof.slices.training_logs.findings.explain import explain_log


@pytest.mark.parametrize(
    ("lines", "sentence", "evidence"),
    [
        (("via NET/Socket/0", "NET/IB : No device found."), "by TCP (NET/Socket) on 50 %", "NET/IB : No device found"),
        (
            ("via SHM/direct/direct", "NCCL_P2P_DISABLE set by environment to 1"),
            "through the host's memory (SHM) on 50 %",
            "NCCL_P2P_DISABLE set by environment to 1",
        ),
        (("via NET/IB/1/GDRDMA", "NET/IB : No device found."), "Nothing in the log", None),
    ],
)
def test_channels_by_way_of_the_processor_are_told(
    tmp_path: Path, lines: tuple[str, str], sentence: str, evidence: str | None
) -> None:
    channels = "h:9:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\nh:9:9 [1] NCCL INFO Channel 00/0 : "
    file = tmp_path / "nccl.log"
    file.write_text(f"{channels}1[1] -> 2[0] [send] {lines[0]}\nh:9:9 [0] NCCL INFO {lines[1]}\n")
    report = explain_log(Source(str(file), "training_log"))
    assert report.sentence.startswith("NCCL joins 3 ranks by P2P (1 channel), ") and sentence in report.sentence
    assert [said for finding in report.findings for said in finding.evidence[1:]] == [evidence] * bool(evidence)


def test_what_nccl_tests_measured_and_what_nccl_warns_of_is_told(tmp_path: Path) -> None:
    file = tmp_path / "nccl.log"
    warning = "h:9:9 [6] ib.cc:100 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<5> with status=12\n"
    file.write_text(f"{warning}# Avg bus bandwidth    : 28.2632 \n")
    assert explain_log(Source(str(file), "training_log")).sentence == (
        "nccl-tests measured 28.3 GB/s of bus bandwidth. NCCL warns 1 time, first: NET/IB : Got completion from peer "
        "10.0.0.1<5> with status=12."
    )


def test_a_loss_that_is_no_number_is_told_where_it_stays_so(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for losses, told in ((("2.1",) * 6 + ("nan",) * 12, "in the last 12 lines"), (("nan",) * 12 + ("2.1",) * 6, "")):
        log.write_text("".join(f"step {n} | loss: {loss} | dt: 5.00ms | tok/sec: 9\n" for n, loss in enumerate(losses)))
        report = explain_log(Source(str(log), "training_log"))
        assert [told in finding.summary for finding in report.findings] == [True] * bool(told)


def mlperf(at_s: float, key: str, value: str = "null", metadata: str = "") -> str:
    return (
        f'[0] :::MLLOG {{"namespace": "", "time_ms": {at_s * 1e3:.0f}, "event_type": "POINT_IN_TIME", "key": "{key}", '
        f'"value": {value}, "metadata": {{"file": "a.py", "lineno": 1{metadata}}}}}\n'
    )


@pytest.mark.parametrize(
    ("stats", "iteration"),
    [
        ('{"train_step_timing": 1.6}', "An iteration takes 1.6 s. "),
        ('{"throughput": 320.0}', "An iteration takes 1.6 s. "),
    ],
)
def test_a_benchmark_states_its_run_its_evaluations_and_its_pace(tmp_path: Path, stats: str, iteration: str) -> None:
    events = [mlperf(0, "init_start"), mlperf(0, "init_start"), mlperf(30, "init_stop"), mlperf(30, "run_start")]
    events += [mlperf(30, "global_batch_size", "512"), mlperf(46, "tracked_stats", stats, ', "step_num": 10')]
    events += [mlperf(at, f"eval_{end}") for at, end in ((60, "start"), (65, "stop"), (90, "start"), (95, "stop"))]
    events += [mlperf(100, "run_stop", metadata=', "status": "success"')]
    events += [mlperf(at, f"eval_{end}") for at, end in ((160, "start"), (195, "stop"))]  # of what was saved
    file = tmp_path / "result_0.txt"
    file.write_text("".join(events))
    report = explain_log(Source(str(file), "training_log"))
    evaluation = "Evaluation takes 14 % of the run (2 times, 5 s each)"
    assert report.sentence == f"{iteration}{evaluation}."
    assert [f.summary for f in report.findings] == [evaluation, "The job takes 30 s to begin, 30 % of it"]
    file.write_text("".join(events).replace("success", "aborted").replace("tracked", "other"))
    sentence = explain_log(Source(str(file), "training_log")).sentence
    assert sentence.startswith("The log ends before the first iteration in its status: aborted. The run takes 70 s. ")


def test_totals_of_epochs_and_of_tests_are_the_run(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    line = "Epoch: [{e}]  [{n}/99]  eta: 0:01:00  loss: 6.9 (6.9)  time: 0.5000  data: 0.0010\n"
    epochs = ["".join(line.format(e=epoch, n=10 * at) for at in range(9)) for epoch in range(3)]
    totals = "Epoch: [{e}] Total time: 0:01:20 (0.5 s / it)\nTest: Total time: 0:00:20 (0.2 s / it)\n"
    file.write_text("".join(text + totals.format(e=epoch) for epoch, text in enumerate(epochs)))
    report = explain_log(Source(str(file), "training_log"))
    assert [finding.summary for finding in report.findings] == ["Evaluation takes 20 % of the run (3 times, 20 s each)"]


def test_what_passes_beside_the_steps_of_fairseq(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    line = (
        "| INFO | train_inner | epoch 001: {n} / 9999 loss=9.2, ups=3.5, num_updates={n}, train_wall={s}, wall={at}\n"
    )
    since = [
        (line.format(n=100 * at, s=13 * at, at=28 * at), line.format(n=100 * at, s=13, at=28 * at))
        for at in range(1, 9)
    ]
    for lines, told in (([new for _, new in since], ["54 % of the time passes"]), ([old for old, _ in since], [])):
        log.write_text("".join(lines))  # older releases print sums
        findings = explain_log(Source(str(log), "training_log")).findings
        assert [finding.summary[:23] for finding in findings] == told
