"""Script lines to which fixes apply."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddprof.analyzers.job.model import JobFacts
from ddprof.findings import Finding
from ddprof.settings.catalogue import CATALOGUE, LOADER
from ddprof.sidecar.applied import MadeLine

_MAX_LINES = 8  # more of them are rather one loop over layers, told as all


def located(finding: Finding, job: JobFacts) -> Finding:
    """The finding with script lines in its fixes, where capture recorded which lines create the objects."""
    fixes = (replace(fix, at=lines_for((name for name, _ in fix.applies), job)) for fix in finding.fixes)
    return replace(finding, fixes=tuple(fixes))


def lines_for(names: Iterable[str], job: JobFacts) -> tuple[str, ...]:
    """The lines that create the objects of these settings; () where unknown or too many."""
    made = list(dict.fromkeys(line for facts in job.ranks for line in facts.sidecar.made))
    return _lines(names, made)


def _lines(names: Iterable[str], made: Iterable[MadeLine]) -> tuple[str, ...]:
    accepted = [set(CATALOGUE[name].targets) for name in names if name in CATALOGUE]
    targets = set.intersection(*accepted) if accepted else set()
    lines = [line for line in made if line.object in targets]
    if LOADER in targets:
        lines = [line for line in lines if line.trains]
    places = tuple(dict.fromkeys(f"{line.file}:{line.line}" for line in lines))
    return places if len(places) <= _MAX_LINES else ()
