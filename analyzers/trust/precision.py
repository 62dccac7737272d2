"""Precision of findings, counted by `python -m benchmarks.scoring --precision` over runs whose truth is known.

Most findings have few counts, so each share is shrunk towards the more general one with the weight of one further
finding. A kind never measured is as likely wrong as right (half a success in one trial, Jeffreys' prior for a
proportion).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ddprof.significance import binomial_tail

TAIL = 0.05  # one-sided: how unlikely the counts are if fewer are right than said
NOTHING_KNOWN = 0.5  # share right of findings of which none was measured
TABLE = Path(__file__).with_name("precision.json")


@dataclass(frozen=True)
class Tally:
    """Findings above "info" on labelled runs, and the number of them that were true, ranks included."""

    said: int = 0
    right: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.said + other.said, self.right + other.right)

    def share(self, expected: float) -> float:
        """Share of true findings, with one finding more that is true with probability `expected`."""
        return (self.right + expected) / (self.said + 1)

    @property
    def least(self) -> float:
        """Lower 95 % confidence bound of the share of true findings (Clopper and Pearson, Biometrika 1934)."""
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            is_unlikely = binomial_tail(self.right, self.said, middle) < TAIL
            low, high = (middle, high) if is_unlikely else (low, middle)
        return low


@dataclass(frozen=True)
class Precision:
    """Tallies with their date and the labelled runs behind them.

    `findings`: by identifier, then by basis. `doubts`: findings of recordings with that doubt, whatever their
    identifier. `undoubted`: those of recordings without any doubt.
    """

    measured: str = ""
    runs: Mapping[str, int] = field(default_factory=dict)  # corpus -> labelled runs in it
    findings: Mapping[str, Mapping[str, Tally]] = field(default_factory=dict)
    doubts: Mapping[str, Tally] = field(default_factory=dict)
    undoubted: Tally = Tally()

    def tally(self, identifier: str, basis: str) -> Tally:
        """Findings with this identifier on this basis."""
        return self.findings.get(identifier, {}).get(basis, Tally())

    def of(self, identifier: str, basis: str) -> float:
        """Probability that a finding is right: drawn towards the mean of its identifier on other bases and of others
        on its basis.
        """
        rows = self.findings
        elsewhere = sum((t for b, t in rows.get(identifier, {}).items() if b != basis), Tally())
        others = sum((row[basis] for i, row in rows.items() if i != identifier and basis in row), Tally())
        expected = (elsewhere.share(NOTHING_KNOWN) + others.share(NOTHING_KNOWN)) / 2
        return self.tally(identifier, basis).share(expected)

    def factor(self, doubt: str) -> float:
        """Share of a confidence that a doubt leaves: precision with the doubt over precision without any, at most 1."""
        doubted = self.doubts.get(doubt, Tally()).share(NOTHING_KNOWN)
        return min(1.0, doubted / self.undoubted.share(NOTHING_KNOWN))


def read(path: Path = TABLE) -> Precision:
    """The table in a file. Raises OSError, ValueError or KeyError where it is none."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return Precision(
        measured=document["measured"],
        runs=document["runs"],
        findings={
            identifier: {basis: Tally(**tally) for basis, tally in row.items()}
            for identifier, row in document["findings"].items()
        },
        doubts={doubt: Tally(**tally) for doubt, tally in document["doubts"].items()},
        undoubted=Tally(**document["undoubted"]),
    )


@lru_cache(maxsize=1)
def measured() -> Precision:
    """The table that ships with ddprof."""
    return read()
