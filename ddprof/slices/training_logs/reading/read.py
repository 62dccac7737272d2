"""The tables of one text log."""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from math import isnan
from statistics import fmean

from ddprof.errors import NoUsableInput
from ddprof.readers.numbers import one_rank
from ddprof.readers.source import Source
from ddprof.slices.training_logs.model import LoggedRun, TrainingLog
from ddprof.slices.training_logs.reading import bars as of_bars
from ddprof.slices.training_logs.reading import communication as of_communication
from ddprof.slices.training_logs.reading import ending as of_ending
from ddprof.slices.training_logs.reading import iterations as of_iterations
from ddprof.slices.training_logs.reading import machine as of_machine
from ddprof.slices.training_logs.reading import timers as of_timers
from ddprof.slices.training_logs.reading.bars import UNNAMED, BarLines
from ddprof.slices.training_logs.reading.blocks import AlikeLines, Plan, loop_of, plan_of, records_of
from ddprof.slices.training_logs.reading.communication import CommunicationLines
from ddprof.slices.training_logs.reading.ending import LastError
from ddprof.slices.training_logs.reading.iterations import WHOLE_RUN, LoggedRecord, table_of_records, whole_run
from ddprof.slices.training_logs.reading.lines import OF_LOOPS, LogBlocks, LogBudget, WantedLines, broken
from ddprof.slices.training_logs.reading.loops import WRITER, LoopLines
from ddprof.slices.training_logs.reading.machine import OF_DEVICES, OF_TRANSPORTS, DeviceLines, TransportLines
from ddprof.slices.training_logs.reading.shapes import OF_RUNS, KnownShapes
from ddprof.slices.training_logs.reading.timers import TimerLines, without_microsteps
from ddprof.slices.training_logs.reading.times import (
    EPOCHS,
    Timed,
    by_clock,
    by_lines,
    by_rate,
    jobs_at_once,
    once_each,
)
from ddprof.slices.training_logs.reading.whole_runs import BENCHMARK, RunLines
from ddprof.tables import Array

_MOST_PLANS = 256  # each compares the lines of a block that are as long as its own

# "using world size: 8, data-parallel size: 4, context-parallel size: 1, ..." and, of the arguments,
# "  tensor_model_parallel_size ...................... 2"
_STATED = re.compile(
    r"(?<![\w-])(?P<what>world|tensor[-_]model[-_]parallel|pipeline[-_]model[-_]parallel|context[-_]parallel"
    r"|expert[-_]model[-_]parallel|data[-_]parallel|micro_batch|global_batch)[ _-]size"
    r"(?:: | \.{3,} )(?P<size>\d{1,7})(?=[,\s])"
)


