"""Lane descriptions for assets/timeline/: ranks, labels, and colour, letter and texture of each category."""

from __future__ import annotations

from typing import Any

from ddprof.causes import CAUSES
from ddprof.dashboard.numbers import Numbers
from ddprof.dashboard.timeline.index import step_count
from ddprof.dashboard.timeline.lanes import CATEGORIES, CATEGORY_WORDS, KINDS, Timeline

KIND_WORDS = {
    "causes": "where time goes",
    "steps": "steps",
    "phases": "phases",
    "host": "host",
    "stream": "device",
    "comm": "communication",
}
# What is no ledger cause looks like one, so that the theme carries its colour.
_LOOKS_LIKE = {
    "forward": "compute",
    "backward": "checkpoint",
    "optimizer": "gc",
    "step": "unknown",
    "comm_hidden": "comm_transfer",
    "operator": "other",
    "range": "checkpoint",
    "runtime": "host_sync",
    "frame": "unknown",
    "worker": "dataloader",
}


# Colours of timeline.css and letters of what became of a slice between two runs.
DIFFERENCE_LOOKS = {
    "grew_much": ("grew-much", "+"),
    "grew": ("grew", "+"),
    "unchanged": ("unchanged", "="),
    "shrank": ("shrank", "−"),
    "shrank_much": ("shrank-much", "−"),
    "only_here": ("only-here", "!"),
}


PALE = ("grew_much", "grew", "unchanged", "shrank")  # the page's text is read on these


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
        "categories": [_category(name) for name in CATEGORIES],
        "kinds": [[kind, KIND_WORDS[kind]] for kind in KINDS if kind in used and kind in KIND_WORDS],
    }


def _category(name: str) -> dict[str, str | bool | None]:
    if name in DIFFERENCE_LOOKS:
        color, letter = DIFFERENCE_LOOKS[name]
        looks = {"color": color, "letter": letter, "texture": None, "idle": False}
        return {"words": CATEGORY_WORDS[name], **looks, "pale": name in PALE}
    look = CAUSES[_LOOKS_LIKE.get(name, name)]
    letter = look.letter if name in CAUSES else name[0]
    return {
        "words": CATEGORY_WORDS[name],
        "color": look.color_name,
        "letter": letter,
        # Hatching means waiting for others, and nothing else.
        "texture": look.texture if look.texture == "hatch" else None,
        "idle": name in CAUSES and look.is_idle,
        "pale": False,
    }
