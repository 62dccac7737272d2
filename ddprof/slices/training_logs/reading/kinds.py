"""The meaning of a number by its name and unit: a counter, a time and of what, or a wait for the next batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ddprof.slices.training_logs.reading.fields import MEAN, Field, value_at
from ddprof.slices.training_logs.reading.lines import MOST_MS, Stamp

Numbers = dict[str, tuple[int, float | None]]  # counter -> its number, and that behind its slash
Times = dict[tuple["TimeKind", str], tuple[float, float]]  # (kind, name) -> ms, and the worth of its last digit

MOST_COUNTED = 2.0**53  # which a float holds exactly
_MOST_TOTAL_MS = 1e12  # thirty years since the start: no job
_CLOCK = re.compile(r"(?:^|[ .])(?:timestamp|ts)$")
_FIRST_S, _LAST_S = 1e9, 4e9  # 2001 and 2096, since 1970
_ITERATION = r"(?:it|itrs?|iters?|iterations?|steps?|(?:mini)?batch(?:es)?|updates?|mb)"
# By preference: of the whole run before one of an epoch.
_COUNTERS = tuple(
    re.compile(rf"(?:.*[ /.:]|^)(?:{names})$")
    for names in (
        "global step(?:/max steps)?|num updates|current steps",
        r"(?:steps?|itrs?|iters?|iterations?|it|updates?|up|upd)(?: (?:num(?:ber)?|idx|id|i|#))?|n iter",
        r"(?:mini)?batch(?:es)?(?: (?:num(?:ber)?|idx|id|i))?",
        r"timesteps?(?: (?:num(?:ber)?|idx|id|i|#))?",  # of an environment: an iteration has many
    )
)
PLACES = ("[,]", "[]", "^")
_SECONDS = {"ms": 1e-3, "msec": 1e-3, "msecs": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "min": 60.0}
_SECONDS |= dict.fromkeys(("s", "sec", "secs", "second", "seconds", "t"), 1.0)
_EACH = re.compile(rf"(?:^|.*[ /.])(?P<unit>ms|us|s|secs?|seconds?) ?(?:/|per) ?{_ITERATION}$")
_RATE = re.compile(rf"(?:^|.*[ /.]){_ITERATION} ?(?:/|per) ?s(?:ec(?:ond)?s?)?$|(?:^|.* )ups$")
_PER_SECOND = re.compile(r"(?:/|\bper) ?s(?:ec(?:ond)?s?)?$")
_ENDING = re.compile(r"(?P<name>.*?) (?P<unit>ms|us|s|secs?|seconds?)$")  # "step_time_ms"
_PART = re.compile(
    r"\b(?:data\w*|load\w*|reader|read|fetch|input|forward|fwd|backward|bwd|bw|fw|comm\w*|all ?reduce|optim\w*|opt|eta"
    r"|remaining|left|val|valid\w*|eval\w*|test|sav(?:e|ing)|ckpt|checkpoint|compil\w*|epochs?|sync|idle|wait|compute"
    r"|h2d|gen\w*|inference|loss\w*|maintenance)\b"
)
_OF_ALL = re.compile(
    r"\b(?:train time|total time|elapsed(?: time)?|elapsedtime|time elapsed|(?<!train )wall(?: time)?)$"
)
_OF_EPOCH = re.compile(r"\b(?:epoch (?:time|duration|took|elapsed)|time per epoch)$")
_MEAN = re.compile(r"\b(?:step avg|(?:avg|average|mean) (?:step |iter |batch )?time)$")
_OF_ONE = re.compile(
    rf"\b(?:{_ITERATION}|train step) (?:time|timing|duration|cost|latency|dt|t)$|\btime per {_ITERATION}$|\blast time$"
)
_COUNTED = re.compile(rf"\b{_ITERATION}$")  # "Batch (t): 0.5"
_TIME = re.compile(
    r"\b(?:timer?(?: cost| taken)?|dt|duration|took|elapsed|latency|timing|end to end|secs?|seconds|ms)$"
)
_ENDED = re.compile(
    r"\b(?:complet|finish|end)ed(?: in| after)?$|\bdone in$|\bcost$"
)  # which may be a loss without a unit
_DATA = re.compile(
    r"(?:^|.*[ /.])(?:last )?(?:avg )?(?:dt data|(?:data|reader|dataload(?:ing|er)|fetch)"
    r"(?: ?(?:wait ?)?(?:time|cost|loading|load)?)?)$"
)
UPDATE = "updt"  # LeRobot's: an iteration without the wait for its batch


class TimeKind(IntEnum):
    """Kinds of times by preference: a unit per iteration, a name of one, a rate, any time, a unit alone, all since the
    start, a mean; of an epoch, which is of no iteration; a wait for a batch, or what is printed behind a time as its
    mean.
    """

    EACH, ONE, RATE, ANY, UNNAMED, ALL, MEAN, EPOCH, WAIT, NONE = range(10)


_WITH_MEANS = (TimeKind.ONE, TimeKind.ANY, TimeKind.WAIT)


class Meaning(NamedTuple):
    """The meaning of a number by its name and unit; `each_ms`: of its unit."""

    kind: TimeKind
    name: str = ""
    each_ms: float = 0.0


def counting(text: str, fields: Sequence[Field]) -> tuple[list[Field], int]:
    """Fields that are counters of a line, and the place where the first of them ends."""
    counters: dict[str, Field] = {}
    end = 0
    for field in fields:
        is_path = field.key.endswith("/")  # "runs/12", "100it/200kit"
        if field.grain != 1 or field.unit or is_path or not is_counter(field.key):
            continue
        if value_at(text, field.spans) < MOST_COUNTED:
            end = end or field.end
            counters.setdefault(field.key, field)
    return list(counters.values()), end


def numbers_of(text: str, counters: Sequence[Field]) -> Numbers:
    """The numbers of a line's counters."""
    numbers: Numbers = {}
    for field in counters:
        of = value_at(text, field.of) if field.of else None
        numbers[field.key] = int(value_at(text, field.spans)), of
        if of is not None and of < MOST_COUNTED:
            numbers[f"{field.key}/"] = int(of), None  # WeNet's "Batch 0/120": the epoch, the batch
    return numbers


