"""Lines of JSON -> spans.

torchtitan (torchtitan#3176) writes a file for each rank; the record that ends a span holds its length in milliseconds:

    {"rank": 0, "source": "training", "step": 5, "log_type_name": "fwd_bwd_end", "value": 12.5, "tid": 71,
     "time_us": 1709500000123456, ...}

Whoever writes other logs may write a line for each span, of one rank or of all in one file (docs/formats.md):

    {"rank": 0, "step": 5, "span": "forward", "start_us": 1709500000110956, "dur_us": 12500}
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ddprof.errors import NoUsableInput
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.numbers import one_int, one_rank
from ddprof.readers.source import Source
from ddprof.slices.span_logs.model import Span, SpanLog

STEP = "step"
_LONGEST_LINE = 1 << 16
_MOST_S = 1e7  # from the begin to the end of a span: four months
_Record = tuple[str, int, str, float, float, int, str]  # source, rank, name, begin, end (s), step, thread


def read_span_logs(sources: Sequence[Source]) -> SpanLog:
    """The spans of the files of one run. Raises NoUsableInput where no line is a whole span."""
    by_source: dict[str, list[_Record]] = defaultdict(list)
    torn = damaged = 0
    for source in sources:
        with open_blocks(source.path, source.member) as blocks:
            for line in _lines(blocks):
                record = _record(line)
                if record is None:
                    torn += b"_end" in line or b'"span"' in line
                else:
                    by_source[record[0]].append(record)
            damaged += blocks.damage is not None
    if not by_source:
        raise NoUsableInput(f"{sources[0].label}: a log of spans in which no span is whole")
    # Trainers beside generators of samples have a log each: the one with steps trains.
    trainer = max(by_source, key=lambda of: (sum(r[2] == STEP for r in by_source[of]), len(by_source[of])))
    of_rank: dict[int, list[_Record]] = defaultdict(list)
    for record in by_source[trainer]:
        of_rank[record[1]].append(record)
    spans = {rank: _on_threads(records) for rank, records in sorted(of_rank.items())}
    return SpanLog(sources[0].label, "torchtitan" if trainer else "spans", spans, torn, damaged)


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        whole, _, rest = (rest + block).rpartition(b"\n")
        yield from (line for line in whole.split(b"\n") if b'_end"' in line or b'"span"' in line)
        rest = rest if len(rest) <= _LONGEST_LINE else b""
    if rest.rstrip().endswith(b"}"):
        yield rest


def _record(line: bytes) -> _Record | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or (rank := one_rank(said.get("rank"))) is None:
        return None
    kind, name = said.get("log_type_name"), said.get("span")
    try:
        if isinstance(kind, str) and kind.endswith("_end"):
            name, end_s, length_s = kind.removesuffix("_end"), float(said["time_us"]) / 1e6, float(said["value"]) / 1e3
            begin_s = end_s - length_s
        elif isinstance(name, str):
            begin_s, length_s = float(said["start_us"]) / 1e6, float(said["dur_us"]) / 1e6
            end_s = begin_s + length_s
        else:
            return None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if not (0 <= length_s < _MOST_S and abs(begin_s) < 1e11):
        return None
    source = said.get("source")
    thread = str((said.get("tid"), said.get("thread"), said.get("task_name")))
    number = one_int(said.get("step"))
    return source if isinstance(source, str) else "", rank, name, begin_s, end_s, max(number, -1), thread


def _on_threads(records: Sequence[_Record]) -> list[Span]:
    """The spans of a rank by begin; those on other threads than those with its steps (one in each process that went on
    with the job), or the one with most spans, are beside."""
    with_steps = {record[6] for record in records if record[2] == STEP}
    main = with_steps or {Counter(record[6] for record in records).most_common(1)[0][0]}
    return sorted(
        (Span(name, begin, end, number, thread not in main) for _, _, name, begin, end, number, thread in records),
        key=lambda span: (span.begin_s, -span.end_s),
    )
