"""The report as text: what, why, who, what to do and how sure, readable in ten seconds.

A list of rich `Text` lines is the one source; a terminal gets it coloured with the verdict in a box, anything else gets
the plain characters.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from ddprof.causes import CAUSES
from ddprof.findings import Finding
from ddprof.report import data_notes, phrases
from ddprof.report.bar import cells, shares
from ddprof.report.model import Report
from ddprof.units import format_share
from ddprof.untrusted.plain_text import clean

PLAIN_WIDTH = 100
_MAX_WIDTH = 120
_SEVERITY_STYLE = {"critical": "bold red", "warning": "bold yellow", "error": "bold red", "info": "cyan"}
_LABEL_WIDTH = 7
_MAX_NOTES = 6
_MAX_EVIDENCE = 3  # how much, where, and the longest of it
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµ]?s|[KMGT]i?B(?:/s)?|B)(?!\w))")
_LEAST_LEGEND_SHARE = 0.005  # smaller causes share one entry: the legend names what matters


def render_text(report: Report, next_commands: Sequence[str] = (), full: bool = False, width: int = PLAIN_WIDTH) -> str:
    """The report as plain characters, ending in a newline; `full`: nothing of it shortened."""
    lines = [*_verdict(report, width), Text(), *_body(report, next_commands, width, full)]
    return "\n".join(clean(line.plain.rstrip()) for line in lines) + "\n"


def render_verdict(report: Report) -> str:
    """The short form that `print` shows: run, verdict, confidence and the first thing to do."""
    lines = _verdict(report, PLAIN_WIDTH)
    finding = phrases.leading(report)
    if finding is not None and finding.fixes:
        lines += _labelled("do", phrases.fix_words(finding.fixes[0]), PLAIN_WIDTH, indent=0, label_width=12)
    return "\n".join(clean(line.plain.rstrip()) for line in lines)


def print_report(console: Console, report: Report, next_commands: Sequence[str] = (), full: bool = False) -> None:
    """The report on a terminal: the verdict in a box, the rest below it."""
    width = min(console.width, _MAX_WIDTH)
    title = Text(f" {phrases.bound_word(report)} ", style="bold reverse")
    text = Text("\n").join(map(_clean, _verdict(report, width - 4)))
    box = Panel(text, title=title, title_align="left", width=width)
    console.print(box)
    for line in _body(report, next_commands, width, full):
        console.print(_clean(line), soft_wrap=True, highlight=False)


def _clean(line: Text) -> Text:
    """The line with its style and printable characters, replaced one for one so that colours stay in place."""
    line.plain = clean(line.plain)
    return line


def _verdict(report: Report, width: int) -> list[Text]:
    lines = [Text(part, style="dim") for part in _wrap(phrases.run_words(report), width)]
    lines += [Text(part, style="dim") for part in _wrap(phrases.applied_words(report), width)]
    lines.append(Text())
    lines += [Text(part, style="bold red") for part in _wrap(phrases.check_first_words(report), width)]
    lines += [Text(part, style="bold") for part in _wrap(phrases.headline(report), width)]
    lines += [Text(part) for part in _wrap(phrases.before_words(report), width)]
    trust = phrases.trust_words(report)
    label = "basis" if phrases.leading(report) is None else "confidence"
    return [*lines, *_labelled(label, trust, width, indent=0, label_width=len(label) + 2)] if trust else lines


def _body(report: Report, next_commands: Sequence[str], width: int, full: bool) -> list[Text]:
    sections = [
        _step_bar(report, width),
        _findings(report, width, full),
        _training(report, width),
        _limits(report, width, full),
    ]
    if next_commands:
        sections.append([Text(f"Next: {phrases.clean(c)}", style="bold") for c in next_commands])
    lines: list[Text] = []
    for section in sections:
        if section:
            lines += [Text(), *section] if lines else section
    return lines


def _step_bar(report: Report, width: int) -> list[Text]:
    parts = shares(report.ledger.job)
    if not parts:
        return [Text("Where the step goes: unknown (no step could be measured)")]
    bar, drawn = Text("  "), cells(parts, width - 4)
    for cause, count in drawn.items():
        look = CAUSES[cause]
        bar.append(look.letter * count, style=f"white on {look.light}")
    named = {cause: share for cause, share in parts.items() if share >= _LEAST_LEGEND_SHARE or cause in drawn}
    legend = [f"{CAUSES[c].letter} {CAUSES[c].label} {format_share(s)}" for c, s in named.items()]
    rest = sum(parts.values()) - sum(named.values())
    if rest > phrases.LEAST_SHARE:
        legend.append(f"rest {format_share(rest)}")
    head = f"Where the step goes ({phrases.time_words(report.ledger.job['wall_us'])}, mean over ranks)"
    wrapped = _wrap("   ".join(part.replace(" ", "\u00a0") for part in legend), width - 2)
    return [Text(head, style="bold"), bar, *(Text("  " + line) for line in wrapped)]


def _findings(report: Report, width: int, full: bool) -> list[Text]:
    ranked = report.ranked_findings()
    shown = ranked if full else ranked[: phrases.MAX_FINDINGS]
    if not shown:
        none = f"Findings: none. {phrases.nothing_found_words(report)}"
        return [Text(line, style="bold") for line in _wrap(none, width)]
    lines = [Text(f"Findings, {phrases.order_words(report)}", style="bold")]
    for number, finding in enumerate(shown, 1):
        lines += _finding(report, finding, number, width)
    if len(ranked) > len(shown):
        lines.append(Text(f"  ... and {len(ranked) - len(shown)} smaller (--all shows them)", style="dim"))
    return lines


def _finding(report: Report, finding: Finding, number: int, width: int) -> list[Text]:
    severity = report.severity_of(finding)
    title = _wrap(phrases.clean(finding.summary), width - 17) or [""]
    lines = [
        Text.assemble(f"  {number}. ", (f"[{severity}]", _SEVERITY_STYLE[severity]), " ", (title[0], "bold")),
        *(Text(f"     {line}", style="bold") for line in title[1:]),
    ]
    if severity == "info":
        return lines + _labelled("gain", f"{phrases.gain_words(report, finding)} ({finding.id})", width)
    who = f"{phrases.who_words(finding)}   ({finding.id}, {phrases.confidence_word(finding)} confidence)"
    lines += _labelled("who", who, width)
    lines += _labelled("gain", phrases.gain_words(report, finding), width)
    cost = phrases.cost_words(report, finding)
    lines += _labelled("cost", cost, width) if cost else []
    if phrases.prices_differ(finding):
        lines += _labelled("but", phrases.ledger_words(finding), width)
    for fix in finding.fixes[:2]:
        lines += _labelled("do", phrases.fix_words(fix), width)
    if finding.fixes and finding.fixes[0].patch:
        patch = [phrases.clean(line) for line in finding.fixes[0].patch.splitlines()[:4]]
        lines += [Text(f"     {'' if i else 'patch':<{_LABEL_WIDTH}}{line}", "green") for i, line in enumerate(patch)]
    for evidence in finding.evidence[:_MAX_EVIDENCE]:
        lines += _labelled("seen", phrases.evidence_words(evidence), width)
    return lines


def _training(report: Report, width: int) -> list[Text]:
    """Remarks that may spoil the training and cost no time."""
    remarks = report.training.remarks
    if not remarks:
        return []
    lines = [Text(phrases.TRAINING_TITLE, style="bold")]
    for remark in remarks[: phrases.MAX_FINDINGS]:
        title = _wrap(phrases.remark_words(remark), width - len(remark.severity) - 7) or [""]
        label = (f"[{remark.severity}]", _SEVERITY_STYLE[remark.severity])
        lines.append(Text.assemble("  ", label, " ", title[0]))
        lines += [Text(f"         {line}") for line in title[1:]]
        for evidence in remark.evidence[:3]:
            lines += _labelled("seen", phrases.evidence_words(evidence), width, indent=9)
        for fix in remark.fixes[:1]:
            lines += _labelled("do", phrases.fix_words(fix), width, indent=9)
    if len(remarks) > phrases.MAX_FINDINGS:
        lines.append(Text(f"  ... and {len(remarks) - phrases.MAX_FINDINGS} more (--format json)", style="dim"))
    return lines


def _limits(report: Report, width: int, full: bool) -> list[Text]:
    """Causes not found, causes not judged, and defects of the input."""
    lines: list[Text] = []
    for label, words in phrases.limits_words(report, full):
        lines += _labelled(f"{label}:", words, width, indent=0, label_width=20)
    notes = data_notes.health_words(report)
    most = len(notes) if full else _MAX_NOTES
    for severity, sentence in notes[:most]:
        lines += _labelled(f"Data {severity}:", sentence, width, indent=0, label_width=20)
    if len(notes) > most:
        lines.append(Text(f"{'':20}... and {len(notes) - most} more notes on the data (--all shows them)"))
    clock = data_notes.clock_words(report)
    return [*lines, *_labelled("Clocks:", clock, width, indent=0, label_width=20)] if clock else lines


def _labelled(label: str, text: str, width: int, indent: int = 5, label_width: int = _LABEL_WIDTH) -> list[Text]:
    """A label and its text, wrapped with a hanging indent."""
    parts = _wrap(text, max(width - indent - label_width, 20)) or [""]
    first = Text.assemble(" " * indent, (f"{label:<{label_width}}", "dim"), parts[0])
    return [first, *(Text(" " * (indent + label_width) + part) for part in parts[1:])]


def _wrap(text: str, width: int) -> list[str]:
    """The text in lines, none of which ends between a number and its unit."""
    lines = textwrap.wrap(_BEFORE_UNIT.sub("\u00a0", text), width, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]
