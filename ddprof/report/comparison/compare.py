"""Two reports side by side: which cause changed, by how much, against the noise of their steps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput, UsageError
from ddprof.findings import Finding
from ddprof.report.model import Report, step_causes
from ddprof.significance import LEAST_STEPS, TAIL, difference_interval, quantile
from ddprof.units import format_share, format_us
from ddprof.untrusted.secrets import masked_data

# Change of the step by step timers of the whole run, which outvote a traced window of a few steps.
#
# Each run is divided into equal parts, and the means of the parts are compared by Welch's t (batch means, which allow
# for correlated steps). Parts that are still correlated count for fewer (AR(1)). Where ranks were ready but had no CPU,
# a change no larger than that time may be due to the machine.

# Of the time that ranks waited for a CPU, what may be the machine's part of a change. Swept on 101 jobs of two ranks on
# a busy machine (2026-11-24), first half of each against the second: at 0, 0.25, 0.5, 0.75, 1 of it 15, 8, 5, 1, 1 are
# called different; of gains of 50 % 71, 61, 45, 34, 23 are.
WAITED = 0.75

Interval = tuple[float, float]


def timed_step_us(report: Report) -> float | None:
    """Mean step outside the trace windows, us; None where too few steps were timed."""
    parts = _parts(report)
    return float(parts.mean()) if len(parts) > 1 else None


def timed_interval(before: Report, after: Report) -> Interval | None:
    """95 % interval of the change of that mean, us; None where a run has none."""
    first, second = _parts(before), _parts(after)
    if min(len(first), len(second)) < 2:
        return None
    change = float(second.mean() - first.mean())
    variances = [_of_mean(parts) for parts in (first, second)]
    total = sum(variance for variance, _ in variances)
    weights = sum(variance**2 / degrees for variance, degrees in variances)
    degrees = max(1, int(total**2 / weights)) if weights > 0 else len(first) + len(second) - 2
    margin = quantile(TAIL, degrees) * math.sqrt(total) + max(waited_us(before), waited_us(after))
    return change - margin, change + margin


def timed_mean_interval(report: Report) -> Interval | None:
    """95 % interval of that mean of one run, us; None where it has none."""
    parts = _parts(report)
    if len(parts) < 2:
        return None
    variance, degrees = _of_mean(parts)
    margin = quantile(TAIL, max(1, int(degrees))) * math.sqrt(variance) + waited_us(report)
    return float(parts.mean()) - margin, float(parts.mean()) + margin


def waited_us(report: Report) -> float:
    """Part of the step that ranks may have waited for a CPU, us per step; 0 where it was not recorded."""
    return WAITED * (report.steps.waited_share or 0.0) * (timed_step_us(report) or report.steps.wall_us)


def _parts(report: Report) -> npt.NDArray[np.float64]:
    parts = np.asarray(report.steps.timed_us, np.float64)
    return parts[np.isfinite(parts)]


def _of_mean(parts: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Variance of the mean over a run's parts, and its degrees of freedom."""
    rest = parts - parts.mean()
    power = float(rest @ rest)
    follows = max(0.0, float(rest[1:] @ rest[:-1]) / power) if power > 0 else 0.0
    count = max(2.0, len(parts) * (1 - follows) / (1 + follows))
    return power / (len(parts) - 1) / count, count - 1


SCHEMA = "ddprof.compare/1"
LEAST_SHARE = 0.01  # of the step: a smaller change is "same", however certain
_EQUAL = 0.02  # of a ratio: batches of an epoch's end make the typical step a little smaller
# Optimizers that divide by the size of the gradients: theory and practice scale their rate by the square root.
_ADAPTIVE = ("adam", "adagrad", "rmsprop", "lion", "lamb", "novograd", "adafactor")
_LINEAR = "Goyal 2017"
_ROOT = "Malladi 2022"


