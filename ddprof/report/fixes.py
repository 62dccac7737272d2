"""The fixes of a report as FIXES.toml, input of `ddprof run --apply`."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.findings import Finding, Fix
from ddprof.report import phrases
from ddprof.report.model import Report
from ddprof.settings.fixes_file import write_fixes
from ddprof.settings.wanted import WantedFix, changes_numbers

FILE_NAME = "FIXES.toml"


def applicable(report: Report, is_proven: bool = False) -> list[tuple[WantedFix, Finding, str]]:
    """Each fix that can be applied, with its finding and the reason, largest gain first.

    `is_proven`: the caller proves that results stay the same; else fixes with a condition to check first are left out,
    except changes of precision, which need the user's permission anyway. Of two findings that set one thing of one
    object, the first wins, so that all can be applied together.
    """
    fixes: list[tuple[WantedFix, Finding, str]] = []
    taken: set[tuple[str, str]] = set()
    for finding in report.ranked_findings():
        if report.severity_of(finding) == "info":
            continue
        for fix in finding.fixes:
            for wanted in _wanted(fix, finding):
                names = {(name, wanted.at) for name in wanted.values}
                if not names & taken and not ({(name, "") for name, _ in names} & taken):
                    taken |= names  # a part of a fix that is left out serves nothing alone
                    if not fix.condition or is_proven or changes_numbers(wanted):
                        fixes.append((wanted, finding, fix.why))
    return fixes


def fixes_file(report: Report) -> str | None:
    """The text of FIXES.toml: every finding in order, those without an applicable fix as a comment; None where no fix
    applies.
    """
    fixes = applicable(report)
    if not fixes:
        return None
    entries: list[tuple[WantedFix, str] | str] = []
    for number, finding in enumerate((f for f in report.ranked_findings() if report.severity_of(f) != "info"), 1):
        fixed: list[tuple[WantedFix, str] | str] = [(wanted, why) for wanted, of, why in fixes if of is finding]
        words = f"finding {number}, {finding.id}: {finding.summary}. {'' if fixed else 'By hand: '}"
        entries += fixed if fixed else [words + "; ".join(phrases.fix_words(fix) for fix in finding.fixes[:1])]
    head = (
        f"Fixes for {report.run.name or 'the run'}: {phrases.headline(report)}",
        "ddprof run --apply THIS -- COMMAND makes them without an edit of the script. Delete what is not wanted.",
    )
    return write_fixes(entries, head)


def mends_first(report: Report) -> bool:
    """True where an applicable fix belongs to the leading finding, so that no other fix passes for its own."""
    leading = phrases.leading(report)
    return any(finding is leading for _, finding, _ in applicable(report))


def _wanted(fix: Fix, finding: Finding) -> Iterator[WantedFix]:
    """One wanted fix per script line; none where a value cannot be applied."""
    for at in (fix.at or ("",)) if fix.applies else ():
        try:
            yield WantedFix(dict(fix.applies), at, finding.id)
        except ValueError:
            return
