"""Lines of a training loop that name the iteration and its time by keys: torchvision, timm, Swin, MAE, MMEngine,
detectron2, YOLOX, Paddle, LeRobot, Composer, OLMo, nanoGPT and its descendants, LitGPT, and loops of one's own.

Epoch: [0]  [  10/5004]  eta: 0:41:15  lr: 0.1  loss: 7.1 (7.1)  time: 0.4961  data: 0.2560  max mem: 5432
Epoch: [0][  10/5005]   Time  0.412 ( 0.713)   Data  0.010 ( 0.301)   Loss 7.0 (7.0)
2023/05/01 12:00:00 - mmengine - INFO - Epoch(train)  [1][  50/7330]  lr: 1e-3  time: 0.3429  data_time: 0.0071
iter 120: loss 3.2150, time 251.12ms, mfu 38.40%
step:10/2160 train_time:463ms step_avg:46.25ms

A key does not say of what its time is: one iteration, all since the start (`train_time`), or a mean of these
(`step_avg`). Totals rise from line to line, which the times of single iterations do not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ddprof.readers.numbers import one_float, one_rank
from ddprof.slices.training_logs.model import RankReading, TimerReading
from ddprof.slices.training_logs.reading.iterations import LoggedRecord, stride
from ddprof.slices.training_logs.reading.lines import (
    EVALUATION,
    MOST_MS,
    OF_TRAINING,
    LogLine,
    Stamp,
    stamp_of,
    time_ms,
)

WRITER = "lines of a training loop"
# By preference: a key of one iteration before one of all or of a mean.
_OF_ONE = (
    *("last_time", "iter_time", "iter time", "iteration_time", "iteration time", "step_time", "step time"),
    *(
        "batch_time",
        "batch time",
        "batch_cost",
        "avg_batch_cost",
        "per step",
        "dt",
        "time",
        "end_to_end",
        "in brackets",
    ),
)
_OF_ALL = ("train_time", "total_time", "total time", "elapsed", "elapsed_time", "time_elapsed", "wall_time")
_MEAN = ("step_avg", "avg_step_time", "avg_time")
_TIMES = (*_OF_ONE, *_OF_ALL, *_MEAN)
_OF_LINE = ("avg_batch_cost", "batch_cost", "per step")  # mean since the line before: Paddle's, and "ms/iter"
DATA = (
    *("last_data_time", "data_time", "data time", "data_wait_time", "data", "reader_cost", "avg_reader_cost"),
    *("data_s", "dataloading_s", "data_loading", "data_cost"),
)
_UPDATE = "updt_s"  # LeRobot's: an iteration without the wait for its batch
FEWEST = 3  # lines with rising numbers, before text is taken for the log of a training
# Single times in rising order are as rare as 1 in 40,000 for so many lines.
_FEWEST_RISING = 8
_MOST_FALLS = 0.1  # of the lines; of single times half are shorter than the one before
_COUNTED = (
    r"\b(?:global[_ ]step|step|iter|iteration|update|batch(?:_id)?)\s{0,4}[:=#]?\s{0,12}\[?"
    r"(?P<n>\d{1,3}(?:,\d{3}){1,3}|\d{1,12})\b(?!\.\d)"
)
_AT = re.compile(
    # "epoch: [1/200], global_step: 10": no counter in brackets, but that of the epoch
    rf"\bepoch\W{{0,4}}\[\s{{0,6}}\d{{1,7}}/\d{{1,7}}\s?\].{{0,9}}{_COUNTED}"
    # A counter in brackets, behind that of the epoch: SwAV's without a total, I-JEPA's in the same
    r"|\bepoch\W{0,4}\[\d{1,7}(?:/\d{1,7})?\]\[\s{0,8}(?P<alone>\d{1,12})\]"
    r"|\[\d{1,7},\s{1,8}(?P<within>\d{1,12})(?:\]|/)"
    r"|\b(?:epoch|train|iter)(?:\(train\))?[^\w\[]{0,4}(?:\[?\s{0,6}\d{1,7}(?:\s?/\s?\d{1,7})?\s?\]?)?[\s:,]{0,4}"
    r"\[\s{0,8}(?P<at>\d{1,12})\s?/\s{0,8}\d{1,12}|" + _COUNTED.replace("<n>", "<later>"),
    re.IGNORECASE,
)
# A JSON object in each line: LLaMA Factory's, ms-swift's ("12/294")
_IN_JSON = re.compile(r'"(?:global_step(?:/max_steps)?|current_steps|step|iteration)": ?"?(?P<n>\d{1,12})(?=[,/}"])')
_FIELD = re.compile(
    r"(?<![\w.])(?P<key>[A-Za-z]\w{0,30}(?: time)?)\"?\s?(?:\((?P<of>ms|s|sec)\))?\"?\s?[:=]?\s{0,4}"
    r"(?P<value>\d[\d.]{0,20}(?:e[+-]?\d{1,3})?)\s?(?P<unit>ms|us|s|sec|secs|seconds)?(?![\w:])"
)
# "1:02:03", "1 day, 1:02:03" and "1h 2m 3s" since the start
_ELAPSED = re.compile(
    r'"elapsed_time": "(?:(?P<d>\d{1,4}) ?d(?:ays?)?,? )?(?:(?P<h>\d{1,4})(?::|h ?))?(?:(?P<m>\d{1,2})(?::|m ?))?'
    r'(?P<s>\d{1,2})s?"'
)
_PER_STEP = re.compile(r"(?<![\w.])(?P<value>\d[\d.]{0,20})\s?(?P<unit>ms|s)/(?:step|iter|batch)\b")
# Iterations per second, beside a number in the line: not those of a bar, which are means of its last few
_PER_SECOND = re.compile(
    r"(?<![\w.])(?P<after>\d[\d.]{0,20})\s?(?:iters?|updates|batches)/s(?:ec)?\b|\bit/sec[:=]?\s(?P<before>\d[\d.]{0,20})",
    re.I,
)
_IN_BRACKETS = re.compile(r"\((?P<value>\d[\d.]{0,20}) ms\)$")
_EPOCH = re.compile(r"\bepoch\W{0,4}(\d{1,7})|\[(\d{1,7}),\s{1,8}\d{1,12}(?:\]|/)", re.IGNORECASE)
_OF_TRAINING = re.compile(OF_TRAINING, re.IGNORECASE)
_RANK = re.compile(r"\b(?:rank|default)[ _:=]{0,2}(?P<named>\d{1,7})\b|^\s{0,6}(?P<prefixed>\d{1,6}):\s", re.IGNORECASE)
# Composer, OLMo and NeMo-RL: a line per value, below one with the number.
_HEAD = re.compile(r"\[(?:batch|step)=(?P<n>\d{1,12})/\d{1,12}[,\]]|= Step (?P<of_rl>\d{1,12})/\d{1,12} =")
_RATE = re.compile(r"throughput/(?:device/)?batches_per_sec(?:ond)?[:=]\s?(?P<value>\d[\d.]{0,20})(?![\w:])")
_MS = {"ms": 1.0, "us": 1e-3}  # else seconds
_UNITS = (None, "ms", "us", "s", "sec", "secs", "seconds")
_MOST_RUN_MS = 118 * 864e5  # BLOOM's days (arXiv 2211.05100), the longest run of those that published theirs
_MOST_TOTAL_MS = 1e12  # thirty years since the start: no job


class _Line(NamedTuple):
    """The number of an iteration, the rank that writes (None: unknown), its clock, and key -> (ms, grain of it).

    `goes_on`: it is of the epoch after that of the line before, which had so many iterations `left`.
    """

    number: int
    rank: int | None
    clock: Stamp | None
    ms: dict[str, tuple[float, float]]
    goes_on: bool = False
    left: int | None = None


class KeyedLines:
    """Collects such lines of one log."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._clocked: list[LoggedRecord] = []  # of lines without a time
        self._names_epoch: bool | None = None
        self._before = 0, ""  # number and text of the line before
        self._rising = 0
        self._head: int | None = None  # number of an iteration whose values follow
        self.are_means = False  # of the iterations since the line before, once `times` is asked

    def take(self, line: LogLine) -> bool:
        """Read the next line; True where it is of an iteration."""
        text = line.prefix + line.text  # "Epoch:" before a bracket looks like the name of a host
        if self._head is not None and (given := _below_head(text)):
            self._add(_Line(self._head, None, None, given))
            self._head = None
            return True
        at = (_IN_JSON if text[:1] == "{" else _AT).search(text)
        if at is None:
            return False
        if (head := _HEAD.search(text, max(0, at.start() - 2))) is not None:
            self._head = int(head["n"] or head["of_rl"])
            return False
        trains = "loss" in text or _OF_TRAINING.search(text)
        if not trains or EVALUATION.search(text, 0, at.end()):
            return False
        number = int(next(group for group in at.groups() if group).replace(",", ""))
        fields, clock = _fields(text), stamp_of(text[: at.start()])
        goes_on = number < self._before[0] and _is_next_epoch(self._before[1], text)
        left = _left(*self._before) if goes_on else None
        is_timed = not fields.keys().isdisjoint(_TIMES)
        if is_timed:
            self._add(_Line(number, _rank(text), clock, fields, goes_on, left))
        elif clock is not None and not self._lines and self._is_like_the_first(text):
            self._rising += bool(self._clocked) and number > self._clocked[-1].number
            self._clocked.append(LoggedRecord(number, None, clock, goes_on=goes_on, left=left))
        else:
            return False
        self._before = number, text
        return True

    def _is_like_the_first(self, text: str) -> bool:
        """True for a line that names its epoch as the first one does: others are of an evaluation."""
        names = _EPOCH.search(text) is not None
        self._names_epoch = names if self._names_epoch is None else self._names_epoch
        return names == self._names_epoch

    def _add(self, line: _Line) -> None:
        self._rising += bool(self._lines) and line.number > self._lines[-1].number
        self._lines.append(line)

    @property
    def is_training(self) -> bool:
        """True where enough lines follow one another."""
        return self._rising >= FEWEST - 1

    def times(self) -> tuple[list[LoggedRecord], list[TimerReading], list[RankReading]]:
        """The iterations, and the time that each waited for its batch, on each rank that says it."""
        printed = Counter(key for line in self._lines for key in line.ms)
        often = [key for key in printed if 2 * printed[key] >= len(self._lines)]
        key = min((key for key in often if key in _TIMES), key=_TIMES.index, default="")
        if not key or not self.is_training:
            return [], [], []
        lines = [line for line in self._lines if key in line.ms]
        data = min((key for key in often if key in DATA), key=DATA.index, default="")
        waits = _waits(lines, data) if data else ([], [])
        if key in _MEAN or _are_totals(lines, key):
            return [_total(line, key, line.number if key in _MEAN else 1) for line in lines], *waits
        of = _iterations_of_each(lines, key)
        self.are_means = key in _OF_LINE
        records = [
            LoggedRecord(line.number, line.ms[key][0] / of, line.clock, goes_on=line.goes_on, left=line.left)
            for line in lines
            if line.ms[key][0]
        ]
        return records, *waits

    def clocked(self) -> list[LoggedRecord]:
        """The iterations of lines that hold no time, by their clock."""
        return self._clocked if self.is_training and not self._lines else []


