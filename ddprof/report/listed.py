"""Findings as a list that displays as a table on a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from ddprof.findings import Finding
from ddprof.report import phrases
from ddprof.report.html.markup import table
from ddprof.report.model import Report
from ddprof.units import format_us

_HEAD = ("", "finding", "who", "gain", "confidence", "what")


class FindingList(Sequence[Finding]):
    """The findings of a run, the headline's first, then by recoverable time."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._findings = report.ranked_findings()

    @overload
    def __getitem__(self, index: int) -> Finding: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...

    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self._findings[index]

    def __len__(self) -> int:
        return len(self._findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and self._findings == tuple(other)

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                self._report.severity_of(finding),
                finding.id,
                phrases.who_words(finding),
                format_us(self._report.shown_gain(finding)[0].value),
                phrases.confidence_word(finding),
                phrases.clean(finding.summary),
            )
            for finding in self._findings
        ]

    def __repr__(self) -> str:
        if not self._findings:
            return "no findings"
        rows = [_HEAD, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        if not self._findings:
            return "<p>no findings</p>"
        return table(_HEAD, self._rows())
