"""The ledger's causes, one row each: every microsecond of a step is booked to exactly one of them.

Screens, gates, tables and the verdict read this table. A new cause is one row here plus the code that books its time:
`analyzers/facts/host.py` for what the host does, `analyzers/facts/gaps.py` for other idle time,
`analyzers/job/ledger.py` for the rest.

Colours: the light set was chosen for contrast (WCAG, at least 3 on white) and colour-blind distance; the dark set keeps
the hues. Each cause also has a letter, and causes that often touch a texture, so that nothing depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddprof.finding_ids import (
    HOST_ALLOCATOR,
    HOST_CHECKPOINT,
    HOST_EVALUATION,
    HOST_GC,
    HOST_LAUNCH_BLOCKING,
    HOST_LAUNCH_BOUND,
    HOST_SCRIPT,
    HOST_STALLED,
    HOST_SYNC,
    INPUT_PAGEABLE_COPY,
    STRAGGLER_COMPUTE,
    STRAGGLER_IMBALANCE,
)


@dataclass(frozen=True)
class Cause:
    """One cause of the ledger: its id, words, letter, colours and the bound that it stands for."""

    id: str  # in JSON, tables and gates: never renamed
    label: str  # in legends and table heads
    words: str  # in a sentence: "12 % of each step is ..."
    letter: str
    light: str  # colour on a light ground
    dark: str  # colour on a dark ground
    bound: str  # the verdict's bound where most of a step is of this cause
    is_idle: bool = True  # the device neither computes nor moves data
    texture: str = ""  # "hatch", "dots", "lines" or "cross"; "": plain
    # Idle time that host spans of several causes cover is of the lowest; None: no host span has this cause.
    host_precedence: int | None = None
    # Findings of the whole job (their ids, or how these begin) that say why ranks which spend time on it are late.
    explained_by: tuple[str, ...] = ()

    @property
    def color_name(self) -> str:
        """The theme's name of the colour; in CSS, var(--color_name)."""
        return self.id.replace("_", "-")


# In the order in which bars stack them.
# fmt: off
_ROWS = (
    Cause("compute", "compute", "computing",
          "C", "#1F6FEB", "#5B9DFF", "compute", is_idle=False,
          explained_by=(STRAGGLER_IMBALANCE, STRAGGLER_COMPUTE, "pipeline.", "compute.")),
    Cause("comm_transfer", "communication", "exposed communication",
          "T", "#D9480F", "#FF8A4C", "communication", is_idle=False,
          explained_by=("comm.",)),
    Cause("comm_wait", "waiting for late ranks", "waiting for late ranks",
          "W", "#A61E4D", "#FF6B9A", "straggler", is_idle=False, texture="hatch"),
    Cause("memcpy", "host-device copies", "copying between host and device",
          "M", "#D073B0", "#E9A0D2", "input", is_idle=False, texture="lines",
          explained_by=(INPUT_PAGEABLE_COPY,)),
    Cause("dataloader", "data loader", "waiting for the next batch",
          "D", "#6B4E00", "#D6A825", "input", texture="dots", host_precedence=4,
          explained_by=("input.",)),
    Cause("host_launch", "host too slow (CPU)", "idle while the host issues work too slowly",
          "H", "#1F2430", "#B8C0D0", "host", texture="cross",
          explained_by=(HOST_LAUNCH_BOUND, HOST_LAUNCH_BLOCKING, HOST_STALLED, HOST_SCRIPT, HOST_GC)),
    Cause("host_sync", "host-device sync", "idle while host and device wait for one another",
          "S", "#5B6472", "#8E99AB", "host", host_precedence=5,
          explained_by=(HOST_SYNC, HOST_LAUNCH_BLOCKING, HOST_STALLED)),
    Cause("allocator", "allocator", "idle while device memory is allocated",
          "A", "#7A3EB1", "#B98CE8", "host", host_precedence=2,
          explained_by=(HOST_ALLOCATOR,)),
    Cause("gc", "garbage collection", "idle during Python garbage collection",
          "G", "#007A5A", "#35C79A", "host", host_precedence=1,
          explained_by=(HOST_GC,)),
    Cause("checkpoint", "checkpoint/logging", "idle during checkpoints, logging or evaluation",
          "K", "#00788A", "#3FC3D6", "host", host_precedence=3,
          explained_by=(HOST_CHECKPOINT, HOST_EVALUATION)),
    Cause("pipeline_bubble", "pipeline bubble", "idle while another pipeline stage works",
          "B", "#8A6D3B", "#CBB083", "pipeline"),
    Cause("other", "other idle", "idle during other known work",
          "O", "#7D8590", "#7D8590", "none"),
    Cause("unknown", "unexplained", "unexplained",
          "?", "#B0B7C0", "#565E69", "none"),
)
# fmt: on

CAUSES: Mapping[str, Cause] = {row.id: row for row in _ROWS}
CAUSE_IDS = tuple(CAUSES)
CAUSE_CODE: Mapping[str, int] = {cause: code for code, cause in enumerate(CAUSE_IDS)}  # what tables hold

_SPANS = [row for row in _ROWS if row.host_precedence is not None]
SPAN_CAUSES = tuple(row.id for row in _SPANS)  # causes that host spans can have
# What occupies the host by itself, innermost first; a blocking call only waits, for what the device does.
HOST_OCCUPANTS = tuple(
    row.id for row in sorted(_SPANS, key=lambda row: row.host_precedence or 0) if row.id != "host_sync"
)
# What makes a host late in issuing its work, as the waiting for it is charged.
HOST_CAUSES = ("host_launch", "host_sync", "allocator", "other", "unknown")
