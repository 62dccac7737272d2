"""Script lines of calls that a flight recorder kept without stacks, from the rank's log of its script's calls.

Capture asks torch for stacks only where that imports nothing (capture/window/flight_recorder.py). Calls of the script
lie, in time, inside a call of its log; those of DDP and FSDP do not, and have no line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from ddprof.slices.hangs.evidence import Call

_NESTED = 4  # calls of torch.distributed inside one another: `broadcast_object_list` makes two broadcasts


def with_lines(recorded: Sequence[Call], logged: Sequence[Call]) -> tuple[Call, ...]:
    """The recorded calls; one without a stack gets that of the rank's own call under way at its start."""
    of_group: dict[str, list[Call]] = {}
    for call in sorted((c for c in logged if c.peer is None and c.frames and c.entered_ns), key=_entered):
        of_group.setdefault(call.group, []).append(call)
    return tuple(call if call.frames else _with_line(call, of_group.get(call.group, [])) for call in recorded)


def _with_line(call: Call, logged: Sequence[Call]) -> Call:
    began_ns = _entered(call)
    at = bisect_right(logged, began_ns, key=_entered)
    for outer in reversed(logged[max(at - _NESTED, 0) : at]):
        if not outer.done or (outer.left_ns or 0) >= began_ns:
            return replace(call, frames=outer.frames)
    return call


def _entered(call: Call) -> int:
    return call.entered_ns or 0
