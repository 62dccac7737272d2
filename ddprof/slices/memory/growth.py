"""Memory that a job keeps more of after every step: what one stack allocates again and again, and nothing frees.

A loop over layers allocates again and again too, and keeps it all; but between two layers no gradient is made and no
optimizer runs, while between two steps of a training both are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.findings import WARNING_SHARE
from ddprof.slices.memory import category as categories
from ddprof.slices.memory.replay import Replayed
from ddprof.slices.memory.snapshot import NO_STACK, Snapshot
from ddprof.slices.memory.text import frame_words
from ddprof.tables import Array
from ddprof.units import format_bytes

# Two blocks may be what this step reads and what the next one will.
FEWEST_BLOCKS = 3
_OF_STEPS = (categories.GRADIENTS, categories.OPTIMIZER_STATE, categories.OPTIMIZER_TEMPORARY)


def growth(snapshot: Snapshot, replayed: Replayed, purpose: Array, peak_bytes: int) -> Iterator[str]:
    """Advice on each stack whose blocks are never freed and lie a step apart, largest first, where they are a share of
    the peak, `peak_bytes`, that is worth a warning. `purpose`: of each block.
    """
    blocks = replayed.blocks
    stepping = np.sort(blocks.first[np.isin(purpose, _OF_STEPS)])
    own = np.flatnonzero((replayed.stack != NO_STACK) & (purpose == categories.OTHER))
    own = own[np.lexsort((blocks.first[own], replayed.stack[own]))]
    stacks, begins = np.unique(replayed.stack[own], return_index=True)
    kept: list[tuple[int, int, int]] = []
    for number, rows in zip(stacks.tolist(), np.split(own, begins)[1:], strict=True):
        passed = np.searchsorted(stepping, blocks.first[rows])
        stays = (blocks.last[rows] == len(replayed.held_bytes) - 1).all()
        if stays and len(rows) >= FEWEST_BLOCKS and (np.diff(passed) > 0).all():
            kept.append((int(blocks.size_bytes[rows].sum()), len(rows), number))
    for size_bytes, count, number in sorted(kept, reverse=True):
        line = categories.line_of(snapshot.stacks[number])
        if line is not None and size_bytes >= WARNING_SHARE * peak_bytes:
            yield (
                f"Each step keeps more memory: {frame_words(line)} allocated {format_bytes(size_bytes)} in {count} "
                "steps, and nothing freed it. Let go of what refers to it (a list, a graph of autograd)."
            )
