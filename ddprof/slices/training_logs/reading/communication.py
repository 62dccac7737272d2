"""DeepSpeed's communication logger (deepspeed/utils/comms_logging.py): lines of single calls, its table, stragglers.

    comm op: all_gather_base | time (ms): 0.11 | msg size: 6.0 MB | algbw (Gbps): 954.41  | busbw (Gbps): 894.76
    Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     ...
    broadcast
                        2.0 KB              146                 11.12               0.08                ...

Sizes are powers of 1024 whatever their names say, rates bits. A table counts from the start, so that the last one holds
all before it; the lines are read where there is none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import fmean

from ddprof.readers.numbers import one_float, one_int
from ddprof.slices.training_logs.model import LoggedCalls, LoggedStraggling
from ddprof.slices.training_logs.reading.lines import LogLine

_SINGLE = re.compile(
    r"comm op: (?P<op>[\w ]{1,80}?(?: \| \[Caller Func: [^\]]{1,80}\])?) \| time \(ms\): (?P<ms>[\d.]{1,20}) \| "
    r"msg size: (?P<size>[\d.]{1,20}) ?(?P<unit>[KMGTP]?B)(?: \| algbw \(Gbps\): (?P<tput>[\d.]{1,20}) +\| "
    r"busbw \(Gbps\): (?P<bus>[\d.]{1,20})(?=\s|$))?"
)
_HEAD = re.compile(r"Comm\. Op\s+Message Size\s+Count\s+Total (?P<what>Latency|comm lat)\(ms\)")
# What stands alone in a line of a table is an operation, of whatever backend, if a row follows it.
_OP = re.compile(r"^\s{0,3}(?P<op>[A-Za-z]\w{0,60}(?: \| \[Caller Func: [^\]]{1,80}\])?)\s*$")
_ROW = re.compile(
    r"^\s{4,}(?P<size>[\d.]{1,20}) ?(?P<unit>[KMGTP]?B)\s+(?P<count>\d{1,12})\s+"
    r"(?P<total>[\d.]{1,20})\s+(?P<mean>[\d.]{1,20})(?:\s+(?P<third>[\d.]{1,20})\s+(?P<fourth>[\d.]{1,20}))?\s*$"
)
WORDS = ("comm op: ", "Comm. Op")
_MOST_BETWEEN = 100  # lines of other ranks between two rows
_UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))}


class CommunicationLines:
    """Collects calls from the lines of one log."""

    def __init__(self) -> None:
        self._single: dict[tuple[str, int], list[tuple[float, float | None, float | None]]] = defaultdict(list)
        self._tables: dict[str, list[LoggedCalls]] = {}  # by who wrote the table
        self._straggling: dict[str, list[LoggedStraggling]] = {}
        self.open: dict[str, str] = {}  # who -> the table that it is writing
        self._op: dict[str, str] = {}
        self._since = 0  # lines since the last of any table

    @property
    def are_there(self) -> bool:
        """True where a call was logged, or a table has begun."""
        return bool(self._single or self.open)

    @property
    def reads_on(self) -> bool:
        """True where the next lines may belong to a table."""
        return bool(self.open) and self._since < _MOST_BETWEEN

    @property
    def calls(self) -> list[LoggedCalls]:
        """Calls in the last table of the writer with the longest one; without tables, those of single lines."""
        table = max(self._tables.values(), key=len, default=[])
        return table or [_summed(op, size, of) for (op, size), of in self._single.items()]

    @property
    def straggling(self) -> list[LoggedStraggling]:
        """Rows of the last table of stragglers."""
        return max(self._straggling.values(), key=len, default=[])

    def take(self, line: LogLine) -> None:
        """Read the next line."""
        who, _, text = line
        if "comm op: " in text:
            for match in _SINGLE.finditer(text):
                ms, size = one_float(match["ms"]), _size(match["size"], match["unit"])
                if ms is not None and size is not None:
                    self._single[match["op"], size].append((ms, one_float(match["tput"]), one_float(match["bus"])))
        elif (head := _HEAD.search(text)) is not None:
            self.open[who] = head["what"]
            self._since = 0
            self._op.pop(who, None)
            if head["what"] == "Latency":
                self._tables[who] = []
            else:
                self._straggling[who] = []
        elif who in self.open:
            self._row(who, text)

    def _row(self, who: str, text: str) -> None:
        if (named := _OP.match(text)) is not None:
            self._op[who] = named["op"]
        row = _ROW.match(text)
        self._since = 0 if row is not None else self._since + 1
        if row is None or who not in self._op:
            return
        size, count = _size(row["size"], row["unit"]), one_int(row["count"])
        total, mean, third, fourth = (one_float(row[name]) for name in ("total", "mean", "third", "fourth"))
        if size is None or count < 1 or total is None or mean is None:
            return
        if self.open[who] == "Latency":
            self._tables[who].append(LoggedCalls(self._op[who], size, count, total, mean, third, fourth))
        else:
            self._straggling[who].append(LoggedStraggling(self._op[who], size, count, total, mean))


def _summed(op: str, size: int, of: list[tuple[float, float | None, float | None]]) -> LoggedCalls:
    times = [ms for ms, _, _ in of]
    tput, bus = ([given for one in of if (given := one[at]) is not None] for at in (1, 2))
    return LoggedCalls(
        op, size, len(times), sum(times), fmean(times), fmean(tput) if tput else None, fmean(bus) if bus else None
    )


def _size(number: str, unit: str) -> int | None:
    given = one_float(number)
    return None if given is None or given >= 2**60 / _UNITS[unit] else round(given * _UNITS[unit])
