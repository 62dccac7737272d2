"""The results as a Markdown table, put between two marks of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.workload_pairs.judge import Judgement
from ddprof.errors import UsageError

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
HEAD = "| workload, fault, fix | must be said | verdict | before, ms | predicted, ms | measured, ms | error |"


def markdown(judged: Sequence[Judgement], summary: Mapping[str, Any], when: str, machine: str) -> str:
    """Summary lines and a row per pair."""
    lines = [f"Measured {when} on {machine}.", ""]
    lines += [f"- {name.replace('_', ' ')}: {_figure(name, value)}" for name, value in summary.items()]
    lines += ["", HEAD, "|---|---|---|---:|---:|---:|---:|"]
    return "\n".join([*lines, *(_row(j) for j in judged)]) + "\n"


def _row(j: Judgement) -> str:
    name, must = j.pair.replace(".", ", "), f"{j.finding} {list(j.ranks) or ''}".strip()
    if j.problem:
        return f"| {name} | {must} | failed: {j.problem} | | | | |"
    verdict = "right" if j.leads else f"right, after {j.said}" if j.found else f"wrong: {j.said}"
    predicted = "not about time" if not j.priced else "-"
    if j.predicted_ms is not None and j.low_ms is not None and j.high_ms is not None:
        predicted = f"{j.predicted_ms:.1f} ({j.low_ms:.1f} to {j.high_ms:.1f})"
    error = "-" if j.error is None else f"{100 * j.error:.1f} %{'' if j.covered else ' !'}"
    return f"| {name} | {must} | {verdict} | {j.faulted_ms:.1f} | {predicted} | {j.fixed_ms:.1f} | {error} |"


def _figure(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2f}" if name == "kendall_tau" else f"{100 * value:.1f} %"


def put_into(page: Path, text: str) -> None:
    """Replace what stands between the marks of a page. Raises UsageError where it has no marks."""
    old = page.read_text(encoding="utf-8")
    if BEGIN not in old or END not in old:
        raise UsageError(f"{page}: lacks the marks {BEGIN} and {END}")
    head, rest = old.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    page.write_text(f"{head}{BEGIN}\n{text}{END}{tail}", encoding="utf-8")
