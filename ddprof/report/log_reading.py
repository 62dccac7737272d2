"""The reading of a log, which holds no events: its findings, in text and in a document, and what to type next."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ddprof.untrusted.plain_text import clean

WIDTH = 100
NOTHING = 0.0005  # of a step: prints as 0.0 %


@dataclass(frozen=True)
class LogFinding:
    """A finding from a log's lines. `share`: of the time that `summary` names; `page`: the one that explains it;
    `phase`: the phase of the step, None in logs without any.
    """

    id: str
    severity: str  # "critical" | "warning" | "info"
    summary: str
    share: float
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    page: str | None = None
    phase: str | None = None


def finding_row(finding: LogFinding) -> dict[str, Any]:
    """The finding in a JSON document."""
    return {
        **{"id": finding.id, "severity": finding.severity, "summary": finding.summary, "share": finding.share},
        "ranks": list(finding.ranks),
        **({} if finding.phase is None else {"phase": finding.phase}),
        **{"evidence": list(finding.evidence), "page": finding.page},
    }


def finding_lines(findings: Iterable[LogFinding]) -> Iterator[str]:
    """The findings as text, each with its evidence indented below it."""
    for finding in findings:
        yield from textwrap.wrap(f"{finding.severity.upper()}  {finding.summary}.", WIDTH, subsequent_indent="  ")
        for words in finding.evidence:
            yield from textwrap.wrap(words, WIDTH, initial_indent="    ", subsequent_indent="    ")


def next_commands(findings: Iterable[LogFinding]) -> list[str]:
    """Commands to type next, in lines."""
    pages = dict.fromkeys(f.page for f in findings if f.page is not None and f.severity != "info")
    return [f"Next: {command}" for command in (*(f"ddprof explain {page}" for page in pages), "ddprof run -- COMMAND")]


def in_blocks(blocks: Iterable[Iterable[str]]) -> str:
    """Blocks of lines as plain characters, those without a line left out, ending in a newline."""
    texts = ("\n".join(clean(line).rstrip() for line in block) for block in blocks)
    return "\n\n".join(text for text in texts if text) + "\n"


def fenced(text: str) -> str:
    """The text as one block of Markdown, which nothing in it can break out of."""
    return f"```text\n{text.replace('```', '???')}```\n"


def number_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table: its first column left-aligned, numbers right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join(["", first.ljust(widths[0]), *cells])
