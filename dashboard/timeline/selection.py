"""Numbers of a selected range of some lanes: busy time by name, idle time, time by cause.

Times are ns, of the part of each slice that lies inside the selection, and exact: from the index, not from a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ddprof.dashboard.timeline.categories import CATEGORIES, LOOKS
from ddprof.dashboard.timeline.lanes import KINDS, Timeline
from ddprof.dashboard.timeline.tiles import KIND_WORDS
from ddprof.tables import Array
from ddprof.units import format_ranks

MAX_NAMES = 500  # rows of the table by name; the others are one row
LARGEST_CAUSES = 3  # named in the line that explains an idle selection
# Kernels first, what they are called from after them.
_ORDER = ("stream", "comm", "ops", "workers", "host", "phases", "steps", "causes")
_PLACE = np.array([_ORDER.index(kind) for kind in KINDS], np.int64)
_WORDS = {**KIND_WORDS, "ops": "operators", "workers": "loader workers"}


def selection_statistics(
    timeline: Timeline, lanes: Sequence[int], lo_ns: int, hi_ns: int, step: int | None = None
) -> dict[str, Any]:
    """Numbers of [lo, hi) on some lanes. Shares are of the selected time of all lanes of the kind; for causes, of all
    ranks.

    `step`: the range counts from each rank's own start of that step, and ends with the step.
    """
    chosen = [n for n in lanes if timeline.lanes[n].kind != "causes"] or list(lanes)
    ranks = sorted({timeline.lanes[n].rank for n in lanes})
    kinds = np.array([KINDS.index(timeline.lanes[n].kind) for n in chosen], np.int64)
    window = _windows(timeline, lo_ns, hi_ns, step)
    selected_ns = np.zeros(len(KINDS), np.int64)
    np.add.at(selected_ns, kinds, np.diff(window[chosen], axis=1)[:, 0])
    names, busy_ns = _by_name(timeline, np.array(chosen, np.int64), window, selected_ns)
    causes = _by_cause(timeline, ranks, window)
    idle = [
        _row(KINDS[kind], "nothing", "idle", _Amounts(0, int(rest)), int(selected_ns[kind]))
        for kind, rest in enumerate((selected_ns - busy_ns).tolist())
        if rest > 0
    ]
    return {
        "span_us": (hi_ns - lo_ns) / 1e3,
        "lanes": len(lanes),
        "ranks": format_ranks(ranks) if ranks else "no rank",
        "names": names + idle,
        "causes": causes,
        "idle": _idle_words(ranks, causes) if not names else "",
    }


def _windows(timeline: Timeline, lo_ns: int, hi_ns: int, step: int | None) -> Array:
    """Start and end of the range on each lane, in the run's time, (lanes, 2); empty where a rank lacks the step."""
    if step is None:
        return np.tile(np.array([lo_ns, hi_ns], np.int64), (len(timeline.lanes), 1))
    bounds = {
        of.rank: (of.start_ns[row], of.end_ns[row])
        for of in timeline.steps
        for row in np.flatnonzero(of.number == step).tolist()
    }
    nowhere = timeline.index.hi_ns + 1, timeline.index.hi_ns + 1
    windows = np.array([bounds.get(lane.rank, nowhere) for lane in timeline.lanes], np.int64).reshape(-1, 2)
    return np.asarray(np.clip(windows[:, :1] + np.array([lo_ns, hi_ns]), windows[:, :1], windows[:, 1:]))