_KEYS = frozenset((*_TIMES, *DATA, _UPDATE))


def _fields(text: str) -> dict[str, tuple[float, float]]:
    """Key -> (ms, grain) of the times in a line."""
    given: dict[str, tuple[float, float] | None] = {}
    for match in _FIELD.finditer(text):
        key, unit = match["key"].lower(), match["unit"] or match["of"]
        if key not in _KEYS:
            key, _, unit = key.rpartition("_")  # "step_time_ms"
        if key in _KEYS and unit in _UNITS:
            given[key] = _in_ms(match["value"], unit, _MOST_TOTAL_MS if key in _OF_ALL else MOST_MS)
    if '"elapsed_time": "' in text and (since := _ELAPSED.search(text)) is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in since.group("d", "h", "m", "s"))
        given["elapsed_time"] = ((days * 24 + hours) * 60 + minutes) * 6e4 + seconds * 1e3, 1e3
    if text.endswith(" ms)") and (bracketed := _IN_BRACKETS.search(text)) is not None:
        given["in brackets"] = _in_ms(bracketed["value"], "ms")
    if "s/" in text and (per_step := _PER_STEP.search(text)) is not None:
        given["per step"] = _in_ms(per_step["value"], per_step["unit"])
    if "/s" in text and (rate := _PER_SECOND.search(text)) is not None:
        per_s = one_float((rate["after"] or rate["before"]).rstrip("."))
        given["per step"] = (1e3 / per_s, 0.0) if per_s else None
    times = {key: ms for key, ms in given.items() if ms is not None}
    if _UPDATE in times:
        ms, grain_ms = times.pop(_UPDATE)
        times["step_time"] = ms + sum(times[key][0] for key in DATA if key in times), grain_ms
    return times


