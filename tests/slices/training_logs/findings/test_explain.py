"""Explanations of logs: of real ones, and of made ones whose truth is known."""

from pathlib import Path

import pytest

from ddprof.readers.source import Source
from ddprof.report.log_reading import fenced
from ddprof.slices.training_logs import model
from ddprof.slices.training_logs.findings.explain import explain_log, explain_tables
from ddprof.slices.training_logs.model import LoggedCalls, LoggedIteration, LoggedStraggling, LogReport, TrainingLog
from ddprof.slices.training_logs.reading.loops import WRITER
from ddprof.slices.training_logs.text import logs_document, render_log
from tests.slices.training_logs.reading.test_read import explained

Times = dict[int, list[float]]  # of a rank: ms
SAMPLES = Path(__file__).parents[1] / "samples"
ALONE = {"world": 4, "tensor": 1, "pipeline": 1, "context": 1, "data": 4}
EVEN = tuple(LoggedIteration(number, 1000.0, 100.0, 64) for number in range(1, 21))
TURNS: Times = {rank: [300.0 + (100.0 if n % 4 == rank else 0.0) for n in range(20)] for rank in range(4)}
STAGES, PAIRS = {**ALONE, "pipeline": 2}, {**ALONE, "tensor": 2, "data": 2}
FACTORS = {"all_reduce": 2 * 7 / 8, "reduce_scatter_tensor": 7 / 8, "all_to_all_single": 7 / 8, "send": 1.0}
BETWEEN_EPOCHS = [
    ("time: 0.1000", 6, "5 pauses between iterations cost 24 % of the time"),
    ("", 6, "5 pauses between iterations cost 24 % of the time"),  # only the clock tells
    ("batch: 400/400 time: 0.1000", 6, "5 pauses between iterations cost 27 % of the time"),
    ("time: 0.1000", 1, ""),  # as often as the same is started anew, days apart
]
SECOND = " iteration        {n}/ 9 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0 |\n"


def of_sample(name: str) -> LogReport:
    return explain_log(Source(str(SAMPLES / f"{name}.log"), "training_log"))


def of_timers(timers: dict[str, tuple[float, float]], sizes: dict[str, int] | None = None) -> LogReport:
    readings = tuple(model.TimerReading(name, longest, least, True) for name, (least, longest) in timers.items()) * 5
    return explain_tables(TrainingLog("a.log", ("Megatron",), EVEN, readings, sizes=sizes or {}))


def of_blocks(rows: list[tuple[int, int, float]], sizes: dict[str, int]) -> LogReport:
    by_rank = tuple(model.RankReading("forward-compute", *row) for row in rows)
    return explain_tables(TrainingLog("a.log", ("Megatron",), EVEN, by_rank=by_rank, sizes=sizes))


def of_ranks(times: Times, sizes: dict[str, int]) -> LogReport:
    return of_blocks([(block, rank, ms) for rank, of in times.items() for block, ms in enumerate(of, start=1)], sizes)


def test_blocks_that_lost_lines_of_different_ranks_are_left_out() -> None:
    rows = [(block, rank, 100.0 + 50.0 * (rank == 0)) for block in range(1, 21) for rank in range(4)]
    for lossy, told in ((6, 1), (21, 0)):  # blocks below `lossy` lack a line
        kept = [row for row in rows if row[0] >= lossy or row[1] != row[0] % 4]
        assert [finding.ranks for finding in of_blocks(kept, ALONE).findings] == [(0,)] * told


def test_the_usual_iteration_leaves_the_first_out_and_slow_ones_are_told_by_number_and_cost() -> None:
    report = of_sample("megatron_deepspeed_aurora")
    assert report.iterations is not None and report.iterations.median_ms == 20298.3
    rows = {row.name: row for row in report.timers}
    assert rows["fwd"].share == pytest.approx(4022.73 / 20298.3)
    assert (rows["bwd_inner"].depth, rows["bwd"].depth, rows["optimizer_allgather"].depth) == (1, 0, 1)
    report = of_sample("megatron_gpt2")
    finding, pause = report.findings
    assert finding.id == "uneven_iterations" and "190 (1.27 s)" in finding.evidence[0]
    assert (pause.id, pause.severity) == ("pauses", "info") and "210 (3.68 s)" in pause.evidence[0]  # a validation
    assert report.iterations is not None and report.iterations.every == 10


