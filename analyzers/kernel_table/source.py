"""Source of operations: the module of the model and the script line that called them."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.operators import certain
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.kernel_table.model import INSIDE
from ddprof.tables import NULL, Array, Table

UNKNOWN = 0  # number of the text ""


def modules(facts: RankFacts, operations: Table) -> tuple[Array, list[str]]:
    """The module around each call: numbers of texts, and the texts ("Gpt_0 > Block_1 > Linear_3"; "" first)."""
    stacks, texts = facts.module_stacks, [""]
    for name, outer in zip(stacks["name"].tolist(), stacks["outer"].tolist(), strict=True):
        texts.append(name if outer == NULL else f"{texts[outer + 1]}{INSIDE}{name}")
    number = np.full(len(operations), UNKNOWN)
    for thread in np.unique(facts.module_spans["track"]).tolist():
        spans = facts.module_spans.take(facts.module_spans["track"] == thread)
        on_thread = np.flatnonzero((operations["thread"] == thread) & (operations["called_ns"] != NULL))
        row, inside = _at(*spans.bounds, operations["called_ns"][on_thread])
        number[on_thread] = np.where(inside, spans["stack"][row] + 1, UNKNOWN)
    return number, texts


def lines(facts: RankFacts, operations: Table) -> tuple[Array, list[str]]:
    """The innermost user line around each call, and the text of lines. Kernels launched by autograd's thread count to
    the training thread's line at that time; between two samples the line is unknown.
    """
    tree = call_tree(facts)
    number = np.full(len(operations), UNKNOWN)
    if not len(tree) or not len(facts.script_spans):
        return number, [""]
    frame = np.where(tree.folded >= 0, tree.frame[np.maximum(tree.folded, 0)], -1)
    texts = ["", *(tree.words(row) for row in range(len(tree.frames)))]
    threads = np.unique(facts.script_spans["track"])
    main = NULL if facts.main_thread is None else facts.main_thread
    of = np.where(np.isin(operations["thread"], threads), operations["thread"], main)
    for thread in threads.tolist():
        spans = facts.script_spans.take(facts.script_spans["track"] == thread)
        on_thread = np.flatnonzero((of == thread) & (operations["called_ns"] != NULL))
        called_ns = operations["called_ns"][on_thread]
        row, inside = _at(*spans.bounds, called_ns)
        inside &= _at(*certain(spans, frame[spans["stack"]]), called_ns)[1]
        number[on_thread] = np.where(inside, frame[spans["stack"][row]] + 1, UNKNOWN)
    return number, texts


def _at(start_ns: Array, end_ns: Array, at_ns: Array) -> tuple[Array, Array]:
    """The row of the span around each moment, and whether there is one. The spans are sorted and disjoint."""
    if not len(start_ns):
        return np.zeros(len(at_ns), np.int64), np.zeros(len(at_ns), bool)
    row = np.maximum(np.searchsorted(start_ns, at_ns, side="right") - 1, 0)
    return row, np.asarray((at_ns >= start_ns[row]) & (at_ns < end_ns[row]))