@dataclass(frozen=True)
class Delta:
    """One quantity before and after, microseconds per step; `low_us` and `high_us` bound the change at 95 %."""

    name: str
    before_us: float
    after_us: float
    low_us: float | None
    high_us: float | None
    # "slower" | "faster" | "same" (too small to matter) | "noise" (may be chance) | "unknown" (too few steps)
    # | "disagree" (the timers of the whole run say one, the traced steps the other)
    outcome: str

    @property
    def change_us(self) -> float:
        """Change of the quantity, after minus before."""
        return self.after_us - self.before_us


@dataclass(frozen=True)
class Comparison:
    """The change between two runs. `differences`: reasons why they may not be comparable.

    `step`: by the timers of the whole runs where both have enough of them (`is_timed`), else by the traced steps.
    """

    before: Report
    after: Report
    step: Delta
    causes: tuple[Delta, ...]  # the largest change first; those with any time in either run
    gone: tuple[Finding, ...]
    new: tuple[Finding, ...]
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    scaling: Scaling | None  # where the runs differ in their number of ranks
    traced: Delta  # the step by the traced steps

    @property
    def is_timed(self) -> bool:
        """True where the step timers of the whole runs decide."""
        return self.step is not self.traced


def compare(before: Report, after: Report) -> Comparison:
    """Compare two runs. Raises NoUsableInput where one has no measured step."""
    for report in (before, after):
        if not (math.isfinite(report.steps.wall_us) and report.steps.wall_us > 0):
            raise NoUsableInput(f"{report.run.name or 'a run'} has no measured step: nothing to compare")
    traced = _traced_step(before, after)
    step = _timed_step(before, after, traced) or traced
    first, second, jobs = step_causes(before), step_causes(after), (before.ledger.job, after.ledger.job)
    causes = []
    for cause in CAUSES:
        was_us, now_us = (job.get(cause, 0.0) for job in jobs)
        if was_us > 0 or now_us > 0:
            steps = first.get(cause, ()), second.get(cause, ())
            causes.append(delta_of(cause, was_us, now_us, *steps, before.steps.wall_us))
    old, fresh = _serious(before), _serious(after)
    scaled, run, other = scaling(before, after), before.run, after.run
    pairs = (
        ("ranks", run.world_size, other.world_size),
        ("device", run.device, other.device),
        ("device", run.device_name, other.device_name),
        ("backend", run.backend, other.backend),
        ("parallelism", " + ".join(run.framework), " + ".join(other.framework)),
    )
    return Comparison(
        before=before,
        after=after,
        step=step,
        causes=tuple(sorted(causes, key=lambda d: -abs(d.change_us))),
        gone=tuple(f for key, f in old.items() if key not in fresh),
        new=tuple(f for key, f in fresh.items() if key not in old),
        differences=tuple(f"{what}: {one} against {two}" for what, one, two in pairs if one and two and one != two),
        notes=(*_notes(before, after, scaled), *_timer_notes(before, after, step, traced)),
        scaling=scaled,
        traced=traced,
    )


def _traced_step(before: Report, after: Report) -> Delta:
    """The change of the traced step, its interval widened by the time that a busy machine may have cost either run."""
    first, second = before.steps, after.steps
    delta = delta_of("step", first.wall_us, second.wall_us, first.per_step_us, second.per_step_us, first.wall_us)
    margin_us = max(waited_us(before), waited_us(after))
    if delta.low_us is None or delta.high_us is None or not margin_us:
        return delta
    low_us, high_us = delta.low_us - margin_us, delta.high_us + margin_us
    outcome = _outcome(delta.change_us, (low_us, high_us), delta.before_us)
    return replace(delta, low_us=low_us, high_us=high_us, outcome=outcome)


def _timed_step(before: Report, after: Report, traced: Delta) -> Delta | None:
    """The change of the step by whole-run timers; undecided where the traced steps contradict them."""
    first, second, interval = timed_step_us(before), timed_step_us(after), timed_interval(before, after)
    if first is None or second is None or interval is None:
        return None
    outcome = _outcome(second - first, interval, first)
    if {outcome, traced.outcome} == {"slower", "faster"}:
        outcome = "disagree"
    return Delta("step", first, second, *interval, outcome)


