"""Compare: better, or noise? Two runs side by side, each cause with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ddprof.analyzers.kernel_table.model import by_step_us
from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts.exhibit import MOST_CHARS, Exhibit, Named, Sheet, sheet
from ddprof.dashboard.figures.charts import Dumbbells
from ddprof.dashboard.runs.view import View
from ddprof.errors import DdprofError
from ddprof.report import phrases
from ddprof.report.comparison.compare import LEAST_SHARE, Comparison, Delta, compare, delta_of
from ddprof.report.comparison.text import OUTCOME_WORDS, step_rows
from ddprof.report.phrases import clean
from ddprof.units import format_name

Kernel = tuple[str, str]  # name and kind
Series = Mapping[Kernel, Sequence[float]]  # time in every step, us


def has_data(view: View) -> bool:
    """True with at least two runs."""
    return len(view.runs) > 1


def exhibits(view: View) -> Iterator[Exhibit]:
    """The causes before and after, and the findings that disappeared or are new."""
    if len(view.runs) < 2:
        return
    comparison = comparison_of(view)
    yield _causes(comparison)
    yield _kernels(view)
    changed = [("gone", f) for f in comparison.gone] + [("new", f) for f in comparison.new]
    rows = [(change, f.id, phrases.who_words(f), clean(f.summary)) for change, f in changed]
    reading = f"Findings gone: {len(comparison.gone)}; new: {len(comparison.new)}." if rows else "The same findings."
    table = sheet(("change", "finding", "who", "what"), rows)
    yield Exhibit("found", "Which findings went, which came?", reading, table)


def comparison_of(view: View) -> Comparison:
    """Comparison of the address's run with the run it names (the next one by default)."""
    return compare(view.opened.report, view.runs[against(view)].report)


def against(view: View) -> int:
    """Number of the other run of the comparison: the address's, else the next."""
    other = view.number(view.query.get("against", ""))
    return other if other is not None and other != view.run else (view.run + 1) % len(view.runs)


def _causes(comparison: Comparison) -> Exhibit:
    deltas = [*(replace(step, name=name) for name, step in step_rows(comparison)), *comparison.causes]
    columns = ("cause", "before (ms)", "after (ms)", "change (ms)", "low (ms)", "high (ms)", "outcome")
    rows = [_row(d) for d in deltas]
    sure = [d for d in comparison.causes if d.outcome in ("slower", "faster")]
    reading = "No cause changed beyond the noise of the steps."
    if sure:
        change = f"{sure[0].change_us / 1e3:+.3g} ms per step"
        reading = f"The largest change: {_words(sure[0])}, {change}, beyond the noise of the steps."
    before, after = (
        [us / 1e3 for us in side] for side in zip(*((d.before_us, d.after_us) for d in deltas), strict=True)
    )
    chart = Dumbbells([f"{_words(d)} ({OUTCOME_WORDS[d.outcome]})" for d in deltas], before, after, "ms per step")
    question = "Which cause changed, and is it more than noise?"
    return Exhibit("compare-causes", question, reading, sheet(columns, rows), chart)


def _kernels(view: View) -> Exhibit:
    """Kernels whose busy time changed, by the largest change; the same tests as for causes."""
    question = "Which kernels changed?"
    before, after = view.opened, view.runs[against(view)]
    if not (before.has_traces and after.has_traces):
        return Exhibit("compare-kernels", question, "Not known: a saved report holds no kernels.", sheet((), ()))
    try:
        first, second = by_step_us(before.kernels), by_step_us(after.kernels)
    except DdprofError as error:
        return Exhibit("compare-kernels", question, str(error), sheet((), ()))
    deltas = kernel_deltas(first, second, before.report.steps.wall_us)
    columns = ("kernel", "kind", "before (ms)", "after (ms)", "change (ms)", "low (ms)", "high (ms)", "outcome")
    rows = [(Named(name), kind, *_row(delta)[1:]) for (name, kind), delta in deltas]
    sure = [(name, d) for (name, _), d in deltas if d.outcome in ("slower", "faster")]
    reading = "No kernel's time changed beyond the noise of the steps by 1 % of the step or more."
    if sure:
        name, delta = sure[0]
        reading = (
            f"The largest change: {format_name(clean(name), MOST_CHARS)}, {delta.change_us / 1e3:+.3g} ms per step."
        )
    return Exhibit("compare-kernels", question, reading, Sheet(columns, tuple(rows), is_tool=True))


def _row(delta: Delta) -> tuple[object, ...]:
    low, high = (None if v is None else v / 1e3 for v in (delta.low_us, delta.high_us))
    times = (delta.before_us / 1e3, delta.after_us / 1e3, delta.change_us / 1e3)
    return (_words(delta), *times, low, high, OUTCOME_WORDS[delta.outcome])


def _words(delta: Delta) -> str:
    return CAUSES[delta.name].label if delta.name in CAUSES else delta.name


def kernel_deltas(before: Series, after: Series, step_us: float) -> list[tuple[Kernel, Delta]]:
    """Kernels of either run, the largest change first; changes too small to matter get no interval."""
    deltas = []
    for kernel in {**before, **after}:
        first, second = _side(before, kernel), _side(after, kernel)
        was, now = (float(np.mean(values)) if len(values) else 0.0 for values in (first, second))
        if abs(now - was) < LEAST_SHARE * step_us:
            deltas.append((kernel, Delta(kernel[0], was, now, None, None, "same")))
        else:
            deltas.append((kernel, delta_of(kernel[0], was, now, first, second, step_us)))
    return sorted(deltas, key=lambda item: (-abs(item[1].change_us), item[0]))


def _side(run: Series, kernel: Kernel) -> Sequence[float]:
    """Busy time of each step on one side; a kernel that a run lacks takes no time there."""
    return run[kernel] if kernel in run else [0.0] * len(next(iter(run.values()), ()))