def _by_name(timeline: Timeline, lanes: Array, window: Array, selected_ns: Array) -> tuple[list[dict[str, Any]], Array]:
    """A row per kind of lane, name and category, the longest of each kind first; and the busy time of each kind."""
    index, width = timeline.index, len(timeline.names) or 1
    groups = index.groups_of(lanes)
    rows = index.rows(groups, *window[groups // index.categories].T)
    end_ns = rows.start_ns + rows.dur_ns
    lo_ns, hi_ns = window[rows.lane].T
    inside = np.minimum(end_ns, hi_ns) - np.maximum(rows.start_ns, lo_ns)
    cut = (end_ns > hi_ns) | (rows.start_ns < lo_ns)
    kind = np.array([KINDS.index(lane.kind) for lane in timeline.lanes], np.int64)[rows.lane]
    busy = np.zeros(len(KINDS), np.int64)
    np.add.at(busy, kind, inside)
    key = (kind * index.categories + rows.category) * width + rows.name
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    if not len(begins):
        return [], busy
    inside, cut = inside[order], cut[order].astype(np.int64)
    calls = np.diff(begins, append=len(order))
    total, cuts = np.add.reduceat(inside, begins), np.add.reduceat(cut, begins)
    least, most = np.minimum.reduceat(inside, begins), np.maximum.reduceat(inside, begins)
    group, name = np.divmod(key[order][begins], width)
    listed = np.lexsort((-total, _PLACE[group // index.categories]))
    entries = []
    for i in listed[:MAX_NAMES].tolist():
        number, category = divmod(int(group[i]), index.categories)
        amounts = _Amounts(int(calls[i]), int(total[i]), int(least[i]), int(most[i]), int(cuts[i]))
        words = timeline.names[int(name[i])], LOOKS[CATEGORIES[category]].words
        entries.append(_row(KINDS[number], *words, amounts, int(selected_ns[number])))
    return entries + _others(group // index.categories, calls, total, cuts, listed[MAX_NAMES:], selected_ns), busy


def _others(kind: Array, calls: Array, total: Array, cuts: Array, left: Array, selected: Array) -> list[dict[str, Any]]:
    """Selected work not listed by name, one row per kind of lane."""
    entries = []
    for number in np.unique(kind[left]).tolist():
        of_kind = left[kind[left] == number]
        amounts = _Amounts(int(calls[of_kind].sum()), int(total[of_kind].sum()), cut=int(cuts[of_kind].sum()))
        entries.append(_row(KINDS[number], f"{len(of_kind):,} other names", "", amounts, int(selected[number])))
    return entries


class _Amounts(NamedTuple):
    calls: int
    total_ns: int
    min_ns: int | None = None
    max_ns: int | None = None
    cut: int = 0


def _row(kind: str, name: str, what: str, amounts: _Amounts, of_ns: int) -> dict[str, Any]:
    mean_ns = amounts.total_ns / amounts.calls if amounts.calls else None
    share = amounts.total_ns / max(1, of_ns)
    return {"kind": _WORDS[kind], "name": name, "what": what, **amounts._asdict(), "mean_ns": mean_ns, "share": share}


def _by_cause(timeline: Timeline, ranks: Sequence[int], window: Array) -> list[dict[str, Any]]:
    """Ledger causes of the selected time of some ranks, the largest first; the ledger books only steps."""
    index = timeline.index
    lanes = [n for n, lane in enumerate(timeline.lanes) if lane.kind == "causes" and lane.rank in set(ranks)]
    groups = index.groups_of(np.array(lanes, np.int64))
    busy = index.busy(groups, window[groups // index.categories])[:, 0]
    total = np.zeros(index.categories, np.int64)
    np.add.at(total, groups % index.categories, busy)
    first_of = {lane.rank: n for n, lane in reversed(list(enumerate(timeline.lanes)))}
    whole = int(np.diff(window[[first_of[rank] for rank in ranks]], axis=1).sum())
    causes = [(LOOKS[CATEGORIES[n]].words, int(total[n])) for n in np.argsort(-total, kind="stable") if total[n]]
    outside = [("outside of the steps", whole - int(total.sum()))] if whole > total.sum() else []
    return [{"cause": words, "total_ns": ns, "share": ns / max(1, whole)} for words, ns in causes + outside]


def _idle_words(ranks: Sequence[int], causes: Sequence[dict[str, Any]]) -> str:
    parts = ", ".join(f"{row['cause']} {row['share']:.0%}" for row in causes[:LARGEST_CAUSES])
    if not parts:
        return "Nothing runs on the selected lanes."
    return f"Nothing runs on the selected lanes. Meanwhile, time of {format_ranks(list(ranks))} goes to: {parts}."
