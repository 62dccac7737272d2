"""Events of a file that were kept, against those that the mutation touched: the loss beyond is the reader's doing."""

import bisect
import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.reports import refused

_EVENTS = b'"traceEvents"'
_FETCHES = "DataLoader"
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class Touched:
    """Counts of a sound file's events: all, those that a mutation removed or changed, and whether the text after it is
    still whole (then what is missing in it was never there for its reader)."""

    total: int
    touched: int
    is_whole: bool
    is_header: bool  # what was changed is not the event list


def kept_events(target: Path, is_native: bool) -> dict[str, int]:
    """Events that ddprof's readers keep of each PyTorch trace below `target`, by path."""
    from ddprof.errors import DdprofError
    from ddprof.readers import discover, read

    os.environ["DDPROF_NATIVE"] = "1" if is_native else "0"
    kept = dict[str, int]()
    with suppress(DdprofError):
        for source in discover([target]).sources:
            if source.format == "kineto" and source.member is None:
                with suppress(DdprofError):  # one file that cannot be read says nothing of the others
                    trace = read(source)
                    fetches = np.flatnonzero(trace.tracks["pid"] == _FETCHES)  # of another file, drawn beside these
                    kept[source.path] = int((~np.isin(trace.events["track"], fetches)).sum())
    return kept


def touched(before: bytes, after: bytes) -> Touched | None:
    """Effect of a mutation on the events of a text; None where `before` is no trace."""
    starts = _event_spans(before)
    if not starts:
        return None
    parsed = _events(after)
    if parsed is not None:
        return Touched(len(starts), (_counted(_events(before) or []) - _counted(parsed)).total(), True, False)
    first, last = _changed(before, after)
    if first == 0 or (first <= starts[0][0] and last >= before.index(_EVENTS)):
        return Touched(len(starts), len(starts), False, True)  # nothing says any more that this is a list of events
    hit = sum(1 for start, end in starts if start <= last and end >= first)
    return Touched(len(starts), hit, False, last <= starts[0][0] or first >= starts[-1][1])


def _changed(before: bytes, after: bytes) -> tuple[int, int]:
    """The span of `before` outside of which both texts are the same."""
    shortest = min(len(before), len(after))
    first = _common(before, after, shortest)
    return first, len(before) - _common(before[::-1], after[::-1], shortest - first)


def _common(one: bytes, other: bytes, most: int) -> int:
    """Length of the common prefix of two byte strings, by halving."""
    return bisect.bisect_left(range(1, most + 1), True, key=lambda length: one[:length] != other[:length])


@lru_cache(maxsize=32)
def _event_spans(text: bytes) -> tuple[tuple[int, int], ...]:
    """[start, end) of each event of a sound trace, in bytes; () where the text is none."""
    at = text.find(_EVENTS)
    if at < 0:
        return ()
    chars = text.decode("latin-1")
    at = chars.index("[", at) + 1
    spans = []
    while (start := chars.find("{", at)) >= 0 and not chars[at:start].strip(" \t\r\n,"):
        try:
            _, at = _DECODER.raw_decode(chars, start)
        except ValueError:
            break
        spans.append((start, at))
    return tuple(spans)


def _events(text: bytes) -> list[Any] | None:
    """The events of a whole JSON text; None where it is none."""
    try:
        value = json.loads(text, parse_constant=refused)
    except (ValueError, RecursionError):
        return None
    found = value.get("traceEvents") if isinstance(value, Mapping) else value
    return found if isinstance(found, list) else None


def _counted(events: list[Any]) -> Counter[str]:
    return Counter(json.dumps(event, sort_keys=True) for event in events)