def _below_head(text: str) -> dict[str, tuple[float, float]]:
    """Key -> (ms, grain) of a line that gives the time of the iteration above it."""
    if "throughput/" in text and (rate := _RATE.search(text)) is not None and (per_s := one_float(rate["value"])):
        return {"per step": (1e3 / per_s, 0.0)}
    return _fields(text) if "Total step time: " in text else {}


def _is_next_epoch(before: str, text: str) -> bool:
    last, this = _EPOCH.search(before), _EPOCH.search(text)
    return last is not None and this is not None and int(this[1] or this[2]) == int(last[1] or last[2]) + 1


def _left(number: int, text: str) -> int | None:
    """Iterations that follow a line in its epoch, where it states their number ("110/120")."""
    of = re.search(rf"\b{number}\s?/\s{{0,8}}(?P<all>\d{{1,12}})\b", text)
    return None if of is None else max(0, int(of["all"]) - number)


def _rank(text: str) -> int | None:
    """Number of the rank that writes a line, as the line or its launcher says."""
    if not ("ank" in text or "efault" in text or text[:1] in " \t0123456789"):
        return None  # cheaper than the search
    rank = _RANK.search(text)
    return None if rank is None else one_rank(rank["named"] or rank["prefixed"])


def _in_ms(value: str, unit: str | None, most_ms: float = MOST_MS) -> tuple[float, float] | None:
    each = _MS.get(unit or "s", 1e3)
    ms = time_ms(value, each, most_ms)
    return None if ms is None else (ms, each * 10.0 ** -len(value.partition("e")[0].partition(".")[2]))


