"""Confidence of a finding: how often such findings were right, reduced by the doubts about the recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.price import LOW_CONFIDENCE_ERROR
from ddprof.findings import EVEN, HIGH, Basis, Doubt
from ddprof.significance import binomial_tail
from ddprof.units import format_share

# Precision of findings, counted by `python -m benchmarks.scoring --precision` over runs whose truth is known.
#
# Most findings have few counts, so each share is shrunk towards the more general one with the weight of one further
# finding. A kind never measured is as likely wrong as right (half a success in one trial, Jeffreys' prior for a
# proportion).

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
    """The table in a file. Raises OSError, or msgspec.DecodeError where it is none."""
    return msgspec.json.decode(path.read_bytes(), type=Precision)


@lru_cache(maxsize=1)
def measured() -> Precision:
    """The table that ships with ddprof."""
    return read()


WORDS = {
    Doubt.ONE_STEP: "only one step",
    Doubt.TWO_STEPS: "only two steps",
    Doubt.INFERRED_STEPS: "steps are inferred",
    Doubt.MISSING_RANKS: "ranks are missing",
    Doubt.ASSUMED_CLOCK: "clocks of some ranks cannot be aligned",
    Doubt.DAMAGED_FILES: "a file is damaged",
    Doubt.REPLAY_ERROR: "the replay misses the measured step",
    Doubt.PRICES_DIFFER: "time breakdown and replay disagree",
    Doubt.ONE_EVENT: "the event was recorded once",
}
# Two estimates of a gain disagree: its range reaches both. That the cause is real, and on which ranks, is another
# question, and was answered rightly under this doubt in every labelled run that was counted (precision.json).
OF_THE_PRICE = (Doubt.PRICES_DIFFER,)


# Labelled runs are too few to prove such findings right more often than wrong: never told as "high".
NOT_PROVEN = HIGH - 0.01


class Confidence(Struct, frozen=True):
    """A number in [0, 1], and its components in words."""

    value: float
    grounds: str


def confidence(identifier: str, basis: Basis, doubts: Sequence[Doubt], table: Precision | None = None) -> Confidence:
    """The confidence of a finding: that its cause is real and its ranks are right. Doubts about the price widen the
    range of the gain instead. `table`: the counts, those that ship with ddprof if None.
    """
    table = table or measured()
    value = table.of(identifier, basis.value)
    tally = table.tally(identifier, basis.value)
    grounds = "no labelled run had such a finding"
    if tally.said:
        least = format_share(tally.least)
        grounds = f"such findings were right in {tally.right} of {tally.said} labelled runs (at least {least})"
    if not tally.said or tally.least <= EVEN:
        value = min(value, NOT_PROVEN)
    thin = [doubt for doubt in doubts if doubt not in OF_THE_PRICE]
    for doubt in thin:
        value *= table.factor(doubt.value)
    return Confidence(
        value, grounds + (f"; thin recording: {', '.join(WORDS[doubt] for doubt in thin)}" if thin else "")
    )


def doubts_of(measures: Measures, replay_error: float | None) -> tuple[Doubt, ...]:
    """The doubts about a recording, in the order of the table above. `replay_error`: a share, None without a replay."""
    job = measures.job
    has = {
        Doubt.ONE_STEP: measures.steps <= 1,
        Doubt.TWO_STEPS: measures.steps == 2,
        Doubt.INFERRED_STEPS: any(facts.step_source == "inferred" for facts in job.ranks),
        Doubt.MISSING_RANKS: bool(job.missing_ranks),
        Doubt.ASSUMED_CLOCK: any(domain.error_ns is None for domain in job.clock.domains.values()),
        Doubt.DAMAGED_FILES: any(note.severity == "error" for facts in job.ranks for note in facts.health),
        Doubt.REPLAY_ERROR: (replay_error or 0.0) > LOW_CONFIDENCE_ERROR,
    }
    return tuple(doubt for doubt, is_had in has.items() if is_had)
