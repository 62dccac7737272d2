"""Names from a trace on a terminal, in Markdown, CSV and HTML: no escape sequence, no formula, no markup of theirs."""

import csv
import dataclasses
import io
import json
import re
import unicodedata
from pathlib import Path

import pytest
from rich.console import Console

from ddprof.findings import Evidence, Fix
from ddprof.report.comparison import text as comparison_text
from ddprof.report.comparison.compare import compare
from ddprof.report.export.columns import report_tables, text_cell, write_tables
from ddprof.report.html.parts import render_summary
from ddprof.report.json.contract import to_document
from ddprof.report.markdown import render_markdown
from ddprof.report.model import ClockInfo, HealthItem, HostClockInfo, Report
from ddprof.report.redaction.redact import rewritten
from ddprof.report.text import print_report, render_text
from ddprof.slices.comparison.compare_command import render_html
from ddprof.untrusted.plain_text import clean
from tests.dashboard.onefile_reader import File

SIGNS = ("\x1b[31m", "\x07", "\x9b2J", "\u202e", "\u2066", "\u200b", "\u2028", "\x85", "\r", "\ufeff", "\U000e0041")
EVIL = "x" + "".join(SIGNS) + "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
EVIL += "|`*[a](javascript:b) @t\ny"


@pytest.fixture
def evil(straggler_report: Report) -> Report:
    """A report with all of them behind every text, as a damaged or made-up file could have it."""
    stated = {"evidence": (Evidence(EVIL, 1, 0.0, 1.0, EVIL),), "fixes": (Fix(*[EVIL] * 5, f"- a\n+ b{EVIL}"),)}
    stated |= {"summary": EVIL, "id": "input.straggler" + EVIL}
    texts = ("run", "verdict", "abstentions")
    changed = {name: rewritten(getattr(straggler_report, name), lambda text: text + EVIL) for name in texts}
    changed["findings"] = (dataclasses.replace(straggler_report.findings[0], **stated),)
    changed["clock"] = ClockInfo({EVIL: HostClockInfo(), "b": HostClockInfo()}, EVIL)
    return dataclasses.replace(straggler_report, health=(HealthItem(EVIL, EVIL),), checked=(EVIL,), **changed)


def _invisible(text: str) -> list[str]:
    """Signs in a text that control a terminal or that nobody sees, newlines apart."""
    return [sign for sign in text if sign != "\n" and unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp", "Cs")]


def _terminal(report: Report) -> str:
    out = io.StringIO()
    print_report(Console(file=out, width=100, color_system=None), report, [EVIL])
    return out.getvalue()


RENDERINGS = {
    "text": lambda report: render_text(report, [EVIL]),
    "markdown": lambda report: render_markdown(report, [EVIL]),
    **{"terminal": _terminal, "html": render_summary},
    "compare text": lambda report: comparison_text.render_text(compare(report, report)),
    "compare markdown": lambda report: comparison_text.render_markdown(compare(report, report)),
    "json": lambda report: json.dumps(to_document([report])),
}


@pytest.mark.parametrize("form", RENDERINGS)
def test_no_sign_of_a_name_reaches_the_output(evil: Report, form: str) -> None:
    assert _invisible(RENDERINGS[form](evil)) == []


def test_markup_and_formulas_of_a_name_are_text(evil: Report, tmp_path: Path) -> None:
    assert "<img" not in render_html(compare(evil, evil))
    page = File(render_summary(evil))
    assert page.scripts == {} and not [name for name, _ in page.attributes if name.startswith("on")]
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in render_summary(evil)
    for text in (render_markdown(evil), comparison_text.render_markdown(compare(evil, evil))):
        # Inside of fences and code spans everything is literal.
        shown = re.sub("`[^`\n]*`", "", re.sub(r"(?s)(`{3,})python\n.*?\n\1\n", "", text))
        assert "<img" not in shown and "](javascript" not in shown and "\\@t" in shown
    rows = [line for line in render_markdown(evil).splitlines() if line.startswith("| ") and "---" not in line]
    assert {line.replace("\\|", "").count("|") for line in rows} == {4, 6}
    finding = dataclasses.replace(evil.findings[0], summary='=HYPERLINK("http://x")\x1b')
    report = dataclasses.replace(evil, findings=(finding,), run=dataclasses.replace(evil.run, hosts={0: "@SUM(A1)"}))
    for file in write_tables(tmp_path, report_tables(report), "csv"):
        text = file.read_text(encoding="utf-8")
        assert _invisible(text) == []
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert not [cell for cell in cells if cell[:1] in ("=", "@")]


FORMULAS = ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "\uff1d1", "\x00=1", '"=1', "\u200b=1", "'=1"]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_is_a_formula(name: str) -> None:
    assert text_cell(name).startswith("'") and _invisible(text_cell(name)) == []


@pytest.mark.parametrize("text", ["µs × ± → é 漢字", "a\\b", "naïve café"])
def test_what_people_write_stays(text: str) -> None:
    assert clean(text) == text
