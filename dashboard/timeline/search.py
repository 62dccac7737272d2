"""Search of the timeline for words, ranks and steps: number of slices, places, and one page of hits at a time.

Words are sought in the names of slices, and for what runs on a device or communicates also in the operator and the
module that launched it and in the collective that it is. "rank 7" and "step 12" narrow it, or are searched themselves
when alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.kernel_table.model import modules
from ddprof.dashboard.numbers import Numbers
from ddprof.dashboard.timeline.lanes import Lane, Timeline
from ddprof.dashboard.timeline.tiles import spots
from ddprof.tables import NULL, Array, Column, Schema
from ddprof.units import format_ranks, format_us

MAX_HITS = 200  # of one page
MAX_MARKED = 20_000  # slices named one by one in a view: as many as a view shows (tiles.EXACT_BUDGET)
WHOLE_BINS = 1_000  # in which hits are marked on the whole run
_RANK, _STEP = re.compile(r"\brank\s+(\d{1,9})\b"), re.compile(r"\bstep\s+(\d{1,9})\b")
_APART = re.compile(r"[\s_-]+")  # all-reduce, all_reduce and AllReduce are one collective
_WAYS = ("name", "operator", "module", "collective")
_CALLS = Schema("calls", Column("thread", "int64", "host thread"), Column("called_ns", "int64", "start of the call"))


@dataclass(frozen=True)
class Sought:
    """A parsed search: words in lower case ("" for none), on one rank, in one step."""

    words: str
    rank: int | None = None
    step: int | None = None


def sought(text: str) -> Sought:
    """The parsed search text; inside double quotes it is words only, never a rank or a step."""
    text = text.strip().casefold()
    if len(text) > 2 and text[0] == text[-1] == '"':
        return Sought(text[1:-1])
    rank, step = _RANK.search(text), _STEP.search(text)
    rest = " ".join(_STEP.sub(" ", _RANK.sub(" ", text)).split())
    return Sought(rest, int(rank[1]) if rank else None, int(step[1]) if step else None)


def search(
    timeline: Timeline, job: JobFacts, text: str, ranks: Numbers | None = None, first: int = 0
) -> dict[str, Any]:
    """Hits on some ranks (None: all): their number, in words, places in the whole run, and hits from `first` on."""
    asked = sought(text)
    searched = [r for r in job.rank_ids if ranks is None or r in ranks]
    index = timeline.index
    rows, ways = matching(timeline, job, asked, searched)
    total_us = float(index.dur_ns(rows).sum()) / 1e3
    rows, ways, starts, ends = _calls(timeline, rows, ways)
    order = np.argsort(starts, kind="stable")[first : first + MAX_HITS]
    lane = index.group(rows) // index.categories
    listed = [column[order].tolist() for column in (rows, lane, starts, ends)]
    on = np.unique(np.array([timeline.lanes[n].rank for n in np.unique(lane).tolist()], np.int64))
    counts = {way: int(np.count_nonzero(ways == code)) for code, way in enumerate(_WAYS)}
    is_rank = asked.rank in searched and not asked.words and asked.step is None
    hits = [
        {
            "row": row,
            "lane": number,
            "rank": timeline.lanes[number].rank,
            "name": timeline.names[int(index.name[row])],
            "start_us": start_ns / 1e3,
            "dur_us": (end_ns - start_ns) / 1e3,
        }
        for row, number, start_ns, end_ns in zip(*listed, strict=True)
    ]
    on_ranks = f"{len(rows):,} {'hit' if len(rows) == 1 else 'hits'} on {_of(len(on), len(searched))}"
    by = ", ".join(f"{n:,} by {way}" for way, n in counts.items() if n)
    return {
        "count": len(rows),
        "total_us": total_us,
        "ways": counts,
        "ranks": on.tolist(),
        "rank": asked.rank if is_rank else None,
        "first": first,
        "hits": hits,
        "bins": WHOLE_BINS,
        "places": spots(starts, ends, index.lo_ns, index.hi_ns, WHOLE_BINS),
        "said": f"{on_ranks}, {format_us(total_us)} in all ({by})"
        if len(rows)
        else _none(timeline, job, asked, searched),
    }


def places(
    timeline: Timeline,
    job: JobFacts,
    text: str,
    lanes: Collection[int],
    lo_ns: int,
    hi_ns: int,
    bins: int,
    ranks: Numbers | None = None,
) -> dict[str, Any]:
    """Rows of hits in a window of some lanes, and bins with hits by lane and by rank. `ranks`: further ones."""
    index = timeline.index
    shown = {timeline.lanes[lane].rank for lane in lanes}
    shown |= {rank for rank in job.rank_ids if ranks is not None and rank in ranks}
    rows, _ = matching(timeline, job, sought(text), shown)
    start, end = index.start_ns(rows), index.start_ns(rows) + index.dur_ns(rows)
    inside = (start < hi_ns) & (end > lo_ns)
    rows, start, end = rows[inside], start[inside], end[inside]
    lane = index.group(rows) // index.categories
    rank = np.array([each.rank for each in timeline.lanes], np.int64)[lane]
    wanted = np.isin(lane, np.array(sorted(lanes), np.int64))

    def within(chosen: Array) -> list[int]:
        return spots(start[chosen], end[chosen], lo_ns, hi_ns, bins)

    return {
        "rows": rows[wanted][:MAX_MARKED].tolist(),
        "lanes": {int(n): within(lane == n) for n in np.unique(lane[wanted])},
        "ranks": {int(n): within(rank == n) for n in np.unique(rank)},
    }


def matching(timeline: Timeline, job: JobFacts, asked: Sought, ranks: Collection[int]) -> tuple[Array, Array]:
    """Rows of the index that match on some ranks, and the kind of match of each (index in _WAYS)."""
    if asked.rank is not None:
        ranks = {asked.rank} & set(ranks)
    if not asked.words and asked.step is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    index, rows, ways = timeline.index, [], []
    named = _named(timeline.names, asked.words) if asked.words else np.zeros(1, bool)
    for number, lane in enumerate(timeline.lanes):
        if lane.rank not in ranks or lane.kind == "causes":
            continue
        lane_groups = np.arange(index.first[number * index.categories], index.first[(number + 1) * index.categories])
        if asked.words:
            way = np.where(named[index.name[lane_groups]], 0, -1)
            way = _behind(lane, job.ranks[lane.position], index.ref[lane_groups], asked.words, way)
        else:
            way = np.zeros(len(lane_groups), np.int64) if lane.kind == "steps" else np.full(len(lane_groups), -1)
        if asked.step is not None:
            way = np.where(_in_step(timeline, job, lane, lane_groups, asked.step), way, -1)
        rows.append(lane_groups[way >= 0])
        ways.append(way[way >= 0])
    return np.concatenate(rows or [np.empty(0, np.int64)]), np.concatenate(ways or [np.empty(0, np.int64)])


@lru_cache(maxsize=64)  # of a rank's strings: mostly those of the next rank too
def _named(names: tuple[str, ...], words: str) -> Array:
    return np.array([words in name.casefold() for name in names] or [False], bool)


@lru_cache(maxsize=64)
def _collectives(words: str) -> Array:
    joined = _APART.sub("", words)
    return np.array([bool(joined) and joined in _APART.sub("", op) for op in COLLECTIVE_OPS], bool)


def _behind(lane: Lane, facts: RankFacts, ref: Array, words: str, way: Array) -> Array:
    """Slices whose own name does not match, but whose operator, module or collective does."""
    if lane.kind == "comm":
        return np.where((way < 0) & _collectives(words)[facts.comms["op"][ref]], 3, way)
    if lane.kind != "stream":
        return way
    ops = facts.device_ops
    operator = ops["operator"][ref]
    is_named = _named(facts.strings, words)[np.where(operator == NO_STRING, 0, operator)] & (operator != NO_STRING)
    way = np.where((way < 0) & is_named, 1, way)
    if len(facts.module_spans):
        calls = _CALLS.table({"thread": ops["thread"][ref], "called_ns": ops["launch_ns"][ref]})
        number, texts = modules(facts, calls)
        way = np.where((way < 0) & _named(tuple(texts), words)[number], 2, way)
    comm = ops["comm"][ref]
    if len(facts.comms):
        is_wanted = (comm != NULL) & _collectives(words)[facts.comms["op"][np.where(comm == NULL, 0, comm)]]
        way = np.where((way < 0) & is_wanted, 3, way)
    return way


def _in_step(timeline: Timeline, job: JobFacts, lane: Lane, rows: Array, number: int) -> Array:
    """Mask of slices in a step of their rank, by its number (as on every page), else by the trace's own mark."""
    steps, index = job.ranks[lane.position].steps, timeline.index
    on_pages = job.step_rows[lane.position][number : number + 1].tolist()
    row = (on_pages or [*np.flatnonzero(steps["index"] == number).tolist(), -1])[0]
    if row < 0:
        return np.zeros(len(rows), bool)
    if lane.kind == "steps":
        return np.asarray(index.ref[rows] == steps["index"][row])
    shift = job.shift_ns(lane.position)
    start = index.start_ns(rows)
    begins, ends = int(steps["start_ns"][row]) - shift, int(steps["end_ns"][row]) - shift
    return np.asarray((start < ends) & (start + index.dur_ns(rows) > begins))