def test_outermost_timers_and_the_rest_are_the_iteration_unless_they_hold_several() -> None:
    timers = {"forward-backward": (790.0, 800.0), "forward-compute": (290.0, 300.0), "backward-compute": (390.0, 400.0)}
    timers |= {"batch-generator": (1.0, 1.0), "optimizer": (100.0, 100.0), "optimizer-inner-step": (60.0, 60.0)}
    report = of_timers(timers)
    depths = {"forward-backward": 0, "backward-compute": 1, "forward-compute": 1, "batch-generator": 2}
    depths |= {"optimizer": 0, "optimizer-inner-step": 1}
    assert {row.name: row.depth for row in report.timers} == depths
    assert sum(row.share or 0 for row in report.timers if row.depth == 0) == pytest.approx(0.9)
    assert "(in no timer)" in render_log(report) and report.findings == ()
    report = of_sample("deepspeed_pipeline")
    assert sum(row.share or 0 for row in report.timers if row.depth == 0) == pytest.approx(1)
    assert any("more than one iteration takes" in said for said in report.abstained)


def test_what_the_loader_takes_is_data_loading_and_not_the_passes_fault() -> None:
    report = of_timers({"forward-backward": (880.0, 900.0), "batch-generator": (300.0, 333.0)})
    (finding,) = [f for f in report.findings if f.id == "data_loading"]
    assert (finding.severity, finding.share, finding.page) == ("critical", pytest.approx(0.333), "input_starved")
    assert "Loading data takes 33 % of an iteration" in report.sentence
    timers = {"forward-backward": (880.0, 900.0), "forward-compute": (300.0, 420.0), "batch-generator": (1.0, 121.0)}
    report = of_timers(timers, ALONE)
    assert {f.id for f in report.findings if f.severity != "info"} == {"data_loading"}
    assert [f.summary for f in report.findings if f.id == "ranks_apart" and "forward-compute" in f.summary] == []


def test_exposed_communication_counts_once_and_most_of_it_may_be_waiting() -> None:
    (finding,) = of_sample("megatron_t5_2021").findings
    assert finding.id == "exposed_communication" and finding.share == pytest.approx(0.51, abs=0.02)
    nested = of_timers({"backward-reduce-model-grads": (50.0, 200.0), "backward-params-all-reduce": (50.0, 190.0)})
    (finding,) = nested.findings
    assert finding.share == pytest.approx(0.2)
    assert any("up to 150 ms of it is waiting" in told for told in finding.evidence)
    for calls_ms, iterations, severity in (((12.0, 48.0), (), "info"), ((1000.0, 4000.0), EVEN, "critical")):
        straggling = (LoggedStraggling("all_reduce", 2048, 10, *calls_ms),)
        (finding,) = explain_tables(TrainingLog("a.log", ("DeepSpeed",), iterations, straggling=straggling)).findings
        assert (finding.id, finding.severity, finding.ranks, finding.share) == ("waiting", severity, (), 0.8)


def test_a_rank_that_waits_for_other_stages_is_no_slow_communication(tmp_path: Path) -> None:
    sizes = {"micro_batch_size": 1, "global_batch_size": 4, "pipeline_model_parallel_size": 8}
    states = "".join(f"  {name} ........ {size}\n" for name, size in sizes.items())
    timers = "time (ms) | forward-compute: 90.00 | forward-recv: 240.00 | backward-embedding-all-reduce: 600.00\n"
    (finding,) = explained(tmp_path, states + "".join(SECOND.format(n=n) + timers for n in range(1, 6))).findings
    assert (finding.id, finding.share, finding.page) == ("pipeline_waiting", pytest.approx(0.84), "pipeline_bubble")
    assert "8 stages with 4 micro-batches stand idle for 64 %" in finding.evidence[-1]
    of_all = of_timers({"forward-recv": (1.0, 240.0), "backward-embedding-all-reduce": (1.0, 600.0)}, STAGES)
    assert [finding.id for finding in of_all.findings] == ["exposed_communication"]  # the longest, each of another rank


