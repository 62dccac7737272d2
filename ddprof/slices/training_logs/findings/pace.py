"""The pace of a run: time and spread of its iterations, and findings on slow iterations, a run that became slow, pauses
beside iterations, and printed means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from statistics import median, median_low, quantiles

import numpy as np

from ddprof.findings import CRITICAL_SHARE, WARNING_SHARE, severity
from ddprof.report.log_reading import LogFinding
from ddprof.significance import change_point
from ddprof.slices.training_logs.model import DECILES_FROM, IterationSummary, LoggedIteration, LoggedRun, TrainingLog
from ddprof.slices.training_logs.reading.bars import UNNAMED
from ddprof.slices.training_logs.reading.iterations import stride
from ddprof.slices.training_logs.reading.loops import WRITER
from ddprof.slices.training_logs.reading.times import EPOCHS
from ddprof.tables import Array
from ddprof.units import format_count, format_share, format_us

RUNS, EPOCH = "runs", "epoch"
_NAMED = 5  # of slow iterations, in evidence
# Distances between slow iterations that are the same: four in five are no chance where one in ten is slow.
ALIKE, FEWEST_ALIKE = 0.8, 4
_FEWEST_IN_THIRD = 3
RHYTHMIC_SHARE = 0.01  # of the time: 36 s of each hour, as collections of garbage have cost (marin#9205)
# Robust standard deviations beyond the median: 1.4826 times the median deviation is one of a normal distribution, and
# beyond five lies one of three million.
OUTLIER = 5 * 1.4826


def findings_of(log: TrainingLog, summary: IterationSummary | None, loading: float) -> Iterator[LogFinding]:
    """Findings on the pace; slow iterations are graded by what loading, of this share, does not explain of them."""
    if summary is not None:
        yield from _restarts(log, summary)
        of_runs = list(_runs(log, summary))
        yield from of_runs
        yield from _jobs(log)
        if log.nan_lines >= DECILES_FROM:
            what = "The loss, or the norm of the gradients, is not a number (nan)"
            text = f"{what} in the last {log.nan_lines} lines: their time is spent for nothing"
            yield LogFinding("nan_loss", "critical", text, min(1.0, log.nan_lines / summary.lines))
        since = _since(summary, log.iterations)
        usual = stride([iteration.number for iteration in log.iterations])
        is_one = not any(finding.severity == "warning" for finding in of_runs)  # else no time is usual
        if since is None and not of_runs:
            since = _shifted(log.iterations)
        if is_one and since is None:
            yield from _uneven(summary, loading, usual)
            yield from _longer(log.iterations[1:], summary.unit)
            yield from _faster(log.iterations[1:], summary.unit)
        elif is_one and since is not None:
            yield from _slower(since, log.iterations, summary.unit)
        yield from _pauses(log, summary)
    yield from _printed_means(log)
    if log.run is not None:
        yield from _beside_training(log.run)


def _beside_training(run: LoggedRun) -> Iterator[LogFinding]:
    """Findings on evaluation, and on a beginning as long as a good part of the run."""
    share = run.evaluations_ms / run.ms if run.ms else 0.0
    if share >= WARNING_SHARE:
        each = format_us(run.evaluations_ms / run.evaluations * 1e3)
        text = (
            f"Evaluation takes {format_share(share)} of the run ({format_count(run.evaluations, 'time')}, {each} each)"
        )
        yield LogFinding("evaluation", severity(share, 1.0), text, share)
    share = run.beside_ms / run.ms if run.ms else 0.0
    if share >= WARNING_SHARE:
        text = f"{format_share(share)} of the time passes beside the training steps, by the log's own totals"
        evidence = ("batches that come late, validation and saving are in it",)
        yield LogFinding("beside_steps", severity(share, 1.0), text, share, (), evidence)
    share = run.before_ms / (run.before_ms + run.ms) if run.ms else 0.0
    if share >= WARNING_SHARE:
        text = f"The job takes {format_us(run.before_ms * 1e3)} to begin, {format_share(share)} of it"
        yield LogFinding("beginning", "info", text, share, (), ("starting, building and compiling, before the run",))


def _restarts(log: TrainingLog, summary: IterationSummary) -> Iterator[LogFinding]:
    """A finding on iterations done again from a checkpoint; a loop counts anew in each epoch, another run from 1."""
    if {WRITER, EPOCHS, "Lightning", "tqdm", UNNAMED}.intersection(log.writers):
        return
    falls = [(a.number, b.number) for a, b in pairwise(log.iterations) if 2 * summary.every < b.number <= a.number]
    again = sum(last - first + 1 for last, first in falls)
    share = again / (summary.lines * summary.every)
    if share < WARNING_SHARE:
        return
    text = (
        f"The job went back to a checkpoint {format_count(len(falls), 'time')} and did "
        f"{format_count(again, 'iteration')} again, {format_share(share)} of all"
    )
    back = ", ".join(f"{last} to {first}" for last, first in falls[:_NAMED])
    evidence = (f"from iteration {back}", "what ended it, and how often it saves, decide what that costs")
    yield LogFinding("restarts", severity(share, 1.0), text, share, (), evidence)


def _runs(log: TrainingLog, summary: IterationSummary) -> Iterator[LogFinding]:
    """A finding on a log that begins again with its first iteration, and then at another pace: no time is typical of
    both. Parts (epochs, too) are told apart where the deciles of one lie beyond those of another, by what is worth it.
    """
    numbers = np.array([iteration.number for iteration in log.iterations])
    starts = (np.flatnonzero(numbers[1:] <= np.minimum(numbers[:-1], 2 * summary.every)) + 1).tolist()
    if not starts:
        return
    anew = [at for at in starts if not log.iterations[at].goes_on]
    starts = anew or starts  # each time in the next epoch
    parts = [log.iterations[a:b] for a, b in pairwise((0, *starts, len(log.iterations)))]
    times = [[i.mean_ms for i in part[1:]] for part in parts if len(part) > FEWEST_ALIKE]
    deciles = [quantiles(ms, n=10) if len(ms) >= DECILES_FROM else (min(ms), max(ms)) for ms in times]
    if len(deciles) < 2 or max(low for low, *_ in deciles) <= (1 + WARNING_SHARE) * min(high for *_, high in deciles):
        return
    medians = [median(ms) for ms in times]
    paces = " to ".join(format_us(ms * 1e3) for ms in (min(medians), max(medians)))
    text = (
        f"The log counts its {summary.unit}s from the start {format_count(len(parts), 'time')}, and they take {paces}"
    )
    if not anew:
        yield LogFinding(RUNS, "info", text, 0.0, (), ("its epochs are of unlike work, or of another pace",))
        return
    each = [f"{format_us(median(ms) * 1e3)} ({format_count(len(ms), 'line')})" for ms in times]
    evidence = (
        ", then ".join([*each[:_NAMED], *(["..."] if len(each) > _NAMED else [])]),
        "several runs in one file, or epochs of unlike work: give each run as a file of its own",
    )
    yield LogFinding(RUNS, "warning", text, 0.0, (), evidence)


def _jobs(log: TrainingLog) -> Iterator[LogFinding]:
    """A finding where several jobs wrote one file at the same time, each with enough lines for deciles."""
    jobs = sum(lines >= DECILES_FROM for lines in log.at_once)
    if jobs < 2:
        return
    text = f"{jobs} jobs or more wrote the log at the same time: iterations are of the one with most lines"
    evidence = ("what else the log states may be of any of them: give each job a file of its own",)
    yield LogFinding("jobs", "warning", text, 0.0, (), evidence)


def _since(summary: IterationSummary, iterations: Sequence[LoggedIteration]) -> int | None:
    """Place of the first slow iteration that nearly all are slow after, to the end of the log; None without one."""
    if len(summary.slow) < FEWEST_ALIKE:
        return None
    slowest = {id(iteration) for iteration in summary.slow}  # numbers come again in each epoch
    since, slow, of_them = None, 0, 0
    for at in range(len(iterations) - 1, -1, -1):
        if id(iterations[at]) in slowest:
            slow += 1
            if slow >= ALIKE * (len(iterations) - at):
                since, of_them = at, slow
    return since if of_them >= FEWEST_ALIKE else None


def _shifted(iterations: Sequence[LoggedIteration]) -> int | None:
    """Place from which on nearly all take longer than before by CRITICAL_SHARE, where so many do that it is usual;
    neither part grows by half of that in itself, as with a schedule of lengths. None without one."""
    ms = np.array([iteration.mean_ms for iteration in iterations])
    at = change_point(np.log(np.maximum(ms[1:], 1e-9)))
    if at is None:
        return None
    before, after = ms[1 : at + 1], ms[at + 1 :]
    bound_ms = max(_usual_ms(before), (1 + WARNING_SHARE) * float(np.median(before)))
    shift_ms = float(np.median(after) - np.median(before))
    grown_ms = [abs(float(np.median(half[1]) - np.median(half[0]))) for half in map(_halves, (before, after))]
    is_shift = np.mean(after > bound_ms) >= ALIKE and shift_ms >= CRITICAL_SHARE * float(np.median(after))
    if not is_shift or max(grown_ms) >= shift_ms / 2:
        return None
    is_slow = ms > bound_ms
    since = at + 1 + int(np.argmax(is_slow[at + 1 :]))
    since -= int(np.argmin(is_slow[since::-1])) - 1  # to the first of those that are slow together
    numbers = [iteration.number for iteration in iterations]
    is_near = numbers[since] - numbers[since - 1] <= 2 * stride(numbers)  # else it lies between lines that are lost
    return since if is_near else None


def _halves(ms: Array) -> tuple[Array, Array]:
    return ms[: -(-len(ms) // 2)], ms[len(ms) // 2 :]


def _slower(since: int, iterations: Sequence[LoggedIteration], unit: str) -> Iterator[LogFinding]:
    before, after = (median(i.mean_ms for i in part) for part in (iterations[:since], iterations[since:]))
    share = 1 - before / after
    text = (
        f"From {unit} {iterations[since].number} to the end of the log one takes {format_us(after * 1e3)}, "
        f"{format_us(before * 1e3)} before"
    )
    evidence = ("what the log says around its beginning, and what else ran on the hosts then, may say why",)
    yield LogFinding("slower_since", severity(share, 1.0), text, share, (), evidence)


def _longer(iterations: Sequence[LoggedIteration], unit: str) -> Iterator[LogFinding]:
    """A finding on iterations that become longer, each third beyond the one before: chance does that in 1 of 1,680."""
    third = len(iterations) // 3
    if third < _FEWEST_IN_THIRD:
        return
    parts = [[i.mean_ms for i in iterations[at : at + third]] for at in (0, third, len(iterations) - third)]
    first, _, last = [_deciles(part) for part in parts]
    paces = [median(part) for part in parts]
    if last[0] <= (1 + WARNING_SHARE) * first[-1] or not paces[0] < paces[1] < paces[2]:
        return
    begun, then, ended = (format_us(ms * 1e3) for ms in paces)
    text = (
        f"{unit.capitalize()}s become longer: {begun} in the first third of the log, then {then}, {ended} in the last"
    )
    evidence = ("a schedule of lengths or batches does that, and so does what grows with each iteration",)
    yield LogFinding("longer", "warning", text, 1 - paces[0] / paces[2], (), evidence)  # may be meant


def _faster(iterations: Sequence[LoggedIteration], unit: str) -> Iterator[LogFinding]:
    """A finding on iterations that from one on all take half the time and less, but for one between: what could be."""
    ms = [iteration.mean_ms for iteration in iterations]
    least, most = list(accumulate(ms, min)), list(accumulate(reversed(ms), max))[::-1]
    ends = range(FEWEST_ALIKE, len(ms) - FEWEST_ALIKE)
    between = next((at for at in ends if least[at - 1] >= 2 * most[at + 1]), None)
    if between is None:
        return
    since = between + (least[between - 1] < 2 * ms[between])
    before, after = median(ms[:between]), median(ms[since:])
    text = (
        f"From {unit} {iterations[since].number} to the end of the log one takes {format_us(after * 1e3)}, "
        f"{format_us(before * 1e3)} before: what held the first ones cost {format_share(1 - after / before)} of it"
    )
    evidence = ("batches that are read for the first time, another job, or a schedule of lengths do that",)
    yield LogFinding("faster_since", "warning", text, 1 - after / before, (), evidence)  # may be meant


def _deciles(times: Sequence[float]) -> list[float]:
    """The first to the last decile; of few times the shortest and the longest."""
    return quantiles(times, n=10, method="inclusive") if len(times) >= DECILES_FROM else [min(times), max(times)]


def _uneven(summary: IterationSummary, loading: float, stride: int) -> Iterator[LogFinding]:
    if not summary.slow:
        return
    slowest = _longest([(iteration.number, iteration.mean_ms) for iteration in summary.slow])
    what = f"logged {summary.unit}s" if summary.every == 1 else f"logged means of {summary.every} {summary.unit}s"
    verb = "is" if len(summary.slow) == 1 else "are"
    period = period_of([iteration.number for iteration in summary.slow], stride)
    often = f", one in every {period}," if period else ""
    if not period:
        far_ms = (max(iteration.mean_ms for iteration in summary.slow) + summary.median_ms) / 2
        longest = [iteration.number for iteration in summary.slow if iteration.mean_ms > far_ms]
        period = period_of(longest, stride)
        often = f", the longest one in every {period}," if period else ""
    text = (
        f"{len(summary.slow)} of {summary.counted} {what}{often} {verb} far above the usual "
        f"{format_us(summary.median_ms * 1e3)}, which costs {format_share(summary.slow_share)} of the time"
    )
    evidence = [slowest]
    if period:
        evidence.append("evaluation and saving come at such distances: the lines before them may say which")
    if loading >= summary.slow_share:
        evidence.append("loading takes as much, and may be what they wait for")
    grade = severity(max(0.0, summary.slow_share - loading), 1.0)
    yield LogFinding("uneven_iterations", grade, text, summary.slow_share, (), tuple(evidence))


def _pauses(log: TrainingLog, summary: IterationSummary) -> Iterator[LogFinding]:
    """A finding on time by the clock that no printed time holds, longer than an iteration and than other lapses."""
    lapses = list(log.lapses)
    longest = max(lapses, key=lambda lapse: lapse[1] - lapse[2], default=None)
    others_ms = sum(lapse[1] for lapse in lapses) - longest[1] if longest is not None else 0.0
    if longest is not None and len(lapses) > 1 and longest[1] - longest[2] > others_ms:  # of two, one is longer
        lapses.remove(longest)
        text = (
            f"{format_us(longest[1] * 1e3)} lie before {summary.unit} {longest[0]}, more than between all other lines: "
            "the job may have been stopped, and is judged without them"
        )
        yield LogFinding("stop", "info", text, 0.0)
    yield from _between(lapses, summary)


def _between(lapses: Sequence[tuple[int, float, float]], summary: IterationSummary) -> Iterator[LogFinding]:
    lapsed_ms = sum(lapse_ms for _, lapse_ms, _ in lapses)  # none where all lines were written at once
    beside = [(number, lapse_ms - ms) for number, lapse_ms, ms in lapses if lapsed_ms]
    usual = median(ms for _, ms in beside) if beside else 0.0
    bound = usual + max(OUTLIER * median(abs(ms - usual) for _, ms in beside), summary.median_ms) if beside else 0.0
    pauses = [(number, ms) for number, ms in beside if ms > bound]
    share = sum(ms - usual for _, ms in pauses) / lapsed_ms if pauses else 0.0
    unprinted = usual * len(beside) / lapsed_ms if beside else 0.0
    if unprinted > CRITICAL_SHARE:
        text = f"{format_share(unprinted)} of the time by the lines' clock is in no time that they print"
        why = "each printed time is of one iteration: those between may be longer, or other work lies there"
        yield LogFinding("pauses", "warning", text, unprinted, (), (why,))  # two readings, of which one may be wrong
    if not pauses or share < RHYTHMIC_SHARE:
        return
    longest, every = max(ms for _, ms in pauses), round(median(b - a for (a, *_), (b, *_) in pairwise(lapses)))
    period = period_of([number for number, ms in pauses if 2 * ms > longest], every)
    if share < WARNING_SHARE and not period:
        return
    often = f", the long ones every {period} or so" if period else ""
    verb = "costs" if len(pauses) == 1 else "cost"
    text = (
        f"{format_count(len(pauses), 'pause')} between {summary.unit}s {verb} {format_share(share)} of the time{often}"
    )
    evidence = (
        f"by the lines' clock, before {summary.unit} {_longest(pauses)}",
        "saving, evaluation or a data set that begins again: the lines before them say which",
    )
    grade = severity(share, 1.0) if len(pauses) > 1 else "info"  # may never come again
    yield LogFinding("pauses", grade, text, share, (), evidence)


def _longest(times: Sequence[tuple[int, float]]) -> str:
    worst = sorted(times, key=lambda time: -time[1])[:_NAMED]
    return ", ".join(f"{number} ({format_us(ms * 1e3)})" for number, ms in worst)


def _printed_means(log: TrainingLog) -> Iterator[LogFinding]:
    """Findings on printed times that cannot be of one iteration; the clock is used instead."""
    if not log.means:
        return
    number, printed_ms, ms = log.means[0]
    more = f", and {len(log.means) - 1} more, print" if len(log.means) > 1 else " prints"
    of_many = ", or one of many" if stride([iteration.number for iteration in log.iterations]) > 1 else ""
    text = (
        f"Iteration {number}{more} {format_us(printed_ms * 1e3)}, a mean over earlier ones{of_many}; by the time "
        f"stamps it takes {format_us(ms * 1e3)}, which is used"
    )
    yield LogFinding("printed_mean", "info", text, 0.0, (), ())


def summarise(log: TrainingLog) -> IterationSummary | None:
    """Summary without warm-up: the first line of each start, slow ones after the very first; of all if none remain."""
    iterations = log.iterations
    if not iterations:
        return None
    numbers = np.array([iteration.number for iteration in iterations])
    ms = np.array([iteration.mean_ms for iteration in iterations])
    steps = np.diff(numbers)
    later = np.flatnonzero(steps > 0) + 1
    rows = later if len(later) else np.arange(len(ms))
    warm = int(np.argmax(ms[rows] <= _usual_ms(ms[rows]))) if len(later) else 0
    rows = rows[warm:]
    counted, times_ms = [iterations[row] for row in rows.tolist()], np.sort(ms[rows])
    times = times_ms.tolist()
    middle = _middle(times)
    bound = max(_usual_ms(times_ms), (1 + WARNING_SHARE) * middle)
    slow = (
        [one for one in counted if one.mean_ms - one.grain_ms > bound] if len(times) > 2 and times[-1] > bound else []
    )
    deciles = _deciles(times)
    rates = [iteration.tflops for iteration in counted if iteration.tflops is not None]
    batches = [iteration.batch / iteration.mean_ms * 1e3 for iteration in counted if iteration.batch is not None]
    kinds, first, often = np.unique(steps, return_index=True, return_counts=True)
    every = max(1, int(kinds[np.lexsort((first, -often))[0]])) if len(steps) else 1
    apart = {}
    if log.are_means:
        apart = {b.number: max(1, b.number - a.number) for a, b in pairwise(iterations)}
    is_of_one = WRITER in log.writers and not log.are_means  # however few are printed
    excess_ms = sum((iteration.mean_ms - middle) * apart.get(iteration.number, 1) for iteration in slow)
    # Where slow iterations come at a distance of their own, a multiple of the lines', all between lines are usual.
    is_in_step = is_of_one and period_of([iteration.number for iteration in slow], every)
    unlogged_ms = (every - 1) * middle * len(counted) if is_in_step else 0.0
    return IterationSummary(
        lines=len(iterations),
        counted=len(counted),
        every=1 if is_of_one else every,
        median_ms=middle,
        low_ms=deciles[0],
        high_ms=deciles[-1],
        mean_ms=sum(one.mean_ms for one in counted) / len(times),
        slow=tuple(slow),
        slow_share=excess_ms / (sum(one.mean_ms * apart.get(one.number, 1) for one in counted) + unlogged_ms),
        printed_mean_ms=sum(iteration.printed_ms or iteration.mean_ms for iteration in counted) / len(counted),
        tflops=median(rates) if rates else None,
        samples_per_s=median(batches) if batches else None,
        unit=unit_of(log),
    )


def unit_of(log: TrainingLog) -> str:
    """The name of what the log counts: a bar that nobody labels may be of anything."""
    return EPOCH if EPOCHS in log.writers else "bar step" if UNNAMED in log.writers else "iteration"


def _middle(times: Sequence[float]) -> float:
    """The median; of two kinds in equal numbers one of the shorter, as no iteration is between them."""
    low = median_low(times)
    of_two_kinds = len(times) >= DECILES_FROM and median(times) > (1 + WARNING_SHARE) * low
    return low if of_two_kinds else median(times)


def period_of(numbers: Sequence[int], every: int) -> int | None:
    """Number of iterations from one of these to the next, where most are as far apart; None where they are not."""
    apart = [after - before for before, after in pairwise(numbers)]
    if len(apart) < FEWEST_ALIKE:
        return None
    usual = round(median(apart))
    rounded = every if every > 1 else 0  # one in so many is logged
    alike = sum(abs(steps - usual) <= rounded for steps in apart)
    return usual if alike >= max(FEWEST_ALIKE, ALIKE * len(apart)) and usual > every else None


def _usual_ms(times_ms: Array) -> float:
    """Upper limit of a usual iteration, ms; longer ones are outliers."""
    usual = float(np.median(times_ms))
    return usual + OUTLIER * float(np.median(np.abs(times_ms - usual)))
