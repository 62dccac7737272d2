"""The bottleneck that remains after changes: the candidates of all rules, priced on top of the changes."""

from __future__ import annotations

from msgspec import Struct

from ddprof.analyzers.diagnose import candidates_of
from ddprof.analyzers.replay.price import Pricer
from ddprof.causes import CAUSES
from ddprof.findings import WARNING_SHARE, Candidate, Change


class Bottleneck(Struct, frozen=True):
    """The largest remaining cause: a finding's id and words with its gain, or a cause of the ledger."""

    id: str
    words: str
    gain_us: float | None
    ranks: tuple[int, ...] = ()


def bottleneck(prices: Pricer, changes: tuple[Change, ...]) -> Bottleneck:
    """The candidate that saves most on top of `changes`; the largest cause of the step where none saves 3 %."""
    step_us = prices.step_us(changes)
    best: tuple[float, Candidate] | None = None
    for candidate in candidates_of(prices.measures, prices):
        if candidate.changes:
            gain_us = prices.gain_us(candidate, changes)
            if best is None or gain_us > best[0]:
                best = (gain_us, candidate)
    if best is not None and best[0] >= WARNING_SHARE * step_us:
        return Bottleneck(best[1].id, best[1].summary, best[0], best[1].ranks)
    mean = {cause: float(prices.measures.cause_us(cause).mean()) for cause in CAUSES}
    largest = max(mean, key=lambda cause: mean[cause])
    if largest != "compute" and any(change.kind != "scale_compute" for change in changes):
        largest = "compute"  # the ledger is the recorded run's: what was changed there says nothing about now
    return Bottleneck(largest, f"{CAUSES[largest].words}; no further fix above 3 % found", None)