def test_parts_of_the_passes_and_the_setup_of_2021_are_not_added_to_the_iteration(tmp_path: Path) -> None:
    setup = "time (ms) | model and optimizer: 11310.53 | train/valid/test data iterators: 3400.00\n"
    timers = "time (ms) | forward: 280.00 | backward: 710.00 | backward-backward: 700.00 | batch generator: 2.00\n"
    report = explained(tmp_path, setup + "".join(SECOND.format(n=n) + timers for n in range(1, 6)))
    wanted = [("backward", 0, 0.71), ("backward-backward", 1, 0.7), ("forward", 0, 0.28), ("batch-generator", 1, 0.002)]
    told = [(row.name, row.depth, row.share) for row in report.timers]
    assert told == [(name, depth, pytest.approx(share)) for name, depth, share in wanted]


def titan(folder: Path, mfu: str = "45.00", retries: int = 0) -> LogReport:
    """A log of torchtitan, nine lines, one every ten steps of one second."""
    text = ""
    for n in range(1, 10):
        at = f"[rank0]:[titan] 2026-01-02 03:{n // 6:02d}:{n % 6 * 10:02d},000 - root - "
        text += f"{at}WARNING - {n * retries} CUDA memory allocation retries.\n" * bool(retries)
        text += f"{at}INFO - step: {n}0  loss: 5.0  memory: 29.9GiB(95.36%)  tps: 6,227  tflops: 17.8  mfu: {mfu}%\n"
    return explained(folder, text)


def test_a_devices_full_memory_and_low_rate_are_told_and_a_rate_that_cannot_be_is_not(tmp_path: Path) -> None:
    assert titan(tmp_path).findings == ()
    report = titan(tmp_path, "5.78", retries=20)
    assert [(f.id, f.severity) for f in report.findings] == [("memory_full", "warning"), ("low_rate", "warning")]
    assert "asked again 180 times in 80 iterations, with 95 % of their memory in use" in report.sentence
    assert titan(tmp_path, retries=2).findings == ()  # not in each iteration
    wrong = titan(tmp_path, "15233.49")
    assert wrong.iterations is not None and wrong.iterations.tflops is None and wrong.findings == ()
    assert any("an mfu of 15233 % cannot be" in said for said in wrong.abstained)
    for last, told in ((32, []), (40, ["skipped_steps"])):  # the scale of the loss is looked for
        text = "".join(SECOND.format(n=n) + f"[Rank 0] step={n}, skipped={n - 1}, lr=[0.0]\n" for n in (9, 20, last))
        assert [finding.id for finding in explained(tmp_path, text).findings] == told


