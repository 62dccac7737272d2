"""Numbers of a log's line and the words that name them, whoever wrote it.

Epoch: [0]  [  10/5004]  lr: 0.1  time: 0.4961 (0.713)  -> epoch 0, [] 10 of 5004, lr 0.1, time 0.4961
{"step": 10, "step_time_ms": 412.5, ...}                -> step 10, "step time ms" 412.5
INFO:tensorflow:loss = 4.1, step = 10 (5.012 sec)       -> loss 4.1, step 10, "" 5.012 sec
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

from ddprof.slices.training_logs.reading.lines import Span

_SECONDS = "us|ms|msecs?|milliseconds?|s|secs?|seconds?"
_CLOCK = r"(?P<h>\d{1,4}):(?P<m>\d\d):(?P<s>\d\d(?:\.\d{1,6})?)(?![\w:])"
_LETTERS = r"(?:(?P<h2>\d{1,4}) ?h ?)?(?P<m2>\d{1,2}) ?m ?(?P<s2>\d{1,2}) ?s(?![\w/])"
_DAYS = r"(?:(?P<{}>\d{{1,4}}) ?d(?:ays?)?,? ?)?"
_NUMBER = re.compile(
    rf"(?=\d)(?<![\w.])(?:(?=\d{{1,4}}(?: ?d|:\d\d:)){_DAYS.format('d')}{_CLOCK}"
    rf"|(?=\d{{1,4}} ?[dhm]){_DAYS.format('d2')}{_LETTERS}"
    r"|(?P<value>\d{1,3}(?:,\d{3}){1,4}(?!\d|,\d)|\d{1,15}(?:\.\d{0,17})?(?:[eE][+-]?\d{1,3})?)"
    rf"(?: ?(?P<unit>(?:{_SECONDS}) ?(?:/|per) ?[A-Za-z]{{1,10}}\b|[A-Za-z]{{2,10}} ?(?:/|per) ?s(?:ec(?:ond)?)?\b"
    rf"|(?:{_SECONDS}|min|[KMGT]i?B?|%)(?![\w/])|/s\b)"
    r"| ?(?P<name>epoch|batch|iter(?:ation)?|step|update)(?:e?s)?\b(?! ?[:=#]? ?\[?\d))?)"
)
_UNIT = re.compile(
    r"(?<=[\w\])]) ?[(\[](?:(?P<unit>ms|us|s|secs?|seconds?|t|%|\w[\w ]{0,20}/[\w/ ]{1,20})|[\w%/ .]{1,24})[)\]]$"
)
_WORDS = re.compile(r"[A-Za-z#][\w#./-]{0,40}(?: [A-Za-z][\w#./-]{0,40}){0,3}$")
_ENDS = " \t:=[({<|\"'~≈@`+-."
MEAN = " (mean)"  # behind the name of a number
_UNNAMED = ("", "^", "[]", "[,]")


class Field(NamedTuple):
    """The place of a number and its name in lower case, "" without one; "[]" and "[,]": first and later in brackets,
    "^": the line begins with it. `spans`: of the number, or of a duration's days, hours, minutes and seconds; `of`:
    likewise of the number behind its slash ("10/5004"). `grain`: the worth of its last digit; `end`: its place in the
    line.
    """

    key: str
    spans: tuple[Span, ...]
    unit: str
    grain: float
    end: int
    of: tuple[Span, ...] = ()


def value_at(text: str, spans: tuple[Span, ...]) -> float:
    """The number that stands there, of a duration in seconds."""
    if len(spans) == 1:
        begin, end = spans[0]
        return float(text[begin:end].replace(",", ""))
    days, hours, minutes, seconds = (float(text[begin:end] or 0) for begin, end in spans)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def fields_of(text: str) -> list[Field]:
    """The fields of a line, from left to right; a number in parentheses behind another is its mean (MEAN)."""
    fields: list[Field] = []
    end, is_inside = 0, False
    for match in _NUMBER.finditer(text):
        label, end = text[end : match.start()], match.end()
        if "[" in label or "]" in label:
            is_inside = label.rfind("[") > label.rfind("]")
        key, unit = _named(label[-120:], not fields)
        if (given := match["value"]) is None:
            spans = tuple(match.span(part if match["s"] else f"{part}2") for part in "dhms")
            grain, unit = 1.0, "s"
        else:
            whole = given.lower()
            spans, unit = (match.span("value"),), (match["unit"] or unit).lower().replace(" ", "")
            grain = 10.0 ** -len(whole.partition("e")[0].partition(".")[2])
        if not isfinite(value_at(text, spans)):
            continue
        name = (match["name"] or "").lower()
        if key == "/" and fields:
            last = fields[-1]
            fields[-1] = last._replace(of=spans, key=name if name and last.key in _UNNAMED else last.key)
            continue
        if key == "-" and fields:  # "Batch [10-20]"
            key = fields.pop().key
        if key == "(" and fields and unit in ("", fields[-1].unit):
            if fields[-1].key and not fields[-1].key.endswith(MEAN):
                fields.append(Field(fields[-1].key + MEAN, spans, fields[-1].unit, grain, end))
            continue
        if key == "[,]" and not is_inside:
            key = ""
        fields.append(Field(name or (key if key not in ("(", "-") else ""), spans, unit, grain, end))
    return fields


@lru_cache(maxsize=4096)
def _named(label: str, is_first: bool) -> tuple[str, str]:
    """(key, unit) of the number behind a label."""
    bare = label.strip()
    if bare in ("/", "-") or (bare == "(" and not is_first):
        return bare, ""
    stripped = label.rstrip(_ENDS)
    unit = ""
    if stripped[-1:] in (")", "]") and (of := _UNIT.search(stripped)) is not None:
        unit, stripped = (of["unit"] or "").lower(), stripped[: of.start()].rstrip()
    if (words := _WORDS.search(stripped)) is not None:
        return words[0].lower().replace("_", " ").replace("-", " ").rpartition(" at ")[2], unit  # "loss at step 7"
    if bare.endswith("["):
        return "[]", ""
    return "[,]" if bare == "," else "^" if is_first and not bare else "", ""