def is_counter(key: str) -> bool:
    """True for the name, or the place, of a counter."""
    return preference(key) < _NO_COUNTER


@lru_cache(maxsize=4096)
def preference(counter: str) -> int:
    """The place of a counter among others: by its name, or by brackets."""
    for at, names in enumerate(_COUNTERS):
        if names.match(counter):
            return at
    if counter in PLACES:
        return len(_COUNTERS) + PLACES.index(counter)
    return _NO_COUNTER - counter.endswith("/")


_NO_COUNTER = len(_COUNTERS) + len(PLACES) + 1


def epoch_of(fields: Sequence[Field]) -> Field | None:
    """The field with the number of a line's epoch; None where it names none."""
    named = [field for field in fields if field.key.endswith("epoch")]
    named += [field for field in fields if field.key == "train"]  # "Train: 3 [  10/1251 (  1%)]"
    named += [before for before, field in pairwise(fields) if field.key == "[,]"]  # "[3,    10/ 2562]"
    return named[0] if named else None


def clocks_of(fields: Sequence[Field]) -> list[Field]:
    """Fields whose name is that of a clock."""
    return [field for field in fields if _CLOCK.search(field.key)]


def clock_at(text: str, clocks: Sequence[Field]) -> Stamp | None:
    """The clock of a line that states it as a number, in s or ms since 1970."""
    for field in clocks:
        value = value_at(text, field.spans)
        for each in (1.0, 1e-3):
            if _FIRST_S < value * each < _LAST_S:
                return Stamp(value * each, field.grain * each)
    return None


