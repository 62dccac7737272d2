"""The page History: the step from run to run, and its changes."""

from __future__ import annotations

from collections.abc import Iterator

from dash import html
from dash.development.base_component import Component

from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Named, Sheet
from ddprof.dashboard.figures.charts import Stacked, cause_parts
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.pages.page import Page
from ddprof.dashboard.runs.view import View
from ddprof.report.phrases import clean
from ddprof.slices.comparison.history import (
    LEAST_RUNS,
    MARKS,
    NOT_RECORDED,
    PastRun,
    change_words,
    commit_words,
    history,
    history_headline,
    mfu,
    shares,
    when_words,
)

MOST_DRAWN = 60  # bars; the table has all runs
_METHOD = (
    "▲ slower, ▼ faster: by 1 % or more and beyond the spread of steps, after "
    f"{LEAST_RUNS} runs also of runs. ◆ another kind of job."
)


def _has_data(view: View) -> bool:
    """True with at least two runs."""
    return len(view.runs) > 1


def exhibits(view: View) -> Iterator[Exhibit]:
    """The runs as bars by cause, and as a table."""
    if not _has_data(view):
        return
    entries = history([(name, run.report) for name, run in zip(view.names, view.runs, strict=True)])
    if not entries:
        yield Exhibit("history", "Did it get slower?", "No run has a measured step.", Sheet((), ()))
        return
    drawn = entries[-MOST_DRAWN:]
    more = f" Drawn: the last {MOST_DRAWN}; the table has all." if len(entries) > len(drawn) else ""
    ledgers = [entry.report.ledger.job for entry in drawn]
    parts = {cause: [row.get(cause, 0.0) / 1e3 for row in ledgers] for cause in CAUSES}
    chart = Stacked([_label(entry) for entry in drawn], cause_parts(parts), "ms per step", horizontal=False)
    yield Exhibit(
        "history", "Did it get slower?", f"{history_headline(entries)}. {_METHOD}{more}", _sheet(entries), chart
    )


def _content(view: View) -> list[Component]:
    if not _has_data(view):
        words = "One run is served. Serve a folder of runs to see them over time: ddprof serve FOLDER."
        return [html.H1("History"), notice(words)]
    return [html.H1("History"), *(exhibit_card(exhibit, "/history", view) for exhibit in exhibits(view))]


def _label(entry: PastRun) -> str:
    return f"{MARKS[entry.change]} {clean(entry.name)}".strip()


def _sheet(entries: list[PastRun]) -> Sheet:
    causes = [c for c in CAUSES if any(shares(entry)[c] >= 0.0005 for entry in entries)]  # 0.1 % rounded
    columns = ("run", "date (UTC)", "commit", "steps", "step (ms)", "change", "bound by", "MFU (%)")
    rows = []
    for entry in entries:
        report, mfu_share, share = entry.report, mfu(entry), shares(entry)
        rows.append(
            (
                Named(clean(entry.name)),
                when_words(report.run.started_unix_s),
                clean(commit_words(entry)),
                report.steps.count,
                report.steps.wall_us / 1e3,
                Named(clean(change_words(entry))),
                report.verdict.bound,
                NOT_RECORDED if mfu_share is None else 100 * mfu_share,
                *(100 * share[cause] for cause in causes),
            )
        )
    return Sheet((*columns, *(f"{CAUSES[c].label} (%)" for c in causes)), tuple(rows), is_tool=True)


PAGE = Page("/history", "History", exhibits, has_data=_has_data, layout=_content)
