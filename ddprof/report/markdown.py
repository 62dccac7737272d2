"""The report as GitHub-flavoured Markdown, for a pull request or a job summary."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddprof.causes import CAUSES
from ddprof.findings import Finding
from ddprof.report import data_notes, phrases
from ddprof.report.bar import shares
from ddprof.report.model import Report
from ddprof.units import format_share, format_us
from ddprof.untrusted.plain_text import clean_lines

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#|~!@])")
_SEVERITY_MARK = {"critical": "🔴 critical", "warning": "🟡 warning", "info": "🔵 info"}


def render_markdown(report: Report, next_commands: Sequence[str] = (), full: bool = False) -> str:
    """The report as Markdown; names from traces cannot break out of their place."""
    check_first = phrases.check_first_words(report)
    parts = [
        f"> **{escape(check_first)}**" if check_first else "",
        f"### {escape(phrases.headline(report))}",
        escape(phrases.run_words(report)),
        escape(phrases.applied_words(report)),
    ]
    before, trust = phrases.before_words(report), phrases.trust_words(report)
    if before:
        parts.append(escape(before))
    if trust:
        parts.append(f"**{'Confidence' if phrases.leading(report) else 'Basis'}** {escape(trust)}")
    first = report.ranked_findings()[: phrases.MAX_FINDINGS]
    told = [f for f in first if report.severity_of(f) != "info" and (f.fixes or f.evidence)]
    parts += [_step(report), _findings(report, full), *(_detail(report, finding) for finding in told)]
    parts += [_training(report), _limits(report, full)]
    parts += [f"Next: {_code(command)}" for command in next_commands]
    return clean_lines("\n\n".join(part for part in parts if part)) + "\n"


def escape(text: str) -> str:
    """Text with every Markdown and HTML character made literal."""
    return _SPECIAL.sub(r"\\\1", phrases.clean(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def _step(report: Report) -> str:
    parts = shares(report.ledger.job)
    if not parts:
        return "No step could be measured."
    rows = [
        f"| {CAUSES[cause].label} | {format_us(report.ledger.job[cause])} | {format_share(share)} |"
        for cause, share in sorted(parts.items(), key=lambda item: -item[1])
    ]
    head = f"| where the step goes | {format_us(report.ledger.job['wall_us'])} | 100 % |"
    return "\n".join([head, "| --- | ---: | ---: |", *rows])


def _findings(report: Report, full: bool) -> str:
    ranked = report.ranked_findings()
    shown = ranked if full else ranked[: phrases.MAX_FINDINGS]
    if not shown:
        return f"**No finding.** {phrases.nothing_found_words(report)}"
    rows = []
    for number, finding in enumerate(shown, 1):
        cells = (
            _SEVERITY_MARK[report.severity_of(finding)],
            f"{number}. {_code(finding.id)} {escape(finding.summary)}",
            escape(phrases.who_words(finding)),
            escape(phrases.gain_words(report, finding)),
            phrases.confidence_word(finding),
        )
        rows.append(f"| {' | '.join(cells)} |")
    if len(ranked) > len(shown):
        rows.append(f"\n{len(ranked) - len(shown)} smaller findings: `--all` shows them.")
    head = "| severity | finding | who | gain | confidence |"
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows])


def _detail(report: Report, finding: Finding) -> str:
    lines = [f"<details><summary>{escape(finding.id)}: what to do, and what was seen</summary>", ""]
    cost = phrases.cost_words(report, finding)
    lines += [f"- cost: {escape(cost)}"] if cost else []
    lines += [f"- but {escape(phrases.ledger_words(finding))}"] if phrases.prices_differ(finding) else []
    lines += [f"- **do** {escape(phrases.fix_words(fix))}" for fix in finding.fixes]
    lines += [f"- seen: {escape(phrases.evidence_words(evidence))}" for evidence in finding.evidence]
    for fix in finding.fixes:
        if fix.patch:
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", fix.patch)), default=0))
            lines += ["", fence + "python", *(phrases.clean(line) for line in fix.patch.splitlines()), fence]
    return "\n".join([*lines, "", "</details>"])


def _training(report: Report) -> str:
    """Remarks that may spoil the training and cost no time; "" without any."""
    lines = []
    for remark in report.training.remarks:
        lines.append(f"- {_SEVERITY_MARK[remark.severity]} {escape(phrases.remark_words(remark))}")
        lines += [f"  - seen: {escape(phrases.evidence_words(evidence))}" for evidence in remark.evidence]
        lines += [f"  - **do** {escape(phrases.fix_words(fix))}" for fix in remark.fixes[:1]]
    return "\n".join([f"**{phrases.TRAINING_TITLE}**", "", *lines]) if lines else ""


def _limits(report: Report, full: bool) -> str:
    lines = [f"{label}: {escape(words)}." for label, words in phrases.limits_words(report, full)]
    lines += [f"Data {severity}: {escape(sentence)}" for severity, sentence in data_notes.health_words(report)]
    return "\n".join(f"- {line}" for line in lines)


def _code(text: str) -> str:
    return "`" + phrases.clean(text).replace("`", "'").replace("|", "\\|") + "`"
