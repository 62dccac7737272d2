"""Lines of a text log: the writer of each, its text without colours and prefixes, its time stamp, its numbers.

Launchers mark lines with their rank (torchrun `[default0]:` and `[rank0]:`, `srun --label`, `mpirun --tag-output`, the
host name that DeepSpeed's pdsh puts there), collectors with a time. Most of a log is settings, warnings and lines of
NCCL: only lines that hold one of some words, and those after a heading, are looked at, which is what makes it a stream.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import MINYEAR
from functools import lru_cache
from typing import NamedTuple

from ddprof.readers.files.streams import open_blocks
from ddprof.readers.numbers import one_float
from ddprof.readers.source import Source

LOGS_BYTES = 1 << 30  # of text in packed logs together: a gigabyte takes 20 to 100 s
MAX_LINE_BYTES = 1 << 16  # arguments printed in one line have some 20 KB; a longer line holds no number we look for
BAR_RATES = ("it/s", "s/it", "batch/s", "batches/s", "s/batch", "step/s", "steps/s", "s/step")  # of tqdm, by its unit
BAR_RATE = "|".join(BAR_RATES)
# One or the other stands in every line of a loop that begins something we read
OF_LOOPS = (
    *(
        "ime:",
        "ime=",
        "ime ",
        "ime\t",
        " dt",
        "_cost:",
        "/step",
        "s/iter",
        "updt_s:",
        "_to_end(s)",
        "tep_time",
        "= Step ",
    ),
    *("[batch=", "[step=", "batches_per_sec", "erplexity", "step_avg:", "elapsed:", "oss", ", iter:", " tok/s;", "/s"),
    *(
        " ms)",
        " sec",
        "sec/",
        "econds",
        "ook ",
        "uration",
        "lapsed",
        "iterations",
        "per_sec",
        "poch",
        "pisode",
        "steps",
    ),
    "imer:",
)
# Beside an iteration and its time: other programs print the time of a request or a task, too.
_TRAINS = (
    "loss",
    "mfu",
    "tok",
    "grad",
    "train",
    "perplexity",
    "images/s",
    "samples/s",
    "examples/s",
    "words/s",
    "episode",
)
_AS_WORDS = ("lr", "eta", "epoch", "ppl")
EVALUATION = re.compile(
    r"\b(?:test(?:ing)?|val|valid|validat(?:e|ing|ion)|eval|evaluat(?:e|ing|ion)|predicting)\b", re.IGNORECASE
)
TRAINED = re.compile(
    r"\btrain(?:ing)?[ _/](?:\w{1,16}_)?(?:loss|acc)", re.IGNORECASE
)  # beside which validation may stand
OF_TRAINING = "|".join((*_TRAINS, *(rf"\b{word}\b" for word in _AS_WORDS)))
_BEHIND_BAR = re.compile(rb"(?<=(?:it|es)/s\])(?=\[|\x1b\[A)|(?<=s/it\])(?=\[|\x1b\[A)")  # which moves up a line
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_FROM = re.compile(
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[ \t])?"
    r"(?P<who>\[(?:default|rank|[\w-]{1,40}/)\d{1,6}\]:|\[\d+,\d+\]<std(?:out|err)>:|\s{0,6}\d{1,6}:(?=\s)"
    r"|(?![\w.]{0,80}(?:Error|Exception):)[A-Za-z][\w.-]{0,80}:(?=\s{1,2}\[)|\d{1,3}(?:\.\d{1,3}){3}:)?"
)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = re.compile(
    r"(?<![\d.])(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?"
    r"(?:Z|[+-]\d\d:?\d\d\b| (?P<half>[AP])M\b)?(?!\d|:\d)"
)
# Before a clock: a date, or the begin of a line or a bracket; other clocks are durations
_DATE = re.compile(
    r"(?:(?P<y>\d{4}|\b\d\d(?=-))[-/.]?(?P<m>\d\d)[-/.]?(?P<d>\d\d)|(?P<m2>\d\d)[/.](?P<d2>\d\d)[/.](?P<y2>\d{4}|\d\d)"
    r"|(?<![\d/-])(?P<m3>\d\d)[/-](?P<d3>\d\d)|\b[IWEF](?P<m4>\d\d)(?P<d4>\d\d)"
    rf"|\b(?P<name>{'|'.join(_MONTHS)}) {{1,2}}(?P<d5>\d{{1,2}}))[ T:,_|]$|^$|[\[(]$"
)
_OF_DATE = (("y", "y2"), ("m", "m2", "m3", "m4"), ("name",), ("d", "d2", "d3", "d4", "d5"))
_LONGEST_DATE = 12
MOST_MS = 1e9  # twelve days: no iteration, and no part of one


Span = tuple[int, int]  # in a text
NOWHERE = (0, 0)


class LogLine(NamedTuple):
    """One line: its writer as the launcher marks it, the prefix of launcher and collector, and the rest."""

    who: str
    prefix: str
    text: str


@dataclass
class LogBudget:
    """Bytes of text that the logs given may still unpack to, all together."""

    left_bytes: int = LOGS_BYTES

    @classmethod
    def of(cls, sources: Sequence[Source]) -> LogBudget:
        """The budget of these logs: text that is stored as it is counts for what it is."""
        return cls(max(LOGS_BYTES, sum(source.size_bytes for source in sources)))


class LogBlocks:
    """Whole lines of a log, block by block, and the last, if it counts. Raises NoUsableInput where the file cannot be
    opened.

    What a progress bar rewrites by carriage returns, and what others write behind it, are lines of their own. The last
    line counts only if it ends as the lines that are read do: one that was cut has cut numbers. `damage`: why the log
    was read no further, then; "" where it was read to its end.
    """

    def __init__(self, source: Source, budget: LogBudget) -> None:
        self._source, self._budget, self.damage = source, budget, ""

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        with open_blocks(self._source.path, self._source.member) as blocks:
            for block in blocks:
                whole, _, rest = broken(rest + block).rpartition(b"\n")
                yield whole
                rest = rest[-MAX_LINE_BYTES:]
                self._budget.left_bytes -= len(block)
                if self._budget.left_bytes < 0:
                    self.damage = f"logs are read to {LOGS_BYTES >> 30} GiB together; the rest is not read"
                    return
        self.damage = blocks.damage or ""
        # A crash can end a log in an unfinished error.
        if rest.rstrip().endswith((b"|", b")", b"}", b"]")) or b"Error" in rest or b"Interrupt" in rest:
            yield rest


def broken(text: bytes) -> bytes:
    """The text with what bars rewrite, and what others write behind them, in lines of their own."""
    text = text.replace(b"\r", b"\n")
    return _BEHIND_BAR.sub(b"\n", text) if b"][" in text or b"]\x1b[A" in text else text


class WantedLines:
    """The lines of a text that hold one of some words."""

    def __init__(self, text: bytes, words: tuple[str, ...]) -> None:
        self._text, self._words = text, _least(words)
        self._next: dict[bytes, int] | None = None  # places of words, once a line has none

    def between(self, at: int, stop: int, reads_on: Callable[[], bool]) -> Iterator[Span]:
        """The places of such lines between two, and of those that are read on."""
        text = self._text
        while at < stop:
            end = self._end(at)
            line = text[at:end]
            if not reads_on() and not any(word in line for word in self._words):
                at = self._behind(end)
                if at >= stop:
                    return
                end = self._end(at)
            if at < end <= at + MAX_LINE_BYTES:
                yield at, end
            at = end + 1

    def _end(self, at: int) -> int:
        end = self._text.find(b"\n", at)
        return len(self._text) if end < 0 else end

    def _behind(self, end: int) -> int:
        """The begin of the next line with a word, or the end of the text."""
        places = self._next = dict.fromkeys(self._words, end) if self._next is None else self._next
        for word in [word for word, before in places.items() if before <= end]:
            places[word] = self._text.find(word, end)
            if places[word] < 0:
                del places[word]
        return self._text.rfind(b"\n", end, min(places.values())) + 1 if places else len(self._text)


@lru_cache(maxsize=8)
def _least(words: tuple[str, ...]) -> tuple[bytes, ...]:
    """The words that contain no other of them: a line without these contains none of the rest."""
    return tuple(word.encode() for word in words if not any(other in word for other in words if other != word))


def uncoloured(line: bytes) -> bytes:
    """The line without colours."""
    return _ESCAPE.sub(b"", line) if b"\x1b" in line else line


def parted(text: str) -> LogLine:
    """The parts of a line."""
    match = _FROM.match(text)
    if match is None:
        return LogLine("", "", text)
    return LogLine((match["who"] or "").strip(), match[0], text[match.end() :])


class Stamp(NamedTuple):
    """A clock reading and its resolution, in seconds."""

    s: float
    grain_s: float


class StampPlace(NamedTuple):
    """The place of a time stamp: its minute from `begin` to the second, and by parts; its second, and parts of that."""

    begin: int
    minute: tuple[Span, ...]  # year, month, its name, day, hour, minute, half of the day
    second: Span
    part: Span
    end: int


def stamps_of(text: str) -> tuple[StampPlace, ...]:
    """The places of a text's time stamps. Time zones are ignored: only differences are used."""
    places = []
    for clock in _CLOCK.finditer(text) if ":" in text else ():
        date = _DATE.search(text, max(0, clock.start() - _LONGEST_DATE), clock.start())
        if date is None:
            continue
        of_date = [max(map(date.span, names)) for names in _OF_DATE]
        minute = (*of_date, clock.span("hour"), clock.span("minute"), clock.span("half"))
        places.append(StampPlace(date.start(), minute, clock.span("second"), clock.span("part"), clock.end()))
    return tuple(places)


