"""Megatron's training log with its timers: the shortest and the longest time of any rank, which it does not name.

Who is slow, and in which step, is not in it; what is said of one is how far the ranks are apart in each timer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median
from typing import NoReturn

from ddprof.errors import NoUsableInput
from ddprof.outside.plain_text import clean
from ddprof.readers.files.streams import read_small
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source
from ddprof.units import format_us

_HEAD = re.compile(rb"\(min, max\) time across ranks \(ms\):")
_TIMER = re.compile(
    rb"^\s*(?P<name>[\w/-]{1,100}) \.+: \((?P<least>[\d.]{1,20}), (?P<most>[\d.]{1,20})\)\s*$", re.MULTILINE
)
_ITERATION = re.compile(rb"elapsed[ _]time[ _]per[ _]iteration[ _]\(?ms\)?\s*[:=]\s*(?P<ms>[\d.]{1,20})")
_WORDS = (b"time across ranks (ms)",)
_SHOWN = 4  # timers in the message
_ONCE = re.compile(r"setup|load-checkpoint")  # before the first step


def _refuse(source: Source) -> NoReturn:
    """Raises NoUsableInput that says what the log shows."""
    content = read_small(source.path, source.member)
    steps_ms = [ms for found in _ITERATION.finditer(content) if (ms := _number(found["ms"])) is not None]
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for found in _TIMER.finditer(content):
        least, most, name = _number(found["least"]), _number(found["most"]), found["name"].decode("ascii", "replace")
        if least is not None and most is not None and not _ONCE.search(name):
            spans[name].append((least, most))
    typical = {name: (median(a for a, _ in given), median(b for _, b in given)) for name, given in spans.items()}
    ranked = sorted(typical, key=lambda name: typical[name][0] - typical[name][1])[:_SHOWN]
    shown = [f"{len(steps_ms)} iterations of {format_us(median(steps_ms) * 1e3)} (median)"] if steps_ms else []
    shown += [f"{clean(n)} {format_us(typical[n][0] * 1e3)} to {format_us(typical[n][1] * 1e3)}" for n in ranked]
    why = "a training log of Megatron: its timers name no rank, so that nobody can be blamed (`ddprof run` records who)"
    raise NoUsableInput(f"{source.label}: {why}." + (f" Shortest to longest rank: {'; '.join(shown)}" if shown else ""))


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _recognise(sample: Sample) -> bool:
    return sample.has(_HEAD, _WORDS) and not (sample.is_list or sample.is_object)


FORMAT = Format("megatron_log", "a training log of Megatron", _recognise, _refuse, _refuse)
