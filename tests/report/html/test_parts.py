"""The verdict, the step and the findings as HTML are safe and complete; the file is tested in tests/dashboard."""

import dataclasses

from ddprof.report.html.parts import render_summary
from ddprof.report.model import Ledger, Report
from tests.dashboard.onefile_reader import File


def test_the_summary_is_a_fragment_of_what_the_report_says_patches_included(straggler_report: Report) -> None:
    text = render_summary(straggler_report)
    told = ("Largest saving: ", "rank 2", "36 ms (33 to 38 ms) per step", "num_workers", "@scope (.ddprof)")
    assert [words for words in told if words not in text] == [] and "<html" not in text
    steps = dataclasses.replace(straggler_report.steps, count=0, wall_us=float("nan"), per_step_us=())
    empty = dataclasses.replace(straggler_report, steps=steps, ledger=Ledger(), findings=(), what_if=())
    assert "no step could be measured" in render_summary(empty)
    File(render_summary(empty))
    fix = dataclasses.replace(straggler_report.findings[0].fixes[0], patch='a("<b>")\nb()')
    finding = dataclasses.replace(straggler_report.findings[0], fixes=(fix,))
    text = render_summary(dataclasses.replace(straggler_report, findings=(finding,)))
    assert "<pre>a(&quot;&lt;b&gt;&quot;)\nb()</pre>" in text