def _timer_notes(before: Report, after: Report, step: Delta, traced: Delta) -> Iterator[str]:
    if step is not traced:
        timed = f"{before.steps.timed} and {after.steps.timed} steps outside the trace windows"
        yield f"the whole run's step is the mean of {timed}; causes are of the traced steps"
    if step.outcome != traced.outcome and traced.outcome in ("slower", "faster"):
        words = f"{format_us(abs(traced.change_us))} {traced.outcome}"
        yield f"the traced steps alone were {words}; those of the whole run do not show that"
    waited = [report.steps.waited_share or 0.0 for report in (before, after)]
    if max(waited) >= LEAST_SHARE:
        shares = " and ".join(map(format_share, waited))
        yield f"ranks waited for a CPU for {shares} of the time: smaller changes are not judged"


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The JSON-ready document (schema "ddprof.compare/1"); times in microseconds."""
    document = {
        "schema": SCHEMA,
        "before": comparison.before.run.name,
        "after": comparison.after.run.name,
        "comparable": not comparison.differences,
        "differences": list(comparison.differences),
        "notes": list(comparison.notes),
        "scaling": None if comparison.scaling is None else asdict(comparison.scaling),
        "step": _delta_json(comparison.step),
        "step_by": "timers" if comparison.is_timed else "traced steps",
        "traced_step": _delta_json(comparison.traced),
        "causes": [_delta_json(delta) for delta in comparison.causes],
        "findings_gone": [{"id": f.id, "ranks": list(f.ranks), "summary": f.summary} for f in comparison.gone],
        "findings_new": [{"id": f.id, "ranks": list(f.ranks), "summary": f.summary} for f in comparison.new],
    }
    return masked_data(document)


def delta_of(
    name: str, before_us: float, after_us: float, first: Sequence[float], second: Sequence[float], scale_us: float
) -> Delta:
    """The change of one quantity with the interval of its steps; `scale_us`: the step time it is judged against."""
    interval = difference_interval(first, second)
    change_us = after_us - before_us
    low, high = interval if interval else (None, None)
    return Delta(name, before_us, after_us, low, high, _outcome(change_us, interval, scale_us))


def _outcome(change_us: float, interval: tuple[float, float] | None, scale_us: float) -> str:
    if abs(change_us) < LEAST_SHARE * scale_us:
        return "same"
    if interval is None:
        return "unknown"
    if interval[0] <= 0 <= interval[1]:
        return "noise"
    return "slower" if change_us > 0 else "faster"


def _serious(report: Report) -> dict[tuple[str, tuple[int, ...]], Finding]:
    return {(f.id, f.ranks): f for f in report.ranked_findings() if report.severity_of(f) != "info"}


def _notes(before: Report, after: Report, scaled: Scaling | None) -> list[str]:
    notes = [] if scaled is None else [scaling_words(scaled)]
    notes += filter(None, [batch_words(before, after)])
    for label, report in (("before", before), ("after", after)):
        if report.steps.count < LEAST_STEPS:
            only = f"{label}: only {report.steps.count} step(s), so the noise is unknown"
            notes.append(f"{only}; trace {LEAST_STEPS} or more")
        if report.run.missing_ranks:
            notes.append(f"{label}: {len(report.run.missing_ranks)} of {report.run.world_size} ranks are missing")
    if before.steps.source != after.steps.source:
        notes.append(f"steps were identified differently: {before.steps.source} against {after.steps.source}")
    if not (step_causes(before) and step_causes(after)):
        notes.append("the steps of a run are not stored by cause, so only the step's own noise is known")
    return notes


def _delta_json(delta: Delta) -> dict[str, Any]:
    sides, bounds = (delta.before_us, delta.after_us, delta.change_us), (delta.low_us, delta.high_us)
    rounded = [None if value is None else round(value, 3) for value in (*sides, *bounds)]
    names = ("before_us", "after_us", "change_us", "low_us", "high_us")
    return {"name": delta.name, **dict(zip(names, rounded, strict=True)), "outcome": delta.outcome}


@dataclass(frozen=True)
class Scaling:
    """Scaling from `small` to `large` ranks: weak and strong efficiency as POP defines them. The batch, which the steps
    do not show, decides which applies.
    """

    small: int
    large: int
    weak: float  # each rank keeps its batch: the step should stay as long
    strong: float  # all ranks share one batch: the step should shrink with their number


def scaling(before: Report, after: Report) -> Scaling | None:
    """The scaling between two runs; None where the numbers of ranks are equal or the devices differ."""
    first, second = before.run, after.run
    if first.world_size == second.world_size or first.device_name != second.device_name:
        return None
    small, large = (before, after) if first.world_size < second.world_size else (after, before)
    weak = small.steps.wall_us / large.steps.wall_us
    ratio = large.run.world_size / small.run.world_size
    return Scaling(small.run.world_size, large.run.world_size, weak, weak / ratio)


def scaling_words(measured: Scaling) -> str:
    """The scaling in one sentence."""
    return (
        f"efficiency from {measured.small} to {measured.large} ranks: {format_share(measured.weak)} if each rank keeps "
        f"its batch (weak scaling), {format_share(measured.strong)} if they share it (strong scaling)"
    )


def batch_words(before: Report, after: Report) -> str:
    """Change of the global batch where the numbers of ranks differ, in words; "" where they do not or it is unknown."""
    first, second = before.training, after.training
    old, new = first.samples_per_step, second.samples_per_step
    if before.run.world_size == after.run.world_size or not old or not new:
        return ""
    ratio = new / old
    if abs(ratio - 1) <= _EQUAL:
        return f"an optimizer step takes {old:g} samples in both runs: the learning rate need not change with the ranks"
    words = f"an optimizer step takes {new:g} samples instead of {old:g}"
    rates = first.learning_rate, second.learning_rate
    if not rates[0] or not rates[1]:
        return words + ": its learning rate is not known"
    return f"{words}; {_rate_words(rates[0], rates[1], ratio, first.optimizer)}"


def scaled_rate(rate: float, ratio: float, optimizer: str) -> tuple[float, str]:
    """The usual learning rate for a batch larger by `ratio`, and the rule that gives it, in words."""
    if any(name in optimizer.lower() for name in _ADAPTIVE):
        return rate * math.sqrt(ratio), f"by the square root rule ({_ROOT})"
    return rate * ratio, f"by the linear rule ({_LINEAR}, with a warm-up)"


def _rate_words(old: float, new: float, ratio: float, optimizer: str) -> str:
    usual, rule = scaled_rate(old, ratio, optimizer)
    rates = f"the learning rate stayed {old:g}" if new == old else f"the learning rate went from {old:g} to {new:g}"
    if math.isclose(new, usual, rel_tol=_EQUAL):
        return f"{rates}, as {rule}"
    return f"{rates}, {rule} it would be {usual:.3g}"


_LIMIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%|us|ms|s)")
_UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def parse_limit(text: str, name: str) -> tuple[float, str]:
    """Parse a limit: "5%" -> (5.0, "%"). Raises UsageError, naming the option `name`."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{name} {text}: want a share or a time per step, like 5% or 10ms")
    return float(match.group(1)), match.group(2)


def regressions(comparison: Comparison, limit: tuple[float, str]) -> list[str]:
    """The slowdown in words where it exceeds the limit and the noise (or the noise is unknown), else nothing."""
    value, unit = limit
    step = comparison.step
    allowed_us = step.before_us * value / 100 if unit == "%" else value * _UNITS_US[unit]
    is_noise = step.low_us is not None and step.low_us <= 0
    if step.change_us <= allowed_us or is_noise or step.outcome in ("noise", "disagree"):
        return []
    share = step.change_us / step.before_us
    return [f"the step is {format_us(step.change_us)} ({format_share(share)}) slower, allowed is {value:g}{unit}"]
