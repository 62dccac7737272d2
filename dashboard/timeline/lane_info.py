"""Lane descriptions for assets/timeline/: ranks, labels, and colour, letter and texture of each category."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ddprof.dashboard.numbers import Numbers
from ddprof.dashboard.timeline.categories import LOOKS
from ddprof.dashboard.timeline.index import step_count
from ddprof.dashboard.timeline.lanes import KINDS, Timeline

KIND_WORDS = {
    "causes": "where time goes",
    "steps": "steps",
    "phases": "phases",
    "host": "host",
    "stream": "device",
    "comm": "communication",
}


def timeline_info(timeline: Timeline, ranks: Numbers | None = None) -> dict[str, Any]:
    """Lanes of some ranks (None: all), the window in ns since the run's start, and the style of the categories."""
    lanes = [
        {"id": i, "rank": lane.rank, "host": lane.host, "kind": lane.kind, "label": lane.label, "slices": lane.slices}
        for i, lane in enumerate(timeline.lanes)
        if ranks is None or lane.rank in ranks
    ]
    used = {lane["kind"] for lane in lanes}
    return {
        "lanes": lanes,
        "lo_ns": timeline.index.lo_ns,
        "hi_ns": timeline.index.hi_ns,
        "slices": len(timeline.index),
        "steps": step_count(timeline.steps),
        "categories": [asdict(look) for look in LOOKS.values()],
        "kinds": [[kind, KIND_WORDS[kind]] for kind in KINDS if kind in used and kind in KIND_WORDS],
    }
