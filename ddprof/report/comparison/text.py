"""A comparison as text and Markdown."""

from __future__ import annotations

from ddprof.causes import CAUSES
from ddprof.report import phrases
from ddprof.report.comparison.compare import Comparison, Delta
from ddprof.report.markdown import escape
from ddprof.units import format_share, format_us

OUTCOME_WORDS = {
    "slower": "slower",
    "faster": "faster",
    "same": "negligible",
    "noise": "within the noise",
    "unknown": "too few steps to say",
    "disagree": "not judged",
}
_MAX_CAUSES = 8


def comparison_headline(comparison: Comparison) -> str:
    """The comparison in one sentence."""
    step = comparison.step
    share = step.change_us / step.before_us
    size = f"{_signed(step.change_us)} per step ({'+' if share >= 0 else '-'}{format_share(abs(share))})"
    if step.outcome in {"slower", "faster"}:
        size = f"{format_us(abs(step.change_us))} per step ({format_share(abs(share))})"
        leading = next((d for d in comparison.causes if d.change_us * step.change_us > 0 and d.outcome != "same"), None)
        cause = f", mostly {CAUSES[leading.name].label} {_signed(leading.change_us)}" if leading else ""
        return f"{step.outcome.capitalize()} by {size}{cause}"
    if step.outcome == "unknown":
        return f"The step changed by {size}, but too few steps were traced to tell it from noise"
    if step.outcome == "disagree":
        return "Not judged: the timers of the whole run contradict the traced steps"
    return f"No change of the step beyond the noise: {size}"


def render_text(comparison: Comparison) -> str:
    """The comparison as plain text, ending in a newline."""
    lines = [*_names(comparison), "", comparison_headline(comparison), ""]
    lines += [f"Not comparable as they stand: {phrases.clean(text)}" for text in comparison.differences]
    lines.append(f"{'':<24} {'before':>10} {'after':>10} {'change':>11}  95 % interval")
    lines += [_text_row(name, d) for name, d in step_rows(comparison)]
    lines += [_text_row(f"  {CAUSES[d.name].label}", d) for d in comparison.causes[:_MAX_CAUSES]]
    lines.append("")
    lines += [phrases.clean(f"Gone: {f.summary} ({f.id})") for f in comparison.gone]
    lines += [phrases.clean(f"New:  {f.summary} ({f.id}, {phrases.who_words(f)})") for f in comparison.new]
    lines += [f"Note: {phrases.clean(text)}" for text in comparison.notes]
    return "\n".join(lines).rstrip() + "\n"


def render_markdown(comparison: Comparison) -> str:
    """The comparison as GitHub-flavoured Markdown."""
    names = (f"- {escape(line)}" for line in _names(comparison))
    lines = [f"### {escape(comparison_headline(comparison))}", "", *names, ""]
    lines += [f"> **Not comparable as they stand**: {escape(text)}" for text in comparison.differences]
    lines += ["", "| per step | before | after | change | 95 % interval | |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | --- |"]
    rows = [(f"**{name}**", d) for name, d in step_rows(comparison)]
    rows += [(CAUSES[d.name].label, d) for d in comparison.causes[:_MAX_CAUSES]]
    lines += [f"| {' | '.join((name, *row_words(d)))} |" for name, d in rows]
    lines.append("")
    lines += [f"- gone: {escape(f.summary)} ({escape(f.id)})" for f in comparison.gone]
    lines += [f"- new: {escape(f.summary)} ({escape(f.id)}, {escape(phrases.who_words(f))})" for f in comparison.new]
    lines += [f"- note: {escape(text)}" for text in comparison.notes]
    return "\n".join(lines).rstrip() + "\n"


def step_rows(comparison: Comparison) -> list[tuple[str, Delta]]:
    """The step with its name; where whole-run timers give it, also the traced step, to which the causes sum."""
    if not comparison.is_timed:
        return [("step", comparison.step)]
    return [("step, whole run", comparison.step), ("step, traced", comparison.traced)]


def row_words(d: Delta) -> tuple[str, str, str, str, str]:
    """Cells of one row: before, after, change, interval ("" where unknown) and verdict."""
    interval = "" if d.low_us is None or d.high_us is None else f"{_signed(d.low_us)} to {_signed(d.high_us)}"
    times = format_us(d.before_us), format_us(d.after_us), _signed(d.change_us)
    return (*times, interval, OUTCOME_WORDS[d.outcome])


def _text_row(name: str, d: Delta) -> str:
    before, after, change, *rest = row_words(d)
    return f"{name:<24} {before:>10} {after:>10} {change:>11}  {', '.join(filter(None, rest))}"


def _names(comparison: Comparison) -> list[str]:
    first, second = comparison.before, comparison.after
    return [f"before  {phrases.run_words(first)}", f"after   {phrases.run_words(second)}"]


def _signed(value_us: float) -> str:
    shown_us = round(value_us, 3)  # clocks tell nanoseconds apart
    return f"{'+' if shown_us >= 0 else '-'}{format_us(abs(shown_us))}"
