"""The verdict, the step and the findings as HTML are safe and complete; the file is tested in tests/dashboard."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

from ddprof.findings import Evidence
from ddprof.report.html.parts import render_summary
from ddprof.report.model import Ledger, Report

EVIL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[31m"


class _Page(HTMLParser):
    """Collects tags and checks that every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def _parsed(text: str) -> _Page:
    page = _Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def _evil(report: Report) -> Report:
    finding = dataclasses.replace(
        report.findings[0], summary=EVIL, evidence=(Evidence(EVIL, 2, 0.0, 1.0, EVIL),), fixes=()
    )
    run = dataclasses.replace(report.run, name=EVIL, hosts=dict.fromkeys(report.run.ranks, EVIL), device_name=EVIL)
    verdict = dataclasses.replace(report.verdict, headline=EVIL, bound=EVIL)
    return dataclasses.replace(report, findings=(finding,), run=run, verdict=verdict)


def test_names_from_traces_are_text(straggler_report: Report) -> None:
    text = render_summary(_evil(straggler_report))
    page = _parsed(text)
    assert page.scripts == []
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "\x1b" not in text


def test_the_summary_says_what_the_report_says(straggler_report: Report) -> None:
    text = render_summary(straggler_report)
    for words in ("STRAGGLER-BOUND", "rank 2", "36 ms (33 to 38 ms) per step", "num_workers"):
        assert words in text


def test_a_report_without_steps_renders(straggler_report: Report) -> None:
    steps = dataclasses.replace(straggler_report.steps, count=0, wall_us=float("nan"), per_step_us=())
    empty = dataclasses.replace(straggler_report, steps=steps, ledger=Ledger(), findings=(), what_if=())
    assert "no step could be measured" in render_summary(empty)
    _parsed(render_summary(empty))


def test_the_notebook_view_is_a_fragment(straggler_report: Report) -> None:
    text = render_summary(straggler_report)
    assert "STRAGGLER-BOUND" in text
    assert "<html" not in text
    assert "@scope (.ddprof)" in text


def test_a_patch_keeps_its_lines_and_is_escaped_once(straggler_report: Report) -> None:
    fix = dataclasses.replace(straggler_report.findings[0].fixes[0], patch='a("<b>")\nb()')
    finding = dataclasses.replace(straggler_report.findings[0], fixes=(fix,))
    text = render_summary(dataclasses.replace(straggler_report, findings=(finding,)))
    assert "<pre>a(&quot;&lt;b&gt;&quot;)\nb()</pre>" in text
