"""What timeline.js is told of the lanes: their ranks and words, and the colour, letter and texture of each category."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ddprof.dashboard.timeline.lanes import CATEGORIES, CATEGORY_WORDS, KINDS, Timeline
from ddprof.report.bar import LOOKS

KIND_WORDS = {
    "causes": "where time goes",
    "steps": "steps",
    "phases": "phases",
    "host": "host",
    "stream": "device",
    "comm": "communication",
}
# Colours of what is no ledger cause: borrowed from the palette, so that the theme carries them.
_EXTRA_COLORS = {
    "forward": "compute",
    "backward": "checkpoint",
    "optimizer": "gc",
    "step": "unknown",
    "comm_hidden": "comm-transfer",
    "operator": "other",
    "range": "checkpoint",
    "runtime": "host-sync",
    "frame": "unknown",
    "worker": "dataloader",
}
_TEXTURES = {"comm_wait": "hatch", "dataloader": "dots", "worker": "dots", "memcpy": "lines", "host_launch": "cross"}


def timeline_info(timeline: Timeline, ranks: Collection[int] | None = None) -> dict[str, Any]:
    """Lanes of some ranks (None: all), the window in ns since the run's start, and how categories look."""
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
        "categories": [_category(name) for name in CATEGORIES],
        "kinds": [[kind, KIND_WORDS[kind]] for kind in KINDS if kind in used and kind in KIND_WORDS],
    }


def _category(name: str) -> dict[str, str | None]:
    color = _EXTRA_COLORS.get(name, name.replace("_", "-"))
    letter = LOOKS[name].letter if name in LOOKS else name[0]
    return {"words": CATEGORY_WORDS[name], "color": color, "letter": letter, "texture": _TEXTURES.get(name)}