def _total(line: _Line, key: str, times: int) -> LoggedRecord:
    """A record whose clock is the time since the start."""
    ms, grain_ms = line.ms[key]
    return LoggedRecord(line.number, None, Stamp(ms * times / 1e3, grain_ms * times / 1e3))


def _are_totals(lines: Sequence[_Line], key: str) -> bool:
    """True for times since the start: they rise from line to line, to twice the first and more where the key does not
    say it, but where the job or its clock starts again (after warm-up, in each epoch).
    """
    runs = [[lines[0].ms[key][0]]]
    for before, line in pairwise(lines):
        if line.number < before.number or line.ms[key][0] < before.ms[key][0]:
            runs.append([])
        runs[-1].append(line.ms[key][0])
    longest = max(runs, key=len)
    if len(longest) < _FEWEST_RISING:
        return key in _OF_ALL
    return len(runs) - 1 <= _MOST_FALLS * len(lines) and (key in _OF_ALL or longest[-1] >= 2 * longest[0])


def _iterations_of_each(lines: Sequence[_Line], key: str) -> int:
    """1, or the iterations since the line before where times of one would be a longer run than any: then, as far as the
    log without a clock tells, a time is of all of them.
    """
    each = stride([line.number for line in lines])
    is_too_long = each * sum(line.ms[key][0] for line in lines) > _MOST_RUN_MS
    return each if is_too_long and not any(line.clock for line in lines) else 1


def _waits(lines: Sequence[_Line], data: str) -> tuple[list[TimerReading], list[RankReading]]:
    """Time until the batch is there: one reading an iteration, of all ranks that write, and each rank's own. The first
    line of each epoch is left out, as it is of the iterations: there the workers start.
    """
    ranks = {line.rank for line in lines}
    times: list[dict[int | None, float]] = []
    starts: set[int] = set()
    before = -1
    for line in lines:
        if line.number != before or line.rank in times[-1]:
            if line.number < before:
                starts.add(len(times))
            times.append({})
            before = line.number
        if data in line.ms and len(times) - 1 not in starts:
            times[-1][line.rank] = line.ms[data][0]
    is_of_ranks = len(ranks) > 1 and None not in ranks
    readings = [
        TimerReading(data, block, max(of.values()), min(of.values()) if is_of_ranks else None, is_of_ranks)
        for block, of in enumerate(times)
        if of
    ]
    return readings, [
        RankReading(data, block, rank, ms)
        for block, of in enumerate(times)
        for rank, ms in of.items()
        if is_of_ranks and rank is not None
    ]
