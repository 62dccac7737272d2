"""Statements on the whole run: NCCL's own lines, benchmarks, totals, and a loss that is no number."""

from pathlib import Path

import pytest

from tests.slices.training_logs.reading.test_read import explained

NO_P2P, NO_IB = "NCCL_P2P_DISABLE set by environment to 1", "NET/IB : No device found"
CHANNELS = [
    ("via NET/Socket/0", f"{NO_IB}.", "by TCP (NET/Socket) on 50 %", [NO_IB]),
    ("via SHM/direct/direct", NO_P2P, "through the host's memory (SHM) on 50 %", [NO_P2P]),
    ("via NET/IB/1/GDRDMA", f"{NO_IB}.", "Nothing in the log", []),
]


@pytest.mark.parametrize(("via", "said", "sentence", "evidence"), CHANNELS)
def test_channels_through_the_host_are_told(tmp_path: Path, via: str, said: str, sentence: str, evidence) -> None:
    channels = "h:9:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\nh:9:9 [1] NCCL INFO Channel 00/0 : "
    report = explained(tmp_path, f"{channels}1[1] -> 2[0] [send] {via}\nh:9:9 [0] NCCL INFO {said}\n")
    assert report.sentence.startswith("NCCL joins 3 ranks by P2P (1 channel), ") and sentence in report.sentence
    assert [said for finding in report.findings for said in finding.evidence[1:]] == evidence


def test_a_loss_that_is_no_number_is_told_where_it_stays_so(tmp_path: Path) -> None:
    broken, mended = ("2.1",) * 6 + ("nan",) * 12, ("nan",) * 12 + ("2.1",) * 6
    by_norm = (f"2.1 | grad_norm: {norm}" for norm in broken)
    for losses, told in ((broken, "in the last 12 lines"), (by_norm, "in the last 12 lines"), (mended, "")):
        lines = (f"step {n} | loss: {loss} | dt: 5.00ms | tok/sec: 9\n" for n, loss in enumerate(losses))
        findings = explained(tmp_path, "".join(lines)).findings
        assert [told in finding.summary for finding in findings] == [True] * bool(told)


def mlperf(at_s: float, key: str, value: str = "null", metadata: str = "") -> str:
    return (
        f'[0] :::MLLOG {{"namespace": "", "time_ms": {at_s * 1e3:.0f}, "event_type": "POINT_IN_TIME", "key": "{key}", '
        f'"value": {value}, "metadata": {{"file": "a.py", "lineno": 1{metadata}}}}}\n'
    )


@pytest.mark.parametrize("stats", ['{"train_step_timing": 1.6}', '{"throughput": 320.0}'])
def test_a_benchmark_states_its_run_its_evaluations_and_its_pace(tmp_path: Path, stats: str) -> None:
    events = [mlperf(0, "init_start"), mlperf(0, "init_start"), mlperf(30, "init_stop"), mlperf(30, "run_start")]
    events += [mlperf(30, "global_batch_size", "512"), mlperf(46, "tracked_stats", stats, ', "step_num": 10')]
    events += [mlperf(at, f"eval_{end}") for at, end in ((60, "start"), (65, "stop"), (90, "start"), (95, "stop"))]
    events += [mlperf(100, "run_stop", metadata=', "status": "success"')]
    events += [mlperf(at, f"eval_{end}") for at, end in ((160, "start"), (195, "stop"))]  # of what was saved
    report = explained(tmp_path, "".join(events))
    evaluation = "Evaluation takes 14 % of the run (2 times, 5 s each)"
    assert report.sentence == f"An iteration takes 1.6 s. {evaluation}."
    assert [f.summary for f in report.findings] == [evaluation, "The job takes 30 s to begin, 30 % of it"]
    ended = explained(tmp_path, "".join(events).replace("success", "aborted").replace("tracked", "other")).sentence
    assert ended.startswith(
        "The log ends in its status: aborted; ddprof finds no iteration in it. The run takes 70 s. "
    )


def test_totals_of_epochs_and_of_tests_are_the_run(tmp_path: Path) -> None:
    line = "Epoch: [{e}]  [{n}/99]  eta: 0:01:00  loss: 6.9 (6.9)  time: 0.5000  data: 0.0010\n"
    epochs = ["".join(line.format(e=epoch, n=10 * at) for at in range(9)) for epoch in range(3)]
    totals = "Epoch: [{e}] Total time: 0:01:20 (0.5 s / it)\nTest: Total time: 0:00:20 (0.2 s / it)\n"
    report = explained(tmp_path, "".join(text + totals.format(e=epoch) for epoch, text in enumerate(epochs)))
    assert [finding.summary for finding in report.findings] == ["Evaluation takes 20 % of the run (3 times, 20 s each)"]


@pytest.mark.parametrize(("is_sum", "told"), [(False, ["54 % of the time passes"]), (True, [])], ids=["now", "once"])
def test_what_passes_beside_the_steps_of_fairseq(tmp_path: Path, is_sum: bool, told: list[str]) -> None:
    line = "| train_inner | epoch 001: {n}00 / 9999 loss=9.2, ups=3.5, num_updates={n}00, train_wall={s}, wall={at}\n"
    lines = (line.format(n=n, s=13 * n if is_sum else 13, at=28 * n) for n in range(1, 9))
    assert [finding.summary[:23] for finding in explained(tmp_path, "".join(lines)).findings] == told