def read_training_log(source: Source, budget: LogBudget | None = None) -> TrainingLog:
    """A log read by all frameworks' readers. Raises NoUsableInput where no line holds a known number.

    No garbage is collected meanwhile: lines leave some objects each that hold one another in no circle, and looking
    for circles takes longer than reading them.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return _read(source, budget or LogBudget.of([source]))
    finally:
        if is_collecting:
            gc.enable()


_SIZES = ("world size: ", "_parallel_size ", "_batch_size ")
# One or the other stands in every line that begins something we read. Colours are put around them, never inside.
_WORDS = (
    *(*OF_LOOPS, *OF_RUNS, *_SIZES, *of_iterations.WORDS, *of_bars.WORDS, *of_timers.WORDS),
    *(*of_communication.WORDS, *of_ending.WORDS, *of_machine.WORDS),
)


class Readers:
    """All that read the lines of one log."""

    def __init__(self) -> None:
        self.records: dict[str, list[LoggedRecord | Array]] = defaultdict(list)
        self.timers, self.communication, self.ending = TimerLines(), CommunicationLines(), LastError()
        self.bars, self.loop, self.whole = BarLines(), LoopLines(), RunLines()
        self.devices, self.transports = DeviceLines(), TransportLines()
        self.sizes: dict[str, int] = {}
        self.has_iterations = False  # in lines of a framework, be their time known or not
        self.plans: list[Plan] = []  # of the lines that are read at once
        self._of_blocks = self.timers, self.communication, self.ending
        self.shapes = KnownShapes(
            _WORDS,
            (
                (of_bars.WORDS, self.bars.take),
                (OF_DEVICES, self.devices.take),
                (OF_TRANSPORTS, self.transports.take),
                (of_timers.WORDS, self.timers.take),
                (of_communication.WORDS, self.communication.take),
                (of_ending.WORDS, self.ending.take),
                (("parallel", "world", "batch_size"), lambda line: self.sizes.update(_sizes_of(line.text))),
            ),
        )

    def reads_on(self) -> bool:
        """True where the next line is to be read, whatever stands in it."""
        return self.loop.reads_on or any(reader.reads_on for reader in self._of_blocks)

    def read(self, text: bytes) -> None:
        """Read the next lines: those that are alike at once, others one by one."""
        block, wanted_lines, at = AlikeLines(text, self.plans), WantedLines(text, _WORDS), 0
        while at < block.lines:
            end = block.alike_until(at)
            if end > at and not self._is_open:
                for writer, records in records_of(block, at, end).items():
                    self.records[writer].append(records)
                lines, last = loop_of(block, at, end)
                if lines.lines:
                    self.loop.take_all(lines, last)
                for _, _, own, columns in block.parts(at, end):
                    self.devices.note(*(rates[own].tolist() for rates in columns.rates))
                self.ending.iteration(False)
                at = end
            else:
                at = self._take_alone(block, at, wanted_lines)
        self.plans = block.plans

    @property
    def are_there(self) -> bool:
        """True for lines that only a training prints."""
        parts = self.timers, self.communication, self.transports, self.whole, self.loop.epochs
        is_sized = {"world", "data"} <= set(self.sizes)
        return self.has_iterations or is_sized or self.loop.is_training or any(part.are_there for part in parts)

    @property
    def _is_open(self) -> bool:
        return self.loop.reads_on or any(reader.open for reader in self._of_blocks)

    def _take_alone(self, block: AlikeLines, begin: int, lines: WantedLines) -> int:
        """Read lines one by one, as far as others are alike or turn out to be; the place of the next line."""
        is_open = self._is_open
        end = block.lines if is_open else block.alone_until(begin)
        for first, last in lines.between(*block.span(begin, end), self.reads_on):
            self.take(block.text[first:last])
            plan = plan_of(*self.shapes.often) if self.shapes.often and len(block.plans) < _MOST_PLANS else None
            if plan is not None:
                block.add(plan, block.line_behind(first))
            if plan is not None or (is_open and not self._is_open):
                return block.line_behind(first)
        return end

    def take(self, raw: bytes) -> None:
        """Read the next line."""
        text, shape = self.shapes.of(raw)
        said = text[shape.prefix :]
        self.has_iterations |= bool(shape.records)
        printed = [(place.writer, record) for place in shape.records if (record := place.read(text)) is not None]
        if shape.is_of_run and (ran := whole_run(said)) is not None:
            printed.append((WHOLE_RUN, ran))
        for writer, record in printed:
            self.records[writer].append(record)
        loop, is_event = self.loop, shape.is_of_run and self.whole.take(said)
        if is_event or printed or (not shape.is_of_nccl and loop.take(text, shape.who, shape.loop)):
            self.ending.iteration(shape.is_nan)
        elif loop.epochs.has_begun():
            self.ending.went_on()
        if shape.takers or self.timers.open or self.communication.open or self.ending.open:
            line = shape.line(text)
            for take in shape.takers:
                take(line)
            for reader in self._of_blocks:
                if reader.open and reader.take not in shape.takers:
                    reader.take(line)


def _read(source: Source, budget: LogBudget) -> TrainingLog:
    of, blocks = Readers(), LogBlocks(source, budget)
    for text in blocks:
        of.read(text)
    records = {writer: table_of_records(parts) for writer, parts in of.records.items()}
    timers, communication, ending = of.timers, of.communication, of.ending
    bars, loop, whole = of.bars, of.loop, of.whole
    of_loop, waits, waits_of_ranks = loop.times()
    writer, timed = _best(records, of_loop, whole.records, bars, loop)
    are_means = timed.are_means or (writer == WRITER and loop.are_means)
    if writer != WRITER:
        waits, waits_of_ranks = loop.epochs.waits() if writer == EPOCHS else [], []
    calls, straggling = communication.calls, communication.straggling
    writers = timers.writers | ({"DeepSpeed"} if calls or straggling else set()) | ({writer} if writer else set())
    joined, run = of.transports.transports(), whole.run() or _of_epochs(loop, timed)
    failed = f"its status: {whole.status}" if whole.status not in ("", "success") else ""
    if not (writers or timers.readings or ending.error or joined.channels or joined.warnings or run):
        raise NoUsableInput(
            f"{source.label}: a training log without a complete iteration, timer or call: print the time of "
            "each step, or `ddprof run` the job"
        )
    return TrainingLog(
        source.label,
        tuple(sorted(writers)),
        tuple(timed.iterations),
        (*without_microsteps(timers.readings), *waits),
        (*timers.by_rank, *waits_of_ranks),
        tuple(calls),
        tuple(straggling),
        of.sizes,
        tuple(timed.means),
        tuple(timed.lapses),
        ending.error or failed,
        of.devices.devices(),
        [len(job) for job in jobs_at_once(records.get(writer, table_of_records([])))],
        joined,
        run,
        ending.nan_lines,
        are_means,
        blocks.damage,
    )


def _of_epochs(loop: LoopLines, timed: Timed) -> LoggedRun | None:
    """The epochs as their own lines time them, where no clock says what passes beside iterations of one."""
    if timed.lapses or not loop.in_epoch or not timed.iterations:
        return None
    epochs_ms = [epoch.mean_ms for epoch in loop.epochs.timed().iterations]
    each_ms = loop.in_epoch * fmean([iteration.mean_ms for iteration in timed.iterations])
    beside_ms = sum(max(0.0, ms - each_ms) for ms in epochs_ms)
    # Most of the time would be more than all that is printed: then one of the two is something else
    return LoggedRun(sum(epochs_ms), beside_ms=beside_ms) if 0 < 2 * beside_ms < sum(epochs_ms) else None


def _best(
    records: dict[str, Array],
    of_loop: Array,
    benchmark: list[LoggedRecord],
    bars: BarLines,
    loop: LoopLines,
) -> tuple[str, Timed]:
    """Iterations of one writer from the best source: printed times, those `of_loop`, those of a `benchmark`, clocks,
    bars, lines of a loop that only a clock times, the run's mean, epochs.
    """
    printed = {of: lines for of, lines in records.items() if not isnan(lines["ms"][0]) and of != WHOLE_RUN}
    if printed:
        writer = max(printed, key=lambda of: len(printed[of]))
        return writer, by_lines(once_each(printed[writer]))
    drawn_by, bar = bars.longest()
    drawn = table_of_records(bar)
    if len(of_loop):
        timed = (by_clock if isnan(of_loop["ms"][0]) else by_lines)(once_each(of_loop))
        of_bar = by_clock(once_each(drawn)) if drawn_by not in ("", UNNAMED) and not timed.lapses else Timed()
        # A bar is the clock of lines that have none
        return (drawn_by, of_bar) if len(of_bar.iterations) > len(timed.iterations) else (WRITER, timed)
    if benchmark:
        return BENCHMARK, by_lines(table_of_records(benchmark))
    stamped = {of: lines for of, lines in records.items() if isnan(lines["ms"][0])}
    for writer, lines in (*stamped.items(), (drawn_by, drawn), (WRITER, loop.clocked())):
        if (timed := by_clock(once_each(lines))).iterations:
            return writer, timed
    if WHOLE_RUN in records:
        return WHOLE_RUN, by_lines(records[WHOLE_RUN][-1:])
    if bar and drawn_by != UNNAMED:
        return drawn_by, by_rate(bar)
    return (EPOCHS, loop.epochs.timed()) if loop.epochs.are_there else ("", Timed())


def _sizes_of(text: str) -> dict[str, int]:
    """Sizes of the job, groups ("world", "tensor", ...) and batches ("micro", "global"), as Megatron prints them."""
    sizes = {}
    for stated in _STATED.finditer(f"{text} "):
        size = one_rank(stated["size"])
        if size:
            sizes[re.split("[-_]", stated["what"])[0]] = size
    return sizes


# What is printed at the start by programs that print thousands of lines before the first number.
_STARTS = re.compile(
    rb"\[INFO\] \[(?:logging|config)\.py:\d{1,5}:(?:log_dist|print)\]|Total optimization steps = \d"
    rb"|'loss': '?\d[^\n]{0,400}'epoch': '?\d"  # Trainer's, which hold no time
)
_OF_NUMBERS = re.compile(rb"[:=] ?-?\d{1,9}\.\d[^\n|]{0,20}\d%\|")  # losses, whatever their names, before a bar
_EPOCH = re.compile(rb"\bepochs?\W{0,3}\d")
# Beside which an error, or a number before a bar, is a training's
_OF_TRAINING = (
    *(b"torch", b"processgroupnccl", b"deepspeed", b"megatron", b"lightning", b"transformers", b"wandb", b"jax"),
    *(b"horovod", b"npustream", b"tensorflow", b"paddle", b"mxnet", b"keras", b"slurmstepd"),
)


def is_of_training(text: bytes) -> bool:
    """True for text with lines of a training, or of what it ends in."""
    readers, text = Readers(), broken(text)
    readers.read(text)
    if readers.are_there or _STARTS.search(text):
        return True
    lower = text.lower()
    is_named = any(word in lower for word in _OF_TRAINING)
    learns = b"loss" in lower or _EPOCH.search(lower) or (is_named and _OF_NUMBERS.search(text))
    return bool(learns and readers.bars.longest()[0]) or (is_named and bool(readers.ending.error))