def _calls(timeline: Timeline, rows: Array, ways: Array) -> tuple[Array, Array, Array, Array]:
    """Rows, ways, starts and ends of calls: a communication is one call, though drawn in two parts."""
    index = timeline.index
    start = index.start_ns(rows)
    end = start + index.dur_ns(rows)
    lane, ref = index.group(rows) // index.categories, index.ref[rows]
    order = np.lexsort((start, ref, lane))
    same = (np.diff(lane[order]) == 0) & (np.diff(ref[order]) == 0) & (ref[order][1:] != NULL)
    begins = np.flatnonzero(np.concatenate(([True], ~same))) if len(rows) else np.empty(0, np.int64)
    ends = np.maximum.reduceat(end[order], begins) if len(rows) else end
    kept = order[begins]
    return rows[kept], ways[kept], start[kept], ends


def _of(some: int, all_of_them: int) -> str:
    noun = "rank" if all_of_them == 1 else "ranks"
    return f"{all_of_them:,} {noun}" if some == all_of_them else f"{some:,} of {all_of_them:,} {noun}"


def _none(timeline: Timeline, job: JobFacts, asked: Sought, searched: list[int]) -> str:
    """Sentence for no hits: what was searched, and what would have to be read first."""
    if asked.rank is not None and asked.rank not in searched:
        which = "among the ranks that are shown" if len(searched) < len(job.rank_ids) else "in this run"
        return f"No rank {asked.rank} {which}, only {format_ranks(searched)}"
    if not asked.words and asked.step is None:
        return f"rank {asked.rank}" if asked.rank is not None else "Type what to search for"
    if asked.step is not None:
        most = len(job.step_numbers)
        if asked.step >= most and not any((facts.steps["index"] == asked.step).any() for facts in job.ranks):
            return f"No step {asked.step}: the run was recorded for steps 0 to {most - 1}"
    on = f"rank {asked.rank}" if asked.rank is not None else _of(len(searched), len(searched))
    within = f" on {on}" + (f" in step {asked.step}" if asked.step is not None else "")
    has_modules = any(len(facts.module_spans) for facts in job.ranks)
    behind = "operators and modules" if has_modules else "operators"
    parts = f"kernels and copies, the {behind} that launched them, collectives, phases, host ranges"
    words = f"Nothing named “{asked.words}”{within}. Searched: {parts}."
    missing = [] if has_modules else ["modules were not recorded (with_stack=True records them)"]
    read = sorted({lane.rank for lane in timeline.lanes if lane.kind in ("ops", "workers")})
    unread = [rank for rank in searched if rank not in read]
    if unread:
        whose = "" if not read else f" of {format_ranks(unread)}"
        missing.append(f"host operators{whose}: tick “operators”, which reads the traces of the open ranks")
    return words + (f" Not searched: {'; '.join(missing)}." if missing else "")
