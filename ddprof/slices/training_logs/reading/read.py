"""The tables of one text log."""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from statistics import fmean

from ddprof.errors import NoUsableInput
from ddprof.readers.numbers import one_rank
from ddprof.readers.source import Source
from ddprof.slices.training_logs.model import LoggedRun, TrainingLog
from ddprof.slices.training_logs.reading import bars as of_bars
from ddprof.slices.training_logs.reading import communication as of_communication
from ddprof.slices.training_logs.reading import ending as of_ending
from ddprof.slices.training_logs.reading import timers as of_timers
from ddprof.slices.training_logs.reading.bars import UNNAMED, BarLines
from ddprof.slices.training_logs.reading.communication import CommunicationLines
from ddprof.slices.training_logs.reading.ending import LastError
from ddprof.slices.training_logs.reading.iterations import WHOLE_RUN, LoggedRecord, whole_run
from ddprof.slices.training_logs.reading.lines import log_lines
from ddprof.slices.training_logs.reading.loops import WRITER, LoopLines
from ddprof.slices.training_logs.reading.machine import OF_DEVICES, OF_TRANSPORTS, DeviceLines, TransportLines
from ddprof.slices.training_logs.reading.shapes import KnownShapes
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

# "using world size: 8, data-parallel size: 4, context-parallel size: 1, ..." and, of the arguments,
# "  tensor_model_parallel_size ...................... 2"
_STATED = re.compile(
    r"(?<![\w-])(?P<what>world|tensor[-_]model[-_]parallel|pipeline[-_]model[-_]parallel|context[-_]parallel"
    r"|expert[-_]model[-_]parallel|data[-_]parallel|micro_batch|global_batch)[ _-]size"
    r"(?:: | \.{3,} )(?P<size>\d{1,7})(?=[,\s])"
)


def read_training_log(source: Source) -> TrainingLog:
    """A log read by all frameworks' readers. Raises NoUsableInput where no line holds a known number.

    No garbage is collected meanwhile: lines leave some objects each that hold one another in no circle, and looking
    for circles takes longer than reading them.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return _read(source)
    finally:
        if is_collecting:
            gc.enable()


class _Readers:
    """All that read the lines of one log."""

    def __init__(self) -> None:
        self.records: dict[str, list[LoggedRecord]] = defaultdict(list)
        self.timers, self.communication, self.ending = TimerLines(), CommunicationLines(), LastError()
        self.bars, self.loop, self.whole = BarLines(), LoopLines(), RunLines()
        self.devices, self.transports = DeviceLines(), TransportLines()
        self.sizes: dict[str, int] = {}
        self._of_blocks = self.timers, self.communication, self.ending
        self.shapes = KnownShapes(
            (
                (of_bars.WORDS, self.bars.take),
                (OF_DEVICES, self.devices.take),
                (OF_TRANSPORTS, self.transports.take),
                (of_timers.WORDS, self.timers.take),
                (of_communication.WORDS, self.communication.take),
                (of_ending.WORDS, self.ending.take),
                (("parallel", "world", "batch_size"), lambda line: self.sizes.update(_sizes_of(line.text))),
            )
        )

    def reads_on(self) -> bool:
        """True where the next line is to be read, whatever stands in it."""
        return self.loop.reads_on or any(reader.reads_on for reader in self._of_blocks)

    def begins(self, text: bytes) -> tuple[bytes, ...]:
        """The words that tell where the job starts again, by the log's first block."""
        return self.shapes.begins(text, lambda _: self.ending.went_on())

    def take(self, raw: bytes) -> None:
        """Read the next line."""
        text, shape = self.shapes.of(raw)
        said = text[shape.prefix :]
        printed = [(place.writer, record) for place in shape.records if (record := place.read(text)) is not None]
        if shape.is_of_run and (ran := whole_run(said)) is not None:
            printed.append((WHOLE_RUN, ran))
        for writer, record in printed:
            self.records[writer].append(record)
        loop, is_event = self.loop, shape.is_of_run and self.whole.take(said)
        if is_event or printed or (not shape.is_of_nccl and loop.take_text(text, shape.who, shape.loop)):
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


def _read(source: Source) -> TrainingLog:
    of = _Readers()
    for raw in log_lines(source.path, source.member, of.reads_on, of.shapes.is_known, of.begins):
        of.take(raw)
    records, timers, communication, ending = of.records, of.timers, of.communication, of.ending
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
        [len(job) for job in jobs_at_once(records.get(writer, ()))],
        joined,
        run,
        ending.nan_lines,
        are_means,
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
    records: dict[str, list[LoggedRecord]],
    of_loop: list[LoggedRecord],
    benchmark: list[LoggedRecord],
    bars: BarLines,
    loop: LoopLines,
) -> tuple[str, Timed]:
    """Iterations of one writer from the best source: printed times, those `of_loop`, those of a `benchmark`, clocks,
    bars, lines of a loop that only a clock times, the run's mean, epochs.
    """
    printed = {of: lines for of, lines in records.items() if lines[0].ms is not None and of != WHOLE_RUN}
    if printed:
        writer = max(printed, key=lambda of: len(printed[of]))
        return writer, by_lines(once_each(printed[writer]))
    drawn_by, drawn = bars.longest()
    if of_loop:
        timed = (by_clock if of_loop[0].ms is None else by_lines)(once_each(of_loop))
        of_bar = by_clock(once_each(drawn)) if drawn_by not in ("", UNNAMED) and not timed.lapses else Timed()
        # A bar is the clock of lines that have none
        return (drawn_by, of_bar) if len(of_bar.iterations) > len(timed.iterations) else (WRITER, timed)
    if benchmark:
        return BENCHMARK, by_lines(benchmark)
    stamped = {of: lines for of, lines in records.items() if lines[0].ms is None}
    for writer, lines in (*stamped.items(), (drawn_by, drawn), (WRITER, loop.clocked())):
        if (timed := by_clock(once_each(lines))).iterations:
            return writer, timed
    if WHOLE_RUN in records:
        return WHOLE_RUN, by_lines(records[WHOLE_RUN][-1:])
    if drawn and drawn_by != UNNAMED:
        return drawn_by, by_rate(drawn)
    return (EPOCHS, loop.epochs.timed()) if loop.epochs.are_there else ("", Timed())


def _sizes_of(text: str) -> dict[str, int]:
    """Sizes of the job and its groups, as Megatron prints them before it begins: "world", "tensor", "pipeline",
    "context", "expert", "data", and of batches "micro", "global".
    """
    sizes = {}
    for stated in _STATED.finditer(f"{text} "):
        size = one_rank(stated["size"])
        if size:
            sizes[re.split("[-_]", stated["what"])[0]] = size
    return sizes
