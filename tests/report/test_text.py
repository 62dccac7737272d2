"""The verdict as a person reads it: bar, findings, limits, Markdown, escape sequences.

Sentences for lists and notes: counts in place of lists that nobody reads, names without their folders.
"""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits import findings as findings_page
from ddprof.dashboard.onefile.document import render as render_pages
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.findings import Abstention, Evidence, Finding, Recoverable
from ddprof.report import data_notes, phrases
from ddprof.report.bar import cells, shares
from ddprof.report.html.parts import render_summary
from ddprof.report.markdown import render_markdown
from ddprof.report.model import HealthItem, HostClockInfo, Ledger, Report, Verdict
from ddprof.report.text import print_report, render_text
from tests.dashboard.onefile_reader import File


@given(st.lists(st.floats(0.0, 1e6), min_size=len(CAUSES), max_size=len(CAUSES)), st.integers(10, 200))
def test_the_bar_fills_its_width(times: list[float], width: int) -> None:
    row = dict(zip(CAUSES, times, strict=True))
    row["wall_us"] = sum(times)
    assert sum(cells(shares(row), width).values()) == (width if row["wall_us"] > 0 else 0)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_keep_to_the_width(straggler_report: Report, width: int) -> None:
    assert max(len(line) for line in render_text(straggler_report, width=width).splitlines()) <= width + 2


def test_at_most_five_findings_are_shown_and_nothing_found_or_measured_is_said(straggler_report: Report) -> None:
    many = tuple(replace(straggler_report.findings[0], summary=f"cause {n}") for n in range(8))
    for changed, said in (
        ({"findings": many}, ("5. [critical]", "and 3 smaller")),
        ({"findings": ()}, ("Findings: none", "Checked: ")),
        ({"ledger": Ledger()}, ("unknown (no step could be measured)",)),
    ):
        text = render_text(replace(straggler_report, **changed))
        assert all(words in text for words in said) and "6. [critical]" not in text


def _every_rendering(report: Report) -> dict[str, str]:
    opened = OpenRun(report)
    (page,) = findings_page.exhibits(View(opened, {}, (opened,)))
    told = {"text": render_text(report), "markdown": render_markdown(report), "notebook": render_summary(report)}
    told |= {"file": render_pages(opened), "dashboard": page.reading}
    return {place: " ".join(text.split()) for place, text in told.items()}


def test_no_verdict_never_reads_as_fine(straggler_report: Report) -> None:
    unjudged = replace(straggler_report, findings=(), verdict=Verdict("none", "Not judged: two ranks"))
    for place, words in _every_rendering(unjudged).items():
        assert "would save time" not in words and "the job could not be judged" in words, place
    judged = replace(unjudged, verdict=Verdict("healthy", "nothing is wrong"), ledger=_ledger(compute=0.93))
    for place, words in _every_rendering(judged).items():
        assert "No cause that was checked has a fix that would save time." in words, place


@pytest.mark.parametrize("compute", [0.89, 0.4])
def test_a_step_that_is_not_compute_never_reads_as_fine(straggler_report: Report, compute: float) -> None:
    for place, words in _every_rendering(replace(straggler_report, findings=(), ledger=_ledger(compute))).items():
        assert "would save time" not in words, place
        assert f"{round(100 * (1 - compute))} % of the step is not compute (communication" in words, place


def _ledger(compute: float) -> Ledger:
    """A step of 100 ms that is compute and communication."""
    times = {"wall_us": 1e5, "compute": 1e5 * compute, "comm_transfer": 1e5 * (1 - compute)}
    return Ledger({}, dict.fromkeys(CAUSES, 0.0) | times)


def test_a_terminal_gets_a_box_and_no_markup_from_names(straggler_report: Report) -> None:
    run = replace(straggler_report.run, name="[bold]x[/bold]\x1b]0;owned\x07")
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, color_system="truecolor")
    print_report(console, replace(straggler_report, run=run))
    assert "╭" in stream.getvalue() and "[bold]x[/bold]?]0;owned?" in stream.getvalue()


def test_markdown_says_what_the_report_says(straggler_report: Report) -> None:
    text = render_markdown(straggler_report, ["ddprof explain input.straggler"])
    table = ("Largest saving: ", "| compute | 60.1 ms | 60 % |", "rank 2", r"36 ms \(33 to 38 ms\) per step")
    assert [words for words in (*table, "high", "```python") if words not in text] == []
    surer = render_text(replace(straggler_report, findings=straggler_report.findings[::-1]))
    assert "Fix first: " in surer and "Findings, surest first, then by gain" in surer


