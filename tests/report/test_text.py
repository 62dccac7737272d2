"""The verdict as a person reads it: bar, findings, limits, Markdown, escape sequences."""

import dataclasses
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits import findings as findings_page
from ddprof.dashboard.onefile.document import render as render_pages
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report.bar import cells, shares
from ddprof.report.html.parts import render_summary
from ddprof.report.markdown import render_markdown
from ddprof.report.model import Ledger, Report, Verdict
from ddprof.report.text import print_report, render_text


@given(st.lists(st.floats(0.0, 1e6), min_size=len(CAUSES), max_size=len(CAUSES)), st.integers(10, 200))
def test_the_bar_fills_its_width(times: list[float], width: int) -> None:
    row = dict(zip(CAUSES, times, strict=True))
    row["wall_us"] = sum(times)
    assert sum(cells(shares(row), width).values()) == (width if row["wall_us"] > 0 else 0)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_keep_to_the_width(straggler_report: Report, width: int) -> None:
    assert max(len(line) for line in render_text(straggler_report, width=width).splitlines()) <= width + 2


def test_at_most_five_findings_are_shown_and_nothing_found_or_measured_is_said(straggler_report: Report) -> None:
    many = tuple(dataclasses.replace(straggler_report.findings[0], summary=f"cause {n}") for n in range(8))
    for changed, said in (
        ({"findings": many}, ("5. [critical]", "and 3 smaller")),
        ({"findings": ()}, ("Findings: none", "Checked: ")),
        ({"ledger": Ledger()}, ("unknown (no step could be measured)",)),
    ):
        text = render_text(dataclasses.replace(straggler_report, **changed))
        assert all(words in text for words in said) and "6. [critical]" not in text


def _every_rendering(report: Report) -> dict[str, str]:
    opened = OpenRun(report)
    (page,) = findings_page.exhibits(View(opened, {}, (opened,)))
    told = {"text": render_text(report), "markdown": render_markdown(report), "notebook": render_summary(report)}
    told |= {"file": render_pages(opened), "dashboard": page.reading}
    return {place: " ".join(text.split()) for place, text in told.items()}


def test_no_verdict_never_reads_as_fine(straggler_report: Report) -> None:
    unjudged = dataclasses.replace(straggler_report, findings=(), verdict=Verdict("none", "Not judged: two ranks"))
    for place, words in _every_rendering(unjudged).items():
        assert "costs this job time" not in words and "the job could not be judged" in words, place
    judged = dataclasses.replace(unjudged, verdict=Verdict("healthy", "nothing is wrong"), ledger=_ledger(compute=0.93))
    for place, words in _every_rendering(judged).items():
        assert "No cause that was checked costs this job time." in words, place


@pytest.mark.parametrize("compute", [0.89, 0.4])
def test_a_step_that_is_not_compute_never_reads_as_fine(straggler_report: Report, compute: float) -> None:
    lost = dataclasses.replace(straggler_report, findings=(), ledger=_ledger(compute))
    for place, words in _every_rendering(lost).items():
        assert "costs this job time" not in words, place
        assert f"{round(100 * (1 - compute))} % of the step is not compute (communication" in words, place


def _ledger(compute: float) -> Ledger:
    """A step of 100 ms that is compute and communication."""
    times = {"wall_us": 1e5, "compute": 1e5 * compute, "comm_transfer": 1e5 * (1 - compute)}
    return Ledger({}, dict.fromkeys(CAUSES, 0.0) | times)


def test_a_terminal_gets_a_box_and_no_markup_from_names(straggler_report: Report) -> None:
    run = dataclasses.replace(straggler_report.run, name="[bold]x[/bold]\x1b]0;owned\x07")
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, color_system="truecolor")
    print_report(console, dataclasses.replace(straggler_report, run=run))
    assert "╭" in stream.getvalue() and "[bold]x[/bold]?]0;owned?" in stream.getvalue()


def test_markdown_says_what_the_report_says(straggler_report: Report) -> None:
    text = render_markdown(straggler_report, ["ddprof explain input.straggler"])
    table = ("Largest saving: ", "| compute | 60.1 ms | 60 % |", "rank 2", r"36 ms \(33 to 38 ms\) per step")
    assert [words for words in (*table, "high", "```python") if words not in text] == []