def timed_of(fields: Sequence[Field]) -> list[tuple[Field, Meaning]]:
    """Fields that are times, with what they are."""
    timed = [(field, _meaning(field.key, field.unit)) for field in fields]
    return [(field, meaning) for field, meaning in timed if meaning.kind is not TimeKind.NONE]


def times_at(text: str, timed: Sequence[tuple[Field, Meaning]]) -> tuple[Times, dict[str, float]]:
    """Times of a line, and its waits for a batch in ms, by name."""
    times: Times = {}
    waits: dict[str, float] = {}
    for field, (kind, name, each_ms) in timed:
        value = value_at(text, field.spans)
        ms, grain = value * each_ms, field.grain * each_ms
        if kind is TimeKind.RATE:
            ms, grain = (1e3 / value if value else 0.0), 0.0
        if 0 <= ms < most_ms(kind):
            if kind is TimeKind.WAIT:
                waits.setdefault(name, ms)
            else:
                times.setdefault((kind, name), (ms, grain))
    if waits and (update := times.get((TimeKind.ONE, UPDATE))) is not None:
        times[TimeKind.ONE, UPDATE] = update[0] + waited_ms(waits), update[1]
    return times, waits


def waited_ms(waits: dict[str, float]) -> float:
    """The time of a line's waits, without means."""
    return sum(ms for name, ms in waits.items() if not name.endswith(MEAN))


def most_ms(kind: TimeKind) -> float:
    """The bound of a time: what is longer is none."""
    return _MOST_TOTAL_MS if kind is TimeKind.ALL else MOST_MS


@lru_cache(maxsize=4096)
def _meaning(key: str, unit: str) -> Meaning:
    if key.endswith(MEAN):
        kind, name, each_ms = _meaning(key[: -len(MEAN)], unit)
        return Meaning(TimeKind.WAIT, name + MEAN, each_ms) if kind in _WITH_MEANS else Meaning(TimeKind.NONE)
    of_name = _EACH.match(key) or _RATE.match(key)
    if unit in ("", *_SECONDS) and not of_name:
        return _time(key, unit)
    name = key if of_name else unit
    if _PART.search(key) or (of_name and unit):
        return Meaning(TimeKind.NONE)
    if (each := _EACH.match(name)) is not None:
        return Meaning(TimeKind.EACH, key, _SECONDS[each["unit"]] * 1e3)
    return Meaning(TimeKind.RATE, key) if _RATE.match(name) else Meaning(TimeKind.NONE)


def _time(key: str, unit: str) -> Meaning:
    """The meaning of a number in seconds or parts of them, or without a unit."""
    name = key
    if not unit and (ending := _ENDING.match(key)) is not None:
        name, unit = ending["name"], ending["unit"]
    each_ms = _SECONDS[unit or "s"] * 1e3
    if _DATA.match(name):
        return Meaning(TimeKind.WAIT, name, each_ms)
    if name.endswith(UPDATE):
        return Meaning(TimeKind.ONE, UPDATE, each_ms)
    if _OF_ALL.search(name):
        return Meaning(TimeKind.ALL, name, each_ms)
    if _MEAN.search(name):
        return Meaning(TimeKind.MEAN, name, each_ms)
    if _PART.search(of_epoch := _OF_EPOCH.sub("", name)) or _PER_SECOND.search(name):
        return Meaning(TimeKind.NONE)
    if of_epoch != name:
        return Meaning(TimeKind.EPOCH, name, each_ms)
    if _OF_ONE.search(name) or (unit and _COUNTED.search(name)):
        return Meaning(TimeKind.ONE, name, each_ms)
    if _TIME.search(name) or (unit and _ENDED.search(name)):
        return Meaning(TimeKind.ANY, name, each_ms)
    is_unnamed = unit and name in ("", "[]", "[,]")
    return Meaning(TimeKind.UNNAMED, "", each_ms) if is_unnamed else Meaning(TimeKind.NONE)
