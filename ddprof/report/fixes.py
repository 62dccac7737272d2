"""The fixes of a report as `ddprof run --apply` takes them: what a person, a launcher or a tuner starts from."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.findings import Finding, Fix
from ddprof.report import phrases
from ddprof.report.model import Report
from ddprof.settings.fixes_file import write_fixes
from ddprof.settings.wanted import WantedFix, changes_numbers

FILE_NAME = "FIXES.toml"


def applicable(report: Report, is_proven: bool = False) -> list[tuple[WantedFix, Finding, str]]:
    """Each fix that can be applied, with its finding and why, that of the largest gain first.

    `is_proven`: whoever asks proves that results stay; else fixes that the user has to check first are left out, but
    for those of precision, which nobody applies without being asked.

    Where two findings set one thing of one object, the first one does: what is left can be applied together.
    """
    found: list[tuple[WantedFix, Finding, str]] = []
    taken: set[tuple[str, str]] = set()
    for finding in report.ranked_findings():
        if report.severity_of(finding) == "info":
            continue
        for fix in finding.fixes:
            for wanted in _wanted(fix, finding):
                if fix.condition and not (is_proven or changes_numbers(wanted)):
                    continue
                names = {(name, wanted.at) for name in wanted.values}
                if not names & taken and not ({(name, "") for name, _ in names} & taken):
                    taken |= names
                    found.append((wanted, finding, fix.why))
    return found


def fixes_file(report: Report) -> str | None:
    """The text of FIXES.toml: every finding in order, those without a fix that can be applied as a comment; None where
    none can.
    """
    fixes = applicable(report)
    if not fixes:
        return None
    entries: list[tuple[WantedFix, str] | str] = []
    for number, finding in enumerate((f for f in report.ranked_findings() if report.severity_of(f) != "info"), 1):
        mine: list[tuple[WantedFix, str] | str] = [(wanted, why) for wanted, of, why in fixes if of is finding]
        words = f"finding {number}, {finding.id}: {finding.summary}. {'' if mine else 'By hand: '}"
        entries += mine if mine else [words + "; ".join(phrases.fix_words(fix) for fix in finding.fixes[:1])]
    head = (
        f"Fixes for {report.run.name or 'the run'}: {phrases.headline(report)}",
        "ddprof run --apply THIS -- COMMAND makes them without an edit of the script. Delete what is not wanted.",
    )
    return write_fixes(entries, head)


def mends_first(report: Report) -> bool:
    """True where what can be applied is of the finding that leads: fixes of others must not pass for its own."""
    leading = phrases.leading(report)
    return any(finding is leading for _, finding, _ in applicable(report))


def _wanted(fix: Fix, finding: Finding) -> Iterator[WantedFix]:
    """One for each line; none where a value is none that can be applied."""
    for at in (fix.at or ("",)) if fix.applies else ():
        try:
            yield WantedFix(dict(fix.applies), at, finding.id)
        except ValueError:
            return