def stamp_at(text: str, places: Sequence[StampPlace]) -> Stamp | None:
    """The last time stamp at some places; None without one that can be."""
    for begin, minute, (second, end), (first, last), _ in reversed(places):
        whole_s = minute_s(text[begin:second], text[slice(*minute[-1])], begin, minute)
        if whole_s is not None:
            part = text[first:last]
            whole = whole_s + int(text[second:end])
            return Stamp(whole + (int(part) / 10 ** len(part) if part else 0.0), 10.0 ** -len(part))
    return None


@lru_cache(maxsize=4096)
def minute_s(text: str, half: str, begin: int, places: tuple[Span, ...]) -> int | None:
    """Seconds since 1970 at a minute whose text begins there in its line; None where there is no such day."""
    year, month, name, day, hour, minute = (text[max(0, a - begin) : max(0, b - begin)] for a, b in places[:-1])
    y, m, d = int(year or 1970), _MONTHS.index(name) + 1 if name else int(month or 1), int(day or 1)
    if m > 12 >= d:  # "13/09/24": the day first
        m, d = d, m
    if not (y >= MINYEAR and 1 <= m <= 12 and 1 <= d <= 31):
        return None
    h = int(hour) % (12 if half else 24) + (12 if half == "P" else 0)
    return timegm((y, m, d, h, int(minute), 0))


def number(value: str | None) -> float | None:
    """The number in a value, or before its slash ("6210.4/6200.3": of this iteration / mean)."""
    return None if value is None else one_float(value.split("/", 1)[0])


def time_ms(value: str | None, each_ms: float = 1.0, most_ms: float = MOST_MS) -> float | None:
    """Milliseconds of a value in units of `each_ms`; None where it is no time, or so long that the line is damaged."""
    given = number(value)
    return given * each_ms if given is not None and 0 <= given < most_ms / each_ms else None