def test_long_lists_are_counted_and_notes_name_files_without_folders(straggler_report: Report) -> None:
    many = tuple(Abstention(f"family.rule{n}", "one step is too few") for n in range(20))
    few = ("memory.headroom", "no memory events")
    report = replace(straggler_report, abstentions=(*many, Abstention(*few)))
    assert phrases.abstention_words(report) == [("20 causes", "one step is too few"), few]
    assert phrases.abstentions_by_reason(report)["one step is too few"] == [a.id for a in many]
    run = replace(straggler_report.run, paths=("/data/runs/a/rank0.json", "/data/runs/a/rank1.json"))
    early = [HealthItem(f"{path}: it ends early", "a step is left out", rank=r) for r, path in enumerate(run.paths)]
    for health, of in ((early[1:], "rank 1: rank1.json"), (early, "ranks 0, 1: rank0.json and 1 more")):
        ((_, words),) = data_notes.health_words(replace(straggler_report, run=run, health=tuple(health)))
        assert words == f"{of}: it ends early; a step is left out"


def test_a_step_that_pulls_the_mean_out_of_the_spread_is_said(straggler_report: Report) -> None:
    def spread(*steps_us: float) -> str:
        steps = replace(straggler_report.steps, per_step_us=steps_us)
        return phrases.spread_words(replace(straggler_report, steps=steps))

    assert spread(126e3, 127e3, 123e3, 164e3, 124e3) == "spread ±1.2 %; one took 164 ms"
    assert "one" not in spread(126e3, 127e3, 123e3, 125e3, 124e3) and spread(1e3, 2e3) == ""


def test_most_of_a_step_without_a_cause_is_unexplained_and_not_idle(straggler_report: Report) -> None:
    for cause, word in (("unknown", "Unexplained"), ("other", "Idle"), ("compute", "Compute-bound")):
        ledger = replace(straggler_report.ledger, job={"compute": 40.0, cause: 60.0, "wall_us": 100.0})
        assert phrases.bound_word(replace(straggler_report, ledger=ledger)) == f"{word} (60 %)"


def test_clocks_of_ranks_whose_hosts_nobody_recorded_are_no_hosts(straggler_report: Report) -> None:
    clocks = {"rank 0": HostClockInfo(0.0, 0.0, 0.0), "rank 1": HostClockInfo(error_us=3.0)}
    clock = replace(straggler_report.clock, hosts=clocks, method="ends")
    for hosts, said in (({0: "a", 1: "b"}, "2 hosts"), ({}, "2 ranks, whose hosts were not recorded,")):
        report = replace(straggler_report, clock=clock, run=replace(straggler_report.run, hosts=hosts))
        assert data_notes.clock_words(report).startswith(f"clocks of {said} ")
    alone = replace(clock, hosts={**clocks, "rank 2": HostClockInfo(error_us=None)})
    words = data_notes.clock_words(replace(straggler_report, clock=alone))
    assert words.startswith("clocks of 2 of 3 hosts aligned") and words.endswith("; nothing connects the others")


def test_a_rank_is_named_by_its_whole_number_and_late_only_where_others_wait(straggler_report: Report) -> None:
    assert phrases.evidence_words(Evidence("rank 12 waits", 1)) == "rank 12 waits [rank 1]"
    assert phrases.evidence_words(Evidence("rank 1 waits", 1)) == "rank 1 waits"
    full = Finding("memory.headroom", "memory of rank 2 is 96 % full", (2,), 0.0, Recoverable(0.0, 0.0, 0.0), 0.9)
    assert "late" not in phrases.gain_words(straggler_report, full)
    waited = replace(full, waited_us=300.0)
    assert "just as late" in phrases.gain_words(straggler_report, waited)
    unjudged = replace(straggler_report, verdict=replace(straggler_report.verdict, bound="none"))
    assert "late" not in phrases.gain_words(unjudged, waited) + phrases.cost_words(unjudged, waited)


def test_the_summary_is_a_fragment_of_what_the_report_says_patches_included(straggler_report: Report) -> None:
    text = render_summary(straggler_report)
    told = ("Largest saving: ", "rank 2", "36 ms (33 to 38 ms) per step", "num_workers", "@scope (.ddprof)")
    assert [words for words in told if words not in text] == [] and "<html" not in text
    steps = replace(straggler_report.steps, count=0, wall_us=float("nan"), per_step_us=())
    empty = replace(straggler_report, steps=steps, ledger=Ledger(), findings=(), what_if=())
    assert "no step could be measured" in render_summary(empty)
    File(render_summary(empty))
    fix = replace(straggler_report.findings[0].fixes[0], patch='a("<b>")\nb()')
    text = render_summary(replace(straggler_report, findings=(replace(straggler_report.findings[0], fixes=(fix,)),)))
    assert "<pre>a(&quot;&lt;b&gt;&quot;)\nb()</pre>" in text
