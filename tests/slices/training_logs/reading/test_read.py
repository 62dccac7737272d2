"""Real excerpts of logs (samples/README.md says whose), and the same cut, mixed and coloured."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddprof.errors import NoUsableInput
from ddprof.readers.format import Sample
from ddprof.readers.source import Source
from ddprof.slices.training_logs.findings.explain import explain_tables
from ddprof.slices.training_logs.format import FORMAT
from ddprof.slices.training_logs.model import LogReport, TrainingLog
from ddprof.slices.training_logs.reading import shapes
from ddprof.slices.training_logs.reading.loops import WRITER
from ddprof.slices.training_logs.reading.read import read_training_log

SAMPLES = sorted((Path(__file__).parents[1] / "samples").glob("*.log"))
BY_NAME = {path.stem: path for path in SAMPLES}

OF_ALL_RANKS, STRAGGLING = ((SAMPLES[0].parent / f"{name}.txt").read_text() for name in ("all_ranks", "stragglers"))


def steps(*rows: tuple[int, str, str], unit: str = "ms") -> str:
    """Lines of iterations: (number, seconds of the clock, time printed)."""
    line = " [2026-01-02 03:04:{}] iteration {}/ 9 | elapsed time per iteration ({}): {} | lm loss: 1.0 |\n"
    return "".join(line.format(at, n, unit, time) for n, at, time in rows)


# Lines, the time of each iteration in ms, and how many of the lines state a mean of several.
MEANS = [
    (steps((1, "10.000", "6000"), (2, "11.000", "3500"), (3, "12.000", "1000.0/1000.0")), [6000, 1000, 1000], 1),
    # In all its lines a mean since the start; the clock in whole seconds.
    (steps((1, "10", "20"), (2, "20", "15"), (3, "30", "13.333"), unit="s"), [20000, 10000, 10000], 2),
    (steps((1, "10.000", "900"), (2, "25.000", "1000"), (3, "26.000", "1000")), [900, 1000, 1000], 0),  # a pause
    (steps((1, "10", "900"), (2, "11", "1400"), (3, "12", "1300")), [900, 1400, 1300], 0),  # clock too coarse
    (steps((1, "10", "9"), (2, "10", "8"), (3, "10", "9")), [9, 8, 9], 0),  # it stands still
    # Too coarse for one line, and not for all of them: sixty of 3 s do not fit into 30
    (steps(*((n, str(10 + n // 2), "3") for n in range(1, 61)), unit="s"), [20000 / 39], 0),
]
ENDS = [line.split(" => ") for line in (SAMPLES[0].parent / "ends.txt").read_text().splitlines()]
TOLD = [line.split(" => ") for line in (SAMPLES[0].parent / "told.txt").read_text().splitlines()]
PREFIXES = ["[default0]:", "[rank12]:", "  3: ", "[1,0]<stdout>:", "2024-04-06T03:02:12.123456Z ", "10.0.0.7: "]
PRINTED = [tuple(line.split(" | ", 3)) for line in (SAMPLES[0].parent / "printed.txt").read_text().splitlines()]
CLOCKS = [line.replace("\\n", "\n") for line in (SAMPLES[0].parent / "clocks.txt").read_text().splitlines()]
# A line (or several) as its program prints it: number `{n}`, time `{t}` in s, `{ms}`, `{rest}` without 0.1 s of data,
# or `{rate}`, its inverse.
LOOPS = dict(line.split(" => ") for line in (SAMPLES[0].parent / "loops.txt").read_text().splitlines())
HEADS = {"CSV": "step,loss,step_time,data_time\n", "columns": "    step    loss    lr    s/step    tok/s\n"}
ITERATIONS = [
    ("megatron_mixtral", ("Megatron",), [(71, 5361.6), (72, 5470.7), (73, 5829.9)]),
    ("megatron_bert_2022", ("Megatron",), [(20, 171.3), (30, 123.4)]),
    *(("megatron_alcf", ("Megatron",), [(1, 29570.0)]), ("megatron_t5_2021", ("Megatron",), [])),
    ("megatron_deepspeed_aurora", ("DeepSpeed", "Megatron"), [(1, 25849.1), (2, 20298.3)]),
    *(("nemo_bar", ("NeMo",), [(9000, 615.0)]), ("deepspeed_pipeline", ("DeepSpeed",), [(20, 994.0)])),
    *(("deepspeed_accelerate", ("DeepSpeed",), []), ("deepspeed_speed_2022", ("DeepSpeed",), [(50, 1514.5)])),
    ("torchtitan", ("torchtitan",), [(210, 1464.8), (220, 1396.4), (230, 1396.1), (240, 1397.4), (250, 1397.7)]),
    ("huggingface_2021", ("Hugging Face Trainer",), [(20, 642.0)]),
    *(("lightning_2020", ("Lightning",), [(5, 2982.5)]), ("lightning_bars", ("Lightning",), [(1591, 485.4)])),
    ("megatron_llm", ("Megatron",), [(182, 126995.3), (183, 125553.7), (184, 127804.5), (185, 130554.9)]),
]


def read(path: Path, text: str | None = None) -> TrainingLog:
    """The log at a path, or of a text that is written into a folder first."""
    if text is not None:
        path /= "train.log"
        path.write_text(text, encoding="utf-8")
    return read_training_log(Source(str(path), "training_log"))


def explained(folder: Path, text: str) -> LogReport:
    return explain_tables(read(folder, text))


@pytest.mark.parametrize(("name", "writers", "iterations"), ITERATIONS)
def test_iterations_of_real_logs(name: str, writers: tuple[str, ...], iterations: list[tuple[int, float]]) -> None:
    log = read(BY_NAME[name])
    told = [(iteration.number, round(iteration.mean_ms, 1)) for iteration in log.iterations]
    assert (log.writers, told) == (writers, iterations)


@pytest.mark.parametrize(("text", "times", "means"), MEANS)
def test_a_mean_over_iterations_is_no_time_of_one(tmp_path: Path, text: str, times: list[float], means: int) -> None:
    log = explained(tmp_path, text + text.splitlines(keepends=True)[-1]).log  # every line may come twice
    assert [iteration.mean_ms for iteration in log.iterations] == pytest.approx(times) and len(log.means) == means


@pytest.mark.parametrize(("error", "end"), ENDS)
def test_what_a_log_ends_in(tmp_path: Path, error: str, end: str) -> None:
    assert read(tmp_path, "import torch, as the first line\n" + end.replace("\\n", "\n")).error == error


@pytest.mark.parametrize(("told", "log"), TOLD)
def test_what_is_told_of_a_log(tmp_path: Path, told: str, log: str) -> None:
    log = log.replace("\\n", "\n").replace("\\x1b", "\x1b")
    assert FORMAT.recognise(Sample(log.encode())) and told in explained(tmp_path, log).sentence


def test_what_an_iteration_line_says_beside_its_time_and_timers_of_the_step_stand_for_those_of_micro_steps() -> None:
    for name, told in (("megatron_mixtral", (243.6, 128)), ("megatron_alcf", (20.30, 768))):
        first = read(BY_NAME[name]).iterations[0]
        assert (first.tflops, first.batch) == told
    names = {"forward", "backward", "backward_inner", "backward_allreduce", "step"}
    names |= {"optimizer_allgather", "optimizer_gradients", "optimizer_step"}
    assert {reading.name for reading in read(BY_NAME["deepspeed_accelerate"]).timers} == names
    assert {reading.name for reading in read(BY_NAME["deepspeed_neox"]).timers} >= {"forward_microstep"}
    optimizer = {reading.name: reading for reading in read(BY_NAME["megatron_alcf"]).timers}["optimizer"]
    assert (optimizer.shortest_ms, optimizer.longest_ms, optimizer.of_all_ranks) == (3407.56, 3409.92, True)


def test_ranks_sizes_and_the_longest_alone_and_no_numbers_is_one_line(tmp_path: Path) -> None:
    log = read(tmp_path, OF_ALL_RANKS)
    found = [(r.name, r.rank, r.ms) for r in log.by_rank]
    assert found[:2] == [("forward-compute", 0, 800.10), ("forward-compute", 1, 812.20)]
    assert found[2:] == [("batch-generator", 0, 1.10), ("batch-generator", 1, 1.20)]
    assert log.sizes == {"world": 4, "data": 4, "context": 1, "tensor": 1, "pipeline": 1}
    rows = "max time across ranks (ms):\n    optimizer ......................................: 3409.92\n"
    for text in (rows, "step latency:                 3.40992 s  \nfwd latency - {'Model': '1.0 s'}\n"):
        (reading,) = read(tmp_path, text).timers
        assert (reading.shortest_ms, reading.longest_ms) == (None, pytest.approx(3409.92))
    with pytest.raises(NoUsableInput, match="a training log without a complete iteration, timer or call"):
        read(tmp_path, "(min, max) time across ranks (ms):\n    optimizer ....: (x, y)\n")


def test_sizes_are_powers_of_1024_and_a_table_counts_what_its_lines_said(tmp_path: Path) -> None:
    call = {(c.op, c.size_bytes): c for c in read(BY_NAME["deepspeed_summary_2025"]).calls}["broadcast", 50 * 2**20]
    assert (call.count, call.total_ms, call.mean_ms, call.busbw_gbps) == (1, 6.61, 6.61, 63.47)
    verbose = {c.op: c for c in read(BY_NAME["deepspeed_verbose_2022"]).calls}
    assert (verbose["all_gather_base"].count, verbose["all_gather_base"].total_ms) == (2, pytest.approx(0.19))
    both = BY_NAME["deepspeed_verbose_2022"].read_text() + BY_NAME["deepspeed_summary_2025"].read_text()
    assert {call.op for call in read(tmp_path, both).calls} == {"broadcast", "barrier"}
    unknown = STRAGGLING.replace("all_reduce ", "allreduce_coalesced ")
    assert {call.op for call in read(tmp_path, unknown).calls} == {"allreduce_coalesced"}
    log = read(tmp_path, STRAGGLING)
    assert [(c.op, c.size_bytes, c.total_ms) for c in log.calls] == [("all_reduce", 2048, 30.0)]
    (row,) = log.straggling
    assert (row.op, row.count, row.transfer_ms, row.beyond_ms) == ("all_reduce", 10, 12.0, 18.0)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_launchers_collectors_and_colours_change_no_number(tmp_path: Path, path: Path, prefix: str) -> None:
    dressed = "".join(f"{prefix}\x1b[32m{line}\x1b[0m\n" for line in path.read_text(encoding="utf-8").split("\n"))
    plain, read_so = read(path), read(tmp_path, dressed)
    assert (read_so.iterations, read_so.calls, read_so.straggling) == (plain.iterations, plain.calls, plain.straggling)
    # An unfinished last line is left out as long as nothing says that it is one.
    assert read_so.timers[: len(plain.timers)] == plain.timers


def test_two_ranks_that_write_one_file_line_by_line(tmp_path: Path) -> None:
    rows = ["  forward-backward .: (1.00, 2.00)", "  optimizer .: (3.00, 4.00)", ""]
    first = ["(min, max) time across ranks (ms):", *rows]
    second = ["times across ranks (ms):", "  forward-compute:", "     rank  0: 5.00", "     rank  1: 6.00"]
    log = read(tmp_path, "".join(f"[default0]:{a}\n[default1]:{b}\n" for a, b in zip(first, second, strict=True)))
    told = [(r.name, r.shortest_ms, r.longest_ms) for r in log.timers]
    assert told == [("forward-backward", 1.0, 2.0), ("optimizer", 3.0, 4.0)]
    assert [(r.rank, r.ms) for r in log.by_rank] == [(0, 5.0), (1, 6.0)]
    # Two records in one line; a bar drawn again, and one writer's lines are kept.
    line = BY_NAME["megatron_mixtral"].read_text().split("\n")[0]
    bar = BY_NAME["nemo_bar"].read_text().rstrip("\n")
    for text, numbers in ((f"{line}{line.replace(' 71/', ' 72/')}\n", [71, 72]), ("", [9000])):
        assert [iteration.number for iteration in read(tmp_path, f"{text}{bar}\r{bar}\r\n").iterations] == numbers


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_cut_keeps_the_numbers_before_it(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = data.draw(st.sampled_from(SAMPLES))
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    file = tmp_path_factory.getbasetemp() / "cut.log"
    file.write_bytes(content[:at])
    whole = read(path)
    if "Lightning" in whole.writers:  # of a bar the last counts
        return
    try:
        cut = read(file)
    except NoUsableInput as error:
        assert "\n" not in str(error)
        return
    assert cut.iterations[:-1] == whole.iterations[: len(cut.iterations)][:-1]
    if cut.iterations:  # the last may have been cut behind its time
        last, same = cut.iterations[-1], whole.iterations[len(cut.iterations) - 1]
        assert (last.number, last.mean_ms) == (same.number, same.mean_ms)
    ended = content[:at].rpartition(b"\n")[0].count(b"elapsed")  # of lines that are whole
    assert len(cut.iterations) >= min(ended, len(whole.iterations)) or "nemo" in path.stem
    if b"_microstep" not in content:  # which timers stand for others is known at the end
        more = cut.timers[len(whole.timers) :]  # of a last line that the sample leaves unfinished, cut behind a bar
        assert cut.timers == whole.timers[: len(cut.timers)] + more and (not more or not content.endswith(b"\n"))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_anywhere_is_no_traceback(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    of_loops = st.sampled_from(sorted(LOOPS)).map(lambda name: (HEADS.get(name, "") + loop(LOOPS[name])).encode())
    content = bytearray(2 * data.draw(st.sampled_from(SAMPLES).map(Path.read_bytes) | of_loops))
    byte = st.integers(0, 255) | st.integers(48, 57)  # or a digit
    for at, other in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), byte), max_size=30)):
        content[at] = other
    file = tmp_path_factory.getbasetemp() / "damaged.log"
    file.write_bytes(bytes(content))
    try:
        log = read(file)
    except NoUsableInput:
        return
    assert all(iteration.mean_ms > 0 for iteration in log.iterations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "_fixed", lambda *_: None)  # every line on its own
        assert repr(read(file)) == repr(log)


@pytest.mark.parametrize(("writer", "number", "ms", "line"), PRINTED)
def test_lines_of_one_time(tmp_path: Path, writer: str, number: str, ms: str, line: str) -> None:
    log = read(tmp_path, f"settings\n{line}\n")
    (only,) = log.iterations
    assert (log.writers, only.number, only.mean_ms) == ((writer,), int(number), pytest.approx(float(ms)))


def test_numbers_that_cannot_be_and_times_longer_than_any_job_are_left_out(tmp_path: Path) -> None:
    odd = "{'train_runtime': 1e300, 'train_steps_per_second': 1e300}"
    for text, number in ((f"{PRINTED[1][-1]}\n{odd}\n", 7), (f"0000-01-01 10:00:00 {PRINTED[2][-1]}\n", 4)):
        assert [one.number for one in read(tmp_path, text).iterations] == [number]
    for time in ("1e308", "9e307", "1e12"):  # the first two in ms are beyond a float
        loops = [f"iter {at}: loss 3.2, time {time if at == 4 else 0.5}, data_time 0.1\n" for at in range(8)]
        assert {one.mean_ms for one in read(tmp_path, "".join(loops)).iterations} == {500.0}
        log = read(tmp_path, f"[Rank 0] rank=0 time (ms) | fwd: 27.46 | step: {time} | bwd: 73.60\n")
        assert [reading.name for reading in log.timers] == ["fwd", "bwd"]
        total = "".join(f"step:{at}/9 train_loss:7 train_time:{time if at == 8 else at * 176}ms\n" for at in range(9))
        assert max(one.mean_ms for one in read(tmp_path, total).iterations) == pytest.approx(176)


def loop(line: str) -> str:
    """Twelve lines of a loop, of 0.4 s and of 0.41 s in turns."""
    line, times = line.replace("|    ", "\n    ") + "\n", [0.4, 0.41] * 6
    told = [{"t": f"{t:.4f}", "rest": f"{t - 0.1:.3f}", "ms": f"{t * 1e3:.2f}", "rate": f"{1 / t:.5f}"} for t in times]
    return "".join(line.format(n=10 * at, **said) for at, said in enumerate(told))


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_names_its_times_by_keys(tmp_path: Path, name: str) -> None:
    validation = "Test:  [ 0/50]  eta: 0:00:10  loss: 6.9 (6.9)  time: 0.9812  data: 0.9612  max mem: 5432\n"
    text = "settings: time 3, loss\n" + HEADS.get(name, "") + loop(LOOPS[name]) + 3 * validation
    assert FORMAT.recognise(Sample(text.encode()))
    log = read(tmp_path, text)
    assert log.writers == (WRITER,) and [one.number for one in log.iterations] == list(range(0, 120, 10))
    assert [one.mean_ms for one in log.iterations] == pytest.approx([400, 410] * 6, rel=1e-4)
    assert [reading.longest_ms for reading in log.timers] == ([pytest.approx(100)] * 12 if "0.1" in LOOPS[name] else [])


@pytest.mark.parametrize("line", CLOCKS)
def test_a_clock_alone_times_a_loop_that_prints_no_loss(tmp_path: Path, line: str) -> None:
    text = "".join(f"{line}\n".format(n=900 + 10 * at, at=f"{4 * at:02d}") for at in range(12))
    assert FORMAT.recognise(Sample(text.encode()))
    assert {round(one.mean_ms) for one in read(tmp_path, text).iterations} == {400}


def test_what_is_printed_may_be_the_time_since_the_start(tmp_path: Path) -> None:
    total_ms = [110, 137, 160, 185, 211, 326, 355, 394, 429, 463]
    steps_ms = [after - before for before, after in pairwise(total_ms)]
    nanogpt = "step:{n}/2160 train_time:{total}ms step_avg:{mean:.2f}ms", "step:{n}/2160 lr 0.1 step_avg:{mean:.3f}ms"
    for line in (*nanogpt, "step {n}, loss 3.2, time: {total}ms"):  # the last does not say it
        lines = [line.format(n=at, total=total, mean=total / at) for at, total in enumerate(total_ms, 1)]
        log = read(tmp_path, "\n".join(lines) + "\n")
        assert [one.mean_ms for one in log.iterations] == pytest.approx(steps_ms, abs=0.1)
    # LLaMA Factory's and ms-swift's: an object in each line, with the time since the start in words.
    for elapsed in ("{h}:{m:02d}:{s:02d}", "{h}h {m}m {s}s", "1 day, {h}:{m:02d}:{s:02d}"):
        texts = (elapsed.format(h=at // 3600, m=at // 60 % 60, s=at % 60) for at in range(3500, 4500, 100))
        row = '{{"global_step/max_steps": "{}/9", "loss": 1.2, "elapsed_time": "{}"}}'
        lines = [row.format(at, text) for at, text in enumerate(texts, 1)]
        assert FORMAT.recognise(Sample("\n".join(lines).encode()))
        assert {one.mean_ms for one in read(tmp_path, "\n".join(lines) + "\n").iterations} == {100_000.0}
    # Its earlier records set the clock back after ten steps of warm-up, while the numbers go on.
    again = [f"step:{10 + at}/510 train_loss:7.1 train_time:{at * 176}ms step_avg:nanms" for at in range(1, 60)]
    warm = [f"step:{at}/510 train_loss:7.1 train_time:{42_703 + at * 178}ms step_avg:nanms" for at in range(1, 11)]
    assert {round(one.mean_ms) for one in read(tmp_path, "\n".join((*warm, *again)) + "\n").iterations} == {176, 178}


def test_other_text_is_no_training() -> None:
    for text in (
        "".join(f"GET /batch {at} time: 0.3s 200\n" for at in range(40)),
        "for step in range(10):\n    print(f'step {step} time: {t} loss')\n# Step 1: loss time 3\n",
        "".join(f"{at * 8} float sum -1 32.1 0.0 time 31.2\n" for at in range(40)),
        "step 7: loss 2.1, time: 0.3s\n" * 40,
    ):
        assert FORMAT.recognise(Sample(text.encode())) is False


def test_a_time_is_of_one_iteration_or_where_it_would_be_years_of_all_since_the_line_before(tmp_path: Path) -> None:
    lines = "".join(f"iter {10 * at}: loss 3.2150, time {250 + at % 3}.00ms, mfu 38.40%\n" for at in range(20))
    summary = explained(tmp_path, lines).iterations
    assert summary is not None and summary.every == 1 and summary.lines == 20
    for stride, ms in ((250, 400.0), (1, 100_000.0)):  # as GluonNLP's pre-training, which prints no clock
        lines = [f"INFO:root:[step {stride * at}]\tmlm_loss=1.5\ttime={100 + at % 3 - 1}.00\n" for at in range(1, 3001)]
        summary = explained(tmp_path, "".join(lines)).iterations
        assert summary is not None and summary.median_ms == pytest.approx(ms)
