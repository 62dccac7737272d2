"""DeepSpeed's communication log (`comms_logger`, verbose or `log_summary()`): durations and sizes, in no step.

Nothing can be judged by it; what is said of one is where its time went.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NoReturn

from ddprof.errors import NoUsableInput
from ddprof.outside.plain_text import clean
from ddprof.readers.files.streams import read_small
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source
from ddprof.units import format_us

_VERBOSE = re.compile(rb"comm op: (?P<op>[^|\r\n]{1,200}?) \| time \(ms\): (?P<ms>[\d.]{1,20}) \| msg size: ")
_SUMMARY = re.compile(rb"^Comm\. Op\s+Message Size\s+Count\s+Total Latency\(ms\)", re.MULTILINE)
_OPERATION = re.compile(rb"^(?P<op>[A-Za-z_][\w ()|.:-]{0,200}?)\s*$")
_SIZE = re.compile(rb"^\s+[\d.]+ [KMGT]?B\s+(?P<count>\d{1,12})\s+(?P<ms>[\d.]{1,20})\s")
_WORDS = (b"comm op: ", b"Comm. Op")
_SHOWN = 4  # operations in the message


def _refuse(source: Source) -> NoReturn:
    """Raises NoUsableInput that says what the log shows."""
    content = read_small(source.path, source.member)
    spent_ms: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    # A summary counts what was logged before it too, so that only one of the two is added up.
    for op, count, ms in list(_summed(content)) or _single(content):
        spent_ms[op] += ms
        calls[op] += count
    ranked = sorted(spent_ms, key=lambda op: -spent_ms[op])[:_SHOWN]
    shown = "; ".join(f"{clean(op)} {format_us(spent_ms[op] * 1e3)} in {calls[op]} calls" for op in ranked)
    why = "a communication log of DeepSpeed, which says neither when a call was nor for whom it waited; ddprof run does"
    raise NoUsableInput(f"{source.label}: {why}." + (f" It holds {shown}" if shown else " It holds no call"))


def _single(content: bytes) -> Iterator[tuple[str, int, float]]:
    """(operation, calls, milliseconds) of every line that `verbose` writes."""
    for found in _VERBOSE.finditer(content):
        if (ms := _number(found["ms"])) is not None:
            yield found["op"].decode("utf-8", "replace"), 1, ms


def _summed(content: bytes) -> Iterator[tuple[str, int, float]]:
    """The rows of the last summary: it counts from the start."""
    heads = list(_SUMMARY.finditer(content))
    if not heads:
        return
    operation = ""
    for line in content[heads[-1].end() :].splitlines()[1:]:
        row = _SIZE.match(line)
        if row is not None and operation and (ms := _number(row["ms"])) is not None:
            yield operation, int(row["count"]), ms
        elif (named := _OPERATION.match(line)) is not None:
            operation = named["op"].decode("utf-8", "replace")


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _recognise(sample: Sample) -> bool:
    if sample.is_list and sample.has_events:
        return False
    return sample.has(_VERBOSE, _WORDS) or sample.has(_SUMMARY, _WORDS)


FORMAT = Format("deepspeed_log", "a communication log of DeepSpeed", _recognise, _refuse, _refuse)
