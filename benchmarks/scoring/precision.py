"""The table of measured precision, counted over scored runs: what the confidence of findings is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.scoring.run_score import RunScore, SaidFinding
from ddprof.analyzers.trust.confidence import Precision, Tally


def precision(corpora: Mapping[str, Sequence[RunScore]], measured: str) -> Precision:
    """The table of some corpora by name. `measured`: the date, as it is to be told."""
    said = [finding for runs in corpora.values() for run in runs for finding in run.said]
    identifiers = sorted({finding.id for finding in said})
    doubts = sorted({doubt for finding in said for doubt in finding.doubts})
    return Precision(
        measured=measured,
        runs={name: len(runs) for name, runs in corpora.items()},
        findings={each: _by_basis([finding for finding in said if finding.id == each]) for each in identifiers},
        doubts={doubt: _tally(finding for finding in said if doubt in finding.doubts) for doubt in doubts},
        undoubted=_tally(finding for finding in said if not finding.doubts),
    )


def _by_basis(said: Sequence[SaidFinding]) -> dict[str, Tally]:
    return {basis: _tally(f for f in said if f.basis == basis) for basis in sorted({f.basis for f in said})}


def _tally(said: Iterable[SaidFinding]) -> Tally:
    right = [finding.right for finding in said]
    return Tally(len(right), sum(right))


def write(table: Precision, path: Path) -> None:
    """Write the table. Raises OSError."""
    path.write_text(json.dumps(asdict(table), indent=1, sort_keys=True) + "\n", encoding="utf-8")
