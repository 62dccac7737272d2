"""Samples read by each rank, compared by captured indices, batch fingerprints and batch sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts
from ddprof.tables import Array

# Ranks of one of these hold parts of one model replica and read the same samples by design.
SAME_SAMPLES = ("tp", "pp", "cp")
MIN_INDICES = 16  # of a rank, before an overlap means anything
MIN_SHARE = 0.02  # of the samples read by more than one rank; a sharded epoch repeats only what pads it


class Overlap(Struct, frozen=True):
    """Common part of the ranks' first passes over their data."""

    positions: tuple[int, ...]  # ranks whose indices are known
    share: float  # of the (rank, sample) pairs whose sample another rank read too
    samples: int  # indices known per rank, the fewest
    in_step: bool  # the ranks asked for the same samples in the same order
    contents_equal: bool | None  # the first batches hold the same values; None where that cannot be compared

    @property
    def is_real(self) -> bool:
        """True where the overlap is more than the padding of equal shards explains."""
        pairs = self.share * self.samples * len(self.positions)
        return self.share >= MIN_SHARE and pairs > 2 * len(self.positions)


def shares_replica(job: JobFacts) -> bool:
    """True where some ranks read the same samples by design (tensor, pipeline or context parallelism)."""
    roles = {str(role) for role, size in zip(job.groups["role"], job.groups["size"], strict=True) if size > 1}
    seen = {kind for facts in job.ranks for kind in facts.sidecar.parallelism}
    return bool((roles | seen).intersection(SAME_SAMPLES))


def overlap(ranks: Sequence[RankFacts]) -> Overlap | None:
    """The overlap of the ranks' first passes; None where fewer than two ranks recorded enough indices."""
    recorded = {p: indices for p, f in enumerate(ranks) if len(indices := f.sidecar.sample_indices) >= MIN_INDICES}
    if len(recorded) < 2:
        return None
    fewest = min(map(len, recorded.values()))
    drawn = {p: indices[:fewest] for p, indices in recorded.items()}
    readers = Counter(index for indices in drawn.values() for index in set(indices))
    pairs = sum(len(set(indices)) for indices in drawn.values())
    shared = sum(n for n in readers.values() if n > 1)
    first = next(iter(drawn.values()))
    in_step = all(indices == first for indices in drawn.values())
    equal = same_contents([ranks[p] for p in recorded]) if in_step else None
    return Overlap(tuple(recorded), shared / pairs, fewest, in_step, equal)


def same_contents(ranks: Sequence[RankFacts], whole: bool = False) -> bool | None:
    """True where the first batches of all ranks contain an equal tensor; None where a rank has no fingerprints.

    One equal tensor is enough, unless the batches are to be equal as a `whole`: inputs may be augmented at random,
    labels are not; but positions of tokens are equal in any batch.
    """
    prints = [{(i, t.fingerprint) for i, t in enumerate(f.sidecar.batch.tensors) if t.fingerprint} for f in ranks]
    if len(prints) < 2 or not all(prints):
        return None
    return all(each == prints[0] for each in prints) if whole else bool(set.intersection(*prints))


def fed_elements(ranks: Sequence[RankFacts]) -> Array | None:
    """Elements of the batches of each rank, in the traced steps that all ranks recorded; float, shape (ranks, steps).

    None where the capture did not record batches on every rank.
    """
    tables = [{fed.step: fed.elements for fed in f.sidecar.batches} for f in ranks]
    traced = [set(map(int, f.steps["index"])) for f in ranks]
    common = sorted(set.intersection(*map(set, tables), *traced)) if tables else []
    if not common:
        return None
    fed = np.array([[table[step] for step in common] for table in tables])
    return fed if (fed > 0).all() else None
