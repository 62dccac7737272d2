"""One text log -> its tables."""

from __future__ import annotations

from ddprof.errors import NoUsableInput
from ddprof.readers.source import Source
from ddprof.slices.training_logs.model import LoggedIteration, TrainingLog
from ddprof.slices.training_logs.reading.communication import CommunicationLines
from ddprof.slices.training_logs.reading.iterations import iterations_of
from ddprof.slices.training_logs.reading.lines import log_lines
from ddprof.slices.training_logs.reading.sizes import sizes_of
from ddprof.slices.training_logs.reading.timers import TimerLines, without_microsteps


def read_training_log(source: Source) -> TrainingLog:
    """What a log says, framework by framework. Raises NoUsableInput where no line of it holds a number we know."""
    iterations: list[LoggedIteration] = []
    seen: set[tuple[int, float]] = set()
    writers: set[str] = set()
    timers, communication = TimerLines(), CommunicationLines()
    sizes: dict[str, int] = {}
    for who, text in log_lines(source.path, source.member):
        if "iter" in text or "train_step_timing" in text:
            for writer, iteration in iterations_of(text):
                # Several ranks of one file, or a bar that is drawn again, say the same of the same iteration.
                if (iteration.number, iteration.mean_ms) not in seen:
                    seen.add((iteration.number, iteration.mean_ms))
                    iterations.append(iteration)
                    writers.add(writer)
        timers.take(who, text)
        communication.take(who, text)
        if "parallel" in text:
            sizes.update(sizes_of(text))
    calls, straggling = communication.calls, communication.straggling
    if not (iterations or timers.readings or timers.by_rank or calls or straggling):
        raise NoUsableInput(f"{source.label}: a training log in which no iteration, timer or call is whole")
    writers |= timers.writers | ({"DeepSpeed"} if calls or straggling else set())
    return TrainingLog(
        source.label,
        tuple(sorted(writers)),
        tuple(iterations),
        tuple(without_microsteps(timers.readings)),
        tuple(timers.by_rank),
        tuple(calls),
        tuple(straggling),
        sizes,
    )
