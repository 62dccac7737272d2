"""Confidence of a finding: how often such findings were right, reduced by the doubts about the recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.price import LOW_CONFIDENCE_ERROR
from ddprof.analyzers.trust.precision import Precision, measured
from ddprof.findings import EVEN, HIGH, Basis, Doubt
from ddprof.units import format_share

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
    return tuple(_doubts(measures, replay_error))


def _doubts(measures: Measures, replay_error: float | None) -> Iterator[Doubt]:
    job = measures.job
    if measures.steps <= 1:
        yield Doubt.ONE_STEP
    elif measures.steps == 2:
        yield Doubt.TWO_STEPS
    if any(facts.step_source == "inferred" for facts in job.ranks):
        yield Doubt.INFERRED_STEPS
    if job.missing_ranks:
        yield Doubt.MISSING_RANKS
    if any(domain.error_ns is None for domain in job.clock.domains.values()):
        yield Doubt.ASSUMED_CLOCK
    if any(note.severity == "error" for facts in job.ranks for note in facts.health):
        yield Doubt.DAMAGED_FILES
    if (replay_error or 0.0) > LOW_CONFIDENCE_ERROR:
        yield Doubt.REPLAY_ERROR
