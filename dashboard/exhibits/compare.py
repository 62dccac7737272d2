"""Compare: better, or noise? Two runs side by side, each cause with its interval."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.figures.charts import Dumbbells
from ddprof.dashboard.runs.view import View
from ddprof.report import phrases
from ddprof.report.comparison.compare import Comparison, Delta, compare


def has_data(view: View) -> bool:
    """Whether there are two runs to compare."""
    return len(view.runs) > 1


def exhibits(view: View) -> Iterator[Exhibit]:
    """The causes before and after, and the findings that went or came."""
    if len(view.runs) < 2:
        return
    comparison = comparison_of(view)
    yield _causes(comparison)
    rows = [("gone", f.id, phrases.who_words(f), phrases.clean(f.summary)) for f in comparison.gone]
    rows += [("new", f.id, phrases.who_words(f), phrases.clean(f.summary)) for f in comparison.new]
    reading = f"Findings gone: {len(comparison.gone)}; new: {len(comparison.new)}." if rows else "The same findings."
    yield Exhibit(
        "found", "Which findings went, which came?", reading, sheet(("change", "finding", "who", "what"), rows)
    )


def comparison_of(view: View) -> Comparison:
    """From the run of the address to the one it is compared against (the next, where the address does not say)."""
    return compare(view.opened.report, view.runs[against(view)].report)


def against(view: View) -> int:
    """Number of the run that is compared against: the address's, else the next."""
    other = view.number(view.query.get("against", ""))
    return other if other is not None and other != view.run else (view.run + 1) % len(view.runs)


def _causes(comparison: Comparison) -> Exhibit:
    deltas = [comparison.step, *comparison.causes]
    columns = ("cause", "before (ms)", "after (ms)", "change (ms)", "low (ms)", "high (ms)", "outcome")
    rows = [_row(d) for d in deltas]
    sure = [d for d in comparison.causes if d.outcome in ("slower", "faster")]
    reading = "No cause changed beyond the noise of the steps."
    if sure:
        change = f"{sure[0].change_us / 1e3:+.3g} ms per step"
        reading = f"The largest change: {_words(sure[0])}, {change}, beyond the noise of the steps."
    return Exhibit(
        "compare-causes",
        "Which cause changed, and is it more than noise?",
        reading,
        sheet(columns, rows),
        Dumbbells(
            [f"{_words(d)} ({d.outcome})" for d in deltas],
            [d.before_us / 1e3 for d in deltas],
            [d.after_us / 1e3 for d in deltas],
            "ms per step",
        ),
    )


def _row(delta: Delta) -> tuple[object, ...]:
    low, high = (None if v is None else v / 1e3 for v in (delta.low_us, delta.high_us))
    return (_words(delta), delta.before_us / 1e3, delta.after_us / 1e3, delta.change_us / 1e3, low, high, delta.outcome)


def _words(delta: Delta) -> str:
    return CAUSES[delta.name].label if delta.name in CAUSES else delta.name
