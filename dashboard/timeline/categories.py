"""Categories of slices: the ledger's causes and what lies beside them, in words and looks."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.causes import CAUSES


@dataclass(frozen=True)
class Category:
    """Words and looks of a category of slices, as assets/timeline/ reads them."""

    words: str
    color: str  # a name of the theme
    letter: str
    texture: str | None = None
    idle: bool = False
    pale: bool = False  # the page's text is read on it


# Hatching means waiting for others, and nothing else.
_OF_CAUSES = {
    row.id: Category(
        row.label, row.color_name, row.letter, row.texture if row.texture == "hatch" else None, idle=row.is_idle
    )
    for row in CAUSES.values()
}
# The ledger's causes first; what is no cause looks like one, so that the theme carries its colour.
LOOKS = _OF_CAUSES | {
    "forward": Category("forward", "compute", "f"),
    "backward": Category("backward", "checkpoint", "b"),
    "optimizer": Category("optimizer", "gc", "o"),
    "step": Category("step", "unknown", "s"),
    "comm_hidden": Category("communication under compute", "comm-transfer", "c"),
    "operator": Category("operator", "other", "o"),
    "range": Category("annotated range", "checkpoint", "r"),
    "runtime": Category("runtime call", "host-sync", "r"),
    "frame": Category("Python frame", "unknown", "f"),
    "worker": Category("loader worker fetches a batch", "dataloader", "w"),
    # What became of a slice between two runs (difference.py), in colours of timeline.css.
    "shrank_much": Category("shorter after by 10 % of the step or more", "shrank-much", "−"),
    "shrank": Category("shorter after by 1 % of the step or more", "shrank", "−", pale=True),
    "unchanged": Category("as long, to 1 % of the step", "unchanged", "=", pale=True),
    "grew": Category("longer after by 1 % of the step or more", "grew", "+", pale=True),
    "grew_much": Category("longer after by 10 % of the step or more", "grew-much", "+", pale=True),
    "only_here": Category("only here", "only-here", "!"),
}
CATEGORIES = tuple(LOOKS)
CATEGORY = {name: code for code, name in enumerate(CATEGORIES)}