def stepping(folder: Path, *steps: tuple[int, int]) -> LogReport:
    """A log of torchtitan with a line for each (second, step)."""
    at = "[titan] 2026-01-02 {:02d}:{:02d}:{:02d},000 - root - INFO - step: {}  loss: 5.0  tps: 26  tflops: 9.00\n"
    return explained(folder, "".join(at.format(s // 3600, s // 60 % 60, s % 60, step) for s, step in steps))


def test_a_job_that_went_back_did_iterations_again_and_waited_for_none_of_them(tmp_path: Path) -> None:
    first = [(30 * n, 500 + n) for n in range(1, 61)]
    again = [(4000 + 30 * n, 530 + n) for n in range(1, 61)]  # from the checkpoint of step 530
    (finding,) = stepping(tmp_path, *first, *again).findings
    assert finding.id == "restarts" and finding.share == pytest.approx(29 / 118, abs=0.01)
    assert "went back to a checkpoint 1 time and did 29 iterations again" in finding.summary
    other = [(4000 + 30 * n, n) for n in range(1, 61)]  # a run of its own, from the first step
    assert stepping(tmp_path, *first, *other).findings == ()
    first = [(30 * n, n) for n in range(1, 61)]
    assert stepping(tmp_path, *first, *other).findings == ()  # alike: no time is mixed of two
    (finding,) = stepping(tmp_path, *first, *((4000 + 50 * n, n) for n in range(1, 31))).findings
    assert finding.id == "runs" and "from the start 2 times, and they take 30 s to 50 s" in finding.summary
    line = "Epoch: [{}][{:4d}/60]\tTime {} (0.3)\tLoss 6.9\n"  # a run whose epochs are of unlike pace
    rows = (line.format(n // 60, n % 60, 0.4 + 0.02 * (n // 60)) for n in range(120))
    assert [(f.id, f.severity) for f in explained(tmp_path, "".join(rows)).findings] == [("runs", "info")]


def test_the_bars_of_many_ranks_in_one_file_are_those_of_one(tmp_path: Path) -> None:
    bars = ["***** Running training *****  Total optimization steps = 9"]
    for first in (1, 6):  # four bars come together, each rank's behind the one before, and a fifth rank's last
        for rank in range(4):
            span = range(first, min(10, first + 5))
            bars += [f" {n}%|█▏ | {n}/9 [{2 * n:02d}:{rank:02d}<09:00, 120.{rank}{n}s/it]" for n in span]
    bars += [f" {n}%|█▏ | {n}/9 [{2 * n:02d}:04<09:00, 120.4{n}s/it]" for n in range(1, 10)]
    report = explained(tmp_path, "\n".join([*bars, ""]))
    assert report.iterations is not None and report.iterations.lines == 8 and report.findings == ()
    assert report.iterations.median_ms == pytest.approx(120_000, rel=0.01)


def test_of_two_jobs_that_write_one_log_the_longer_is_read(tmp_path: Path) -> None:
    long, short = [(30 * n, 100 + n) for n in range(1, 81)], [(30 * n + 7, 20 + n) for n in range(1, 41)]
    report = stepping(tmp_path, *sorted(long + short))
    (finding,) = report.findings
    assert report.iterations is not None and "2 jobs or more wrote the log at the same time" in finding.summary
    assert (report.iterations.median_ms, report.iterations.high_ms) == (30_000.0, 30_000.0)


@pytest.mark.parametrize(
    ("slow", "told"), [(6, True), (30, True), (54, True), (0, False)], ids=["late", "half", "soon", "never"]
)
def test_a_run_that_became_slow_is_told_so_however_much_of_it_is_slow(tmp_path: Path, slow: int, told: bool) -> None:
    line = " iteration {:8d}/ 900 | elapsed time per iteration (ms): {} | lm loss: 2.5 |\n"
    rows = (line.format(n, 1000 + 7 * (n % 5) + 500 * (n > 60 - slow)) for n in range(1, 61))
    found = [finding for finding in explained(tmp_path, "".join(rows)).findings if finding.id == "slower_since"]
    assert [f"From iteration {61 - slow} " in finding.summary for finding in found] == [True] * told


@pytest.mark.parametrize("as_printed", [True, False], ids=["means since the epoch began", "means of something else"])
def test_means_behind_the_times_say_what_lies_between_two_lines(tmp_path: Path, as_printed: bool) -> None:
    """PyTorch's ImageNet example prints one iteration of 50 and the mean since the epoch began; here every second one
    waits 3.9 s for its batch, and none of those that are printed."""
    lines = []
    for epoch in range(3):
        spent = waited = 0.0
        for at in range(196):
            wait = 37.2 if at == 0 else 3.9 if at % 2 else 0.01
            waited, spent = waited + wait, spent + wait + 0.12
            of = (spent, waited) if as_printed else (9.0 * (at + 1), 8.0 * (at + 1))
            means = [f"({total / (at + 1):.3f})" for total in of]
            row = f"Time {wait + 0.12:.3f} {means[0]}\tData {wait:.3f} {means[1]}\tLoss 6.9 (6.9)\n"
            lines += [f"Epoch: [{epoch}][{at}/196]\t{row}"] if at % 50 == 0 else []
    report = explained(tmp_path, "".join(lines))
    assert report.iterations is not None
    assert report.iterations.median_ms == pytest.approx(2_075 if as_printed else 130, rel=0.02)
    ranks = [f"[rank{rank}]: {row}".replace("Data 0.0", f"Data {rank}.0") for row in lines for rank in range(2)]
    of_ranks = explained(tmp_path, "".join(ranks))  # whose lines no mean of one of them stands for
    assert of_ranks.iterations is not None and of_ranks.iterations.median_ms == pytest.approx(130, rel=0.02)
    said = [finding.summary for finding in report.findings]
    assert any("Loading data takes 94 % of an iteration" in text for text in said) is as_printed


def test_a_run_that_becomes_slow_and_pauses_that_no_printed_time_holds(tmp_path: Path) -> None:
    slow = tuple(LoggedIteration(n, 10_000.0 + n % 7 + 5000.0 * (n > 950)) for n in range(1, 1001))
    report = explain_tables(TrainingLog("a.log", ("Megatron",), slow))
    assert [finding.id for finding in report.findings] == ["slower_since"]
    assert "From iteration 951 to the end of the log one takes 15 s, 10 s before" in report.sentence
    grown = tuple(LoggedIteration(n, 30.0 + n % 3 + n // 40) for n in range(1, 1201))
    said = "Iterations become longer: 36 ms in the first third of the log, then 46 ms, 56 ms in the last"
    assert said in explain_tables(TrainingLog("a.log", (WRITER,), grown)).sentence
    text, at = "", 0.0
    for n in range(20, 2020, 20):  # a second per line, nine more in each fifteenth
        at += 2.0 if n % 300 else 11.0
        clock = f"2026-01-02 03:{int(at) // 60:02d}:{at % 60:06.3f}"
        text += f"{clock} INFO: iter: {n}  loss: 1.0  time: 0.1000  lr: 1\n"
    (finding,) = explained(tmp_path, text).findings
    assert (finding.id, finding.severity) == ("pauses", "critical") and finding.share == pytest.approx(0.214, abs=0.001)
    assert "6 pauses between iterations cost 21 % of the time, the long ones every 300 or so" in finding.summary
    row = "I0811 21:54:5{} 1 a.py:2] completed step: {}, seconds: 2.9, loss: 1\n"  # of two lapses one is longer
    assert explained(tmp_path, "".join(row.format(s, n) for n, s in enumerate((1.0, 4.0, 7.2)))).findings == ()


@pytest.mark.parametrize(("timed", "epochs", "told"), BETWEEN_EPOCHS)
def test_what_lies_between_epochs_is_a_pause(tmp_path: Path, timed: str, epochs: int, told: str) -> None:
    at, rows = 0.0, []
    for epoch in range(6):
        for n in range(20, 401, 20):
            at += 2.0
            clock = f"2026-01-02 {int(at) // 3600:02d}:{int(at) // 60 % 60:02d}:{at % 60:06.3f}"
            rows.append(f"{clock} INFO: epoch: {epoch % epochs} iter: {n}  loss: 1.0  {timed} lr: 1\n")
        rows += [f"{clock} INFO: batch {n}/30 loss: 1.0\n" for n in (10, 20, 30)] * (not timed)  # an evaluation
        at += 18.0  # of which two may end the epoch
    report = explained(tmp_path, "".join(rows))
    assert report.iterations is not None and report.iterations.median_ms == pytest.approx(100.0)
    assert [f.summary for f in report.findings] == [told] * bool(told)


@pytest.mark.parametrize(("sizes", "severity"), [(ALONE, "critical"), ({**ALONE, "pipeline": 2}, "info"), ({}, "info")])
def test_ranks_that_are_apart_are_judged_only_where_they_do_the_same_work(sizes: dict[str, int], severity: str) -> None:
    report = of_timers({"forward-backward": (880.0, 900.0), "forward-compute": (300.0, 420.0)}, sizes)
    (finding,) = [f for f in report.findings if f.id == "ranks_apart"]
    assert (finding.severity, finding.ranks) == (severity, ())


def later(*ranks: int, by_ms: float = 100.0) -> Times:
    """Twenty readings of four ranks, of which these always take longer."""
    return {rank: [300.0 + by_ms * (rank in ranks)] * 20 for rank in range(4)}


@pytest.mark.parametrize(
    ("times", "sizes", "named"),
    [
        (TURNS, ALONE, None),  # by chance
        (later(3), ALONE, (3,)),
        (later(3), {**ALONE, "expert": 4}, None),  # all wait inside the timer
        (later(2, 3, by_ms=200.0), STAGES, None),  # stages are not compared with each other
        ({**later(2, by_ms=200.0), 3: [800.0] * 20}, STAGES, (3,)),
        (later(2, 3), PAIRS, (2, 3)),  # ranks of a tensor-parallel group are one
        (later(3), PAIRS, None),
    ],
)
def test_ranks_are_named_among_those_that_do_the_same_work(times: Times, sizes: dict[str, int], named) -> None:
    report = of_ranks(times, sizes)
    assert [finding.ranks for finding in report.findings] == ([] if named is None else [named])
    assert all(f.severity == "critical" and "longest in 19 of 19" in f.evidence[0] for f in report.findings)
    assert "expert" not in sizes or any("expert" in said for said in report.abstained)


def test_bus_bandwidth_is_bytes_and_held_against_the_logs_bits() -> None:
    row = {(row.op, row.size_bytes): row for row in of_sample("deepspeed_summary_2025").calls}["broadcast", 50 * 2**20]
    assert row.busbw_gbs == pytest.approx(50 * 2**20 / 6.61e6) and row.logged_busbw_gbs == pytest.approx(63.47 / 8)
    assert row.logged_ratio == pytest.approx(1, abs=0.01)
    assert any("reduce_scatter_base is 2.0 times" in said for said in of_sample("deepspeed_verbose_2022").abstained)


@pytest.mark.parametrize(("op", "factor"), {**FACTORS, "all_gather_into_tensor": 7.0}.items())
def test_formulas(op: str, factor: float) -> None:
    size = 10_000_000 if op == "all_gather_into_tensor" else 80_000_000  # of what one rank gives
    call = LoggedCalls(op, size, 4, 40.0, 10.0, 64.0, size * factor / 10e6 * 8)
    (row,) = explain_tables(TrainingLog("a.log", ("DeepSpeed",), calls=(call,), sizes={"world": 8})).calls
    assert row.busbw_gbs == pytest.approx(size * factor / 10e6) and row.logged_ratio == pytest.approx(1)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.log")), ids=lambda path: path.stem)
def test_every_sample_is_told_in_full(path: Path) -> None:
    report = of_sample(path.stem)
    text = render_log(report)
    assert text.endswith("\n") and report.sentence.split(".")[0][:20] in text and "ddprof run -- COMMAND" in text
    assert fenced(render_log(report)).count("```") == 2
    (document,) = logs_document([report])["logs"]
    assert document["sentence"] == report.sentence
    assert len(document["timers"]) == len(report.timers) and len(document["iterations"]) == len(report.log.iterations)


def test_loading_is_a_mean_of_lines_and_late_on_the_rank_that_writes_it(tmp_path: Path) -> None:
    """A loader of four workers makes every fourth iteration wait; an epoch begins with the start of its workers."""
    line = "Epoch: [{epoch}][{at:4d}/200]\tTime {time:.3f} (0.300)\tData {data:.3f} (0.100)\tLoss 6.9 (6.9)\n"
    data = [5.0, *(0.0 if at % 4 else 0.4 for at in range(1, 200))]
    lines = [(epoch, at, s) for epoch in range(3) for at, s in enumerate(data)]
    report = explained(tmp_path, "".join(line.format(epoch=e, at=at, time=s + 0.2, data=s) for e, at, s in lines))
    assert [finding.id for finding in report.findings if finding.severity != "info"] == ["data_loading"]
    assert report.findings[0].share == pytest.approx(1 / 3, abs=0.01)

    line = "[rank {rank}] step {at} loss 2.3 step_time {time:.3f}s data_time {data:.3f}s\n"
    each = [(at, rank) for at in range(40) for rank in range(4)]
    for late, named in (({1: 0.2}, [(1,)]), ({}, [])):
        text = "".join(line.format(rank=rank, at=at, time=0.4, data=late.get(rank, 0.004)) for at, rank in each)
        report = explained(tmp_path, text)
        assert [finding.ranks for finding in report.findings if finding.id == "slow_rank"] == named
        assert [finding.page for finding in report.findings] == ["input_starved", "input_straggler"] * len(named)


def test_slow_iterations_at_equal_distances_are_told_by_it() -> None:
    """An optimizer that refreshes its preconditioner every tenth step (SOAP, in a public log)."""

    def said(slow: list[int], stride: int = 1, longer: tuple[int, ...] = ()) -> str:
        rows = range(1, 101 * stride, stride)
        each = tuple(
            LoggedIteration(at, 1_300.0 if at in slow else 255.0 + at % 3 + 45 * (at in longer)) for at in rows
        )
        (finding,) = explain_tables(TrainingLog("a.log", (WRITER,), each)).findings
        return finding.summary

    assert said([11, 21, 31, 41, 51, 61, 71, 81, 91]).startswith("9 of 99 logged iterations, one in every 10, are")
    assert ", the longest one in every 10, are" in said([11, 21, 31, 41, 51, 61, 71, 81, 91], longer=(5, 47, 48))
    assert "every" not in said([11, 14, 31, 47, 51, 80]) + said([11, 21])
    assert "every" not in said([511, 521, 531, 541, 551, 561], stride=10)  # lines that follow one another
    # One in ten is logged, and evaluation comes at a multiple of that: 9 of 1,000 iterations take a second more.
    assert "which costs 3.5 % of the time" in said([101, 201, 301, 401, 501, 601, 701, 801, 901], stride=10)


def test_timers_are_parts_of_the_time_printed_beside_them_also_where_that_is_a_running_mean(tmp_path: Path) -> None:
    """A program of MMEngine's whose last batch of six is small, and every line a mean over the last ones."""
    line = (
        "2026/01/02 03:{:02d}:{:02d} - mmengine - INFO - Epoch(train) [{}][{}/6]  lr: 4e-3  time: 7.4  data_time: 6.8\n"
    )
    rows = [(45 * epoch + 9 * n - 7 * (n == 6), epoch, n) for epoch in range(1, 31) for n in range(1, 7)]
    report = explained(tmp_path, "".join(line.format(s // 60 % 60, s % 60, epoch, n) for s, epoch, n in rows))
    assert report.findings[0].share == pytest.approx(6.8 / 7.4)


@pytest.mark.parametrize(("row", "writer"), [("      {}/9 2.29G 0.7 640:", "tqdm"), ("", "bars without a label")])
def test_a_bar_that_each_epoch_draws_anew_is_no_return_to_a_checkpoint(tmp_path: Path, row: str, writer: str) -> None:
    bar = " 9%|█▏ | {}/{} [{:02d}:{:02d}<09:00, 1.20s/it]\n"
    rows = [row.format(e) + bar.format(25 * n, 100, *divmod(int(30.4 * n), 60)) for e in range(3) for n in range(5)]
    report = explained(tmp_path, "loss = 2.1\n" + "".join([*rows, bar.format(9, 9, 0, 9)]))
    assert (report.log.writers, report.findings) == ((writer,), ()) and report.iterations is not None
    assert report.iterations.lines == 12
