"""The timeline inside the file: lanes, one tile of the whole run, the longest waits and the critical path, packed.

Kinds of lanes with few slices are held exactly while the budget lasts; of the others each bin holds what filled it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts.arrangement import arrangement
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.timeline import configuration, reading
from ddprof.dashboard.onefile.exhibits import exhibit_section, packed
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.timeline.inspect import largest_waits, path_runs
from ddprof.dashboard.timeline.lane_info import timeline_info
from ddprof.dashboard.timeline.lanes import Timeline
from ddprof.dashboard.timeline.overview import overview
from ddprof.dashboard.timeline.steps import one_step, step_count
from ddprof.dashboard.timeline.tiles import MAX_BINS, MAX_LANES, encode
from ddprof.errors import DdprofError
from ddprof.report.html.markup import Markup, tag

EXACT_SLICES = 120_000  # 17 bytes each before packing
BINNED_BYTES = 600_000  # of all merged lanes, two bytes a bin, before packing
LEAST_BINS = 256
_OWN = frozenset(cause.label for cause in CAUSES.values())  # names of slices that are ours, and so public
_STEP = re.compile(r"step \d+( \(marked -?\d+\))?")
MAX_STEPS = 20_000  # spans of one rank's step each
MAX_PATH = 4_000  # stretches of the critical path


def timeline_section(view: View, event: Callable[[str], str], text: Callable[[str], str]) -> list[Markup]:
    """The page's content. `event` and `text` map names of events and other text (identity, or redaction)."""
    lanes = _embedded_lanes(view.opened.timeline, configuration(view)["culprits"])
    timeline = view.opened.timeline
    renamed = tuple(replace(lane, host=text(lane.host), label=text(lane.label)) for lane in timeline.lanes)
    names = tuple(name if name in _OWN or _STEP.fullmatch(name) else event(name) for name in timeline.names)
    timeline = replace(timeline, names=names, lanes=renamed)
    held = json.dumps(_held(view, timeline, lanes, text), allow_nan=False, separators=(",", ":")).encode()
    index = timeline.index
    bins = min(MAX_BINS, max(LEAST_BINS, BINNED_BYTES // 2 // max(1, len(lanes))))
    tile = encode(timeline, lanes, index.lo_ns, index.hi_ns, bins, EXACT_SLICES)
    words = " ".join((reading(view), _left_out(timeline, lanes)))
    return [
        tag("div", id="timeline-root", class_="timeline"),
        tag("p", words, class_="reading"),
        tag("noscript", tag("p", "The timeline is drawn by a script; the table below names the same spans.")),
        exhibit_section(spans_exhibit(view)),
        packed("timeline-held", held),
        packed("timeline-tile", tile),
    ]


def spans_exhibit(view: View) -> Exhibit:
    """The shaded spans as a table, for readers without the picture."""
    report = view.opened.report
    rows = [
        (n, e.rank, e.start_us / 1e3, None if e.end_us is None else e.end_us / 1e3, f"{f.summary}: {e.text}")
        for n, f in enumerate(report.ranked_findings(), 1)
        for e in f.evidence
        if e.start_us is not None
    ]
    table = sheet(("finding", "rank", "from (ms)", "to (ms)", "what"), rows)
    spoken = "Spans of the findings' evidence, shaded above; times since the first step mark."
    return Exhibit("spans", "Where are the findings seen?", spoken if rows else "No finding names a span.", table)


def _embedded_lanes(timeline: Timeline, culprits: Collection[int]) -> list[int]:
    """Lanes in the file: time by cause for every rank, then lanes of ranks that a finding names, then the rest."""

    def place(lane: int) -> tuple[bool, bool, int]:
        entry = timeline.lanes[lane]
        return entry.kind != "causes", entry.rank not in culprits, lane

    return sorted(sorted(range(len(timeline.lanes)), key=place)[:MAX_LANES])


def _held(view: View, timeline: Timeline, lanes: list[int], text: Callable[[str], str]) -> dict[str, Any]:
    opened, kept = view.opened, set(lanes)
    info, most = timeline_info(timeline), MAX_STEPS // max(1, len(timeline.steps))  # as few steps as can be embedded
    steps = [one_step(timeline.steps, number) for number in range(min(most, step_count(timeline.steps)))]
    info["lanes"] = [lane for lane in info["lanes"] if lane["id"] in kept]
    waits = largest_waits(opened.job, timeline.index.lo_ns, timeline.index.hi_ns)
    return {
        "config": configuration(view),
        "info": {**info, "fixed": True, "steps": len(steps)},
        "waits": waits,
        "overview": overview(timeline),
        "path": _path(view),
        "steps": steps,
        "arrangement": arrangement(opened.job),
        "counters": [{**track, "label": text(track["label"])} for track in opened.counters],
    }


def _path(view: View) -> list[list[float]]:
    """The critical path, only its longest stretches where there are many; [] where the run cannot be replayed."""
    try:
        runs = path_runs(view.opened.job, view.opened.critical)
    except DdprofError:
        return []
    if len(runs) <= MAX_PATH:
        return runs
    return sorted(sorted(runs, key=lambda run: run[1] - run[2])[:MAX_PATH], key=lambda run: run[1])


def _left_out(timeline: Timeline, lanes: list[int]) -> str:
    """Content that the file omits, in words; "" for none."""
    words = []
    if sum(timeline.lanes[lane].slices for lane in lanes) > EXACT_SLICES:
        words.append("Lanes with many slices are merged in this file; ddprof serve shows every slice.")
    if left := len(timeline.lanes) - len(lanes):
        words.append(f"{left} lanes are left out.")
    return " ".join(words)
