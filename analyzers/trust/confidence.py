"""The confidence of a finding: how often findings like it were right, less what is doubtful about its recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddprof.analyzers.trust.doubts import OF_THE_PRICE, WORDS
from ddprof.analyzers.trust.precision import Precision, measured
from ddprof.findings import Basis, Doubt


@dataclass(frozen=True)
class Confidence:
    """A number in [0, 1], and what it was made of, in words."""

    value: float
    grounds: str


def confidence(identifier: str, basis: Basis, doubts: Sequence[Doubt], table: Precision | None = None) -> Confidence:
    """The confidence of a finding: that its cause is real and its ranks are right. Doubts about the price widen the
    range of the gain instead. `table`: the counts, those that ship with ddprof if None.
    """
    table = table or measured()
    value = table.of(identifier, basis.value)
    tally = table.tally(identifier, basis.value)
    grounds = (
        f"right in {tally.right} of {tally.said} labelled runs" if tally.said else "never measured on labelled runs"
    )
    lowered = []
    for doubt in doubts:
        if doubt in OF_THE_PRICE:
            continue
        factor = table.factor(doubt.value)
        value *= factor
        if factor < 1:
            lowered.append(WORDS[doubt])
    return Confidence(value, grounds + (f"; less, as {' and '.join(lowered)}" if lowered else ""))
