"""Lines about iterations: of Megatron-LM and its forks (Megatron-DeepSpeed, GPT-NeoX, Primus), nanotron, NeMo,
DeepSpeed, torchtitan, Hugging Face's Trainer, llm.c, MaxText, fairseq and verl.

iteration       72/     100 | consumed samples: 9216 | elapsed time per iteration (ms): 5470.7 | ... |
iteration=       1/  635782 | consumed_samples=  768 | elapsed_time_per_iteration_ms=29570.0 | ... |
iteration: 1 / 15 | consumed_tokens: 512 | elapsed_time_per_iteration_ms: 4.71K | tokens_per_sec: 109 | ...
Training epoch 0, iteration 120/149 | ... | global_step: 120 | ... | train_step_timing in s: 0.03146 | ...
Epoch 0: :   3%|▎   | 9000/301500 [..., global_step=9e+3, ..., train_step_timing in s=0.615, ...]
steps: 20 loss: 4.6178 iter time (s): 0.994 samples/sec: 257.601
[2023-07-25 21:03:17,269] [INFO] ... epoch=0/micro_step=34/global_step=34, RunningAvgSamplesPerSec=7.86, Curr...
[titan] 2025-06-16 22:31:04,970 - root - INFO - step: 210  loss:  6.0388  ...  tps: 5,593  tflops: 323.92  mfu: 32.75%
{'train_runtime': 408.6, 'train_samples_per_second': 1.958, 'train_steps_per_second': 0.245, ...}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ddprof.readers.numbers import one_float
from ddprof.slices.training_logs.reading.counting import in_tables
from ddprof.slices.training_logs.reading.lines import (
    MOST_MS,
    NOWHERE,
    LogLine,
    Span,
    Stamp,
    StampPlace,
    number,
    stamp_at,
    stamps_of,
)
from ddprof.tables import Array

_LINE = re.compile(r"iteration(?:[ =]|: )\s*(?P<number>\d{1,12})\s*(?:/\s*\d{1,12}\s*)?\|")
_ELAPSED = re.compile(
    r"elapsed[ _]time[ _]per[ _]iteration[ _]\(?(?P<unit>ms|s)\)?\s*[:=]\s*"
    r"(?P<time>\d[\d.]{0,20})(?P<times>[KM]?)(?=[\s/|]|$)"
)
_FACTORS = {"": 1.0, "K": 1e3, "M": 1e6}  # nanotron's 4.71K
_NEMO = re.compile(r"train_step_timing in s\s*[:=]\s*(?P<s>\d[\d.e+-]{0,20})(?=[\s,|\]]|$)")
_NEMO_STEP = re.compile(r"global_step\s*[:=]\s*(?P<number>\d[\d.e+]{0,15})(?=[\s,|\]]|$)")
_RUNTIME = re.compile(
    r"'train_runtime': '?(?P<s>\d[\d.e+]{0,20})'?,.*?'train_steps_per_second': '?(?P<rate>\d[\d.e+-]{0,20})'?[,}]"
)
_TFLOPS = re.compile(
    r"(?:throughput per GPU \(TFLOPs?/s/GPU\)|throughput \(TFLOPs?/s/GPU\)|tflops|\[LM\]TFLOPs|TFLOPs?(?: per GPU)?)"
    r"\s*[:=]\s*(?P<value>\d[\d.]{0,20})",
    re.IGNORECASE,
)
_BATCH = re.compile(r"global[ _]batch[ _]size\s*[:=]\s*(?P<value>\d{1,12})")
WHOLE_RUN = "Hugging Face Trainer, whole run"
_UNITS = {"ms": 1.0, "s": 1e3, "rate": 0.0, "time": 1.0}  # a rate is of iterations per second
_SEVERAL = ("NeMo", "DeepSpeed")  # in a line; where they print a time it has no clock
# Writer, what stands in its lines, and the line: `number`, and `ms`, `s` or `rate`, or `time` with its unit.
_PRINTED = tuple(
    (writer, word, re.compile(pattern))
    for writer, word, pattern in (
        (
            "NeMo",
            "train_step_timing",
            r"global_step=(?P<number>\d[\d.e+]{0,15})[,\]].*?train_step_timing in s=(?P<s>\d[\d.e+-]{0,20})[,\]]",
        ),
        (
            "DeepSpeed",
            "iter time (s)",
            r"steps: (?P<number>\d{1,12}) loss: \S{1,40} iter time \(s\): (?P<s>\d[\d.]{0,20}) samples/sec:",
        ),
        (
            "DeepSpeed",
            "SamplesPerSec=",
            r"(?:global_step=|(?<=\s)\d{1,9}/)(?P<number>\d{1,12}), (?:RunningAvg)?SamplesPerSec=\d",
        ),
        (
            "torchtitan",
            "tps: ",
            r"\bstep:\s{1,12}(?P<number>\d{1,12})\s.*?\btps: [\d,.]+(?:\s+tflops: (?P<tflops>[\d,.]+))?",
        ),
        ("DeepSpeed", "iter latency: ", r"^iter latency: {1,80}(?P<time>\d[\d.]{0,20}) (?P<unit>m?s)\b"),
        ("Hugging Face Trainer", "'step'", r"\{'loss': .*'step': (?P<number>\d{1,12})[,}]"),
        ("llm.c", " tok/s", r"\bstep\s{1,12}(?P<number>\d{1,12})/\d{1,12} \|.{0,160}?\| (?P<ms>\d[\d.]{0,20}) ms \|"),
        (
            "MaxText",
            "completed step: ",
            r"completed step: (?P<number>\d{1,12}), seconds: (?P<s>\d[\d.]{0,20})"
            r"(?:, TFLOP/s/device: (?P<tflops>[\d.]+))?",
        ),
        (
            "fairseq",
            " ups",
            r" ups[= ](?P<rate>\d[\d.]{0,20})(?:,| \|).{0,120}? num_updates[= ](?P<number>\d{1,12})",
        ),
        ("verl", "timing_s/step:", r"\bstep:(?P<number>\d{1,12}) - .*?timing_s/step:(?P<s>\d[\d.]{0,20})"),
    )
)
WORDS = ("per iteration", "per_iteration", *(word for _, word, _ in _PRINTED))


class LoggedRecord(NamedTuple):
    """An iteration from one line. `ms`: None where only the line's clock gives its time. `goes_on`: the job counts anew
    in its next epoch, with so many iterations `left` of the one before.
    """

    number: int
    ms: float | None
    clock: Stamp | None = None
    tflops: float | None = None
    batch: int | None = None
    goes_on: bool = False
    left: int | None = None


# Of a table of records; nan, and -1 of `left`, where there is none
_COLUMNS = np.dtype(
    [("number", "i8"), *((name, "f8") for name in ("ms", "s", "grain_s", "tflops", "batch", "left")), ("goes_on", "?")]
)


def table_of_records(parts: Sequence[LoggedRecord | Array]) -> Array:
    """The table of records and tables, one below the other, with their clock in `s` and `grain_s`."""
    return np.concatenate([records_table([]), *in_tables(parts, LoggedRecord, _of_records)])


def records_table(
    number: Array | Sequence[int],
    ms: Array | float = np.nan,
    clock: tuple[Array | float, Array | float] = (np.nan, np.nan),
    tflops: Array | float = np.nan,
    batch: Array | float = np.nan,
) -> Array:
    """A table of records by columns."""
    table = np.empty(len(number), _COLUMNS)
    columns = (number, ms, *clock, tflops, batch, np.nan, False)
    for name, column in zip(_COLUMNS.names or (), columns, strict=True):
        table[name] = column
    return table


def _of_records(records: Sequence[LoggedRecord]) -> Array:
    numbers = [record.number for record in records]
    nothing = None, None
    cells = [(of.ms, *(of.clock or nothing), of.tflops, of.batch, of.left) for of in records]
    ms, s, grain_s, tflops, batch, left = np.array(cells, np.float64).T
    table = records_table(numbers, ms, (s, grain_s), tflops, batch)
    table["left"], table["goes_on"] = left, [record.goes_on for record in records]
    return table


class RecordPlace(NamedTuple):
    """Places of an iteration's numbers; NOWHERE: it is the first, or only a clock times it. `each_ms` 0: a rate."""

    writer: str
    number: Span
    time: Span
    each_ms: float
    stamps: tuple[StampPlace, ...]
    tflops: Span = NOWHERE
    batch: Span = NOWHERE

    def read(self, text: str) -> LoggedRecord | None:
        """The iteration; None where its numbers cannot be."""
        at = 0.0 if self.number == NOWHERE else number(text[slice(*self.number)])
        tflops = number(text[slice(*self.tflops)].replace(",", "")) or None
        clock = stamp_at(text, self.stamps)
        if at is None or not 0 <= at < 2**53:
            return None
        if self.time == NOWHERE:
            return None if clock is None else LoggedRecord(round(at), None, clock, tflops)
        given = number(text[slice(*self.time)])
        ms = 0.0 if not given else given * self.each_ms if self.each_ms else 1e3 / given
        batch = int(text[slice(*self.batch)] or 0)
        return LoggedRecord(round(at), ms, clock, tflops, batch or None) if 0 < ms < MOST_MS else None


def record_places(line: LogLine) -> Iterator[RecordPlace]:
    """The places of every record in a line, in its whole text: ranks that share a file put several in one."""
    text, whole, begin = line.text, line.prefix + line.text, len(line.prefix)
    if "iteration" in text and (starts := list(_LINE.finditer(whole, begin))):
        yield from _iterations(whole, starts)
        return
    for writer, word, pattern in _PRINTED:
        for match in pattern.finditer(text) if word in text else ():
            yield _printed(writer, match, whole, begin)
            if writer not in _SEVERAL:
                break


def whole_run(text: str) -> LoggedRecord | None:
    """The mean that Hugging Face's Trainer prints at the end: as many steps as the run had, by its rate."""
    if "'train_runtime'" in text and (ran := _RUNTIME.search(text)) is not None:
        seconds, rate = one_float(ran["s"]) or 0.0, one_float(ran["rate"]) or 0.0
        if 0 < seconds * rate < 2**53:
            steps = max(1, round(seconds * rate))
            return LoggedRecord(steps, seconds * 1e3 / steps) if seconds * 1e3 / steps < MOST_MS else None
    return None


def _printed(writer: str, match: re.Match[str], text: str, begin: int) -> RecordPlace:
    def place(name: str) -> Span:
        start, end = match.span(name) if name in match.re.groupindex else NOWHERE
        return (start + begin, end + begin) if end > 0 else NOWHERE

    unit = next((unit for unit in _UNITS if unit in match.re.groupindex), "")
    each_ms = 1e3 if unit == "time" and match["unit"] == "s" else _UNITS.get(unit, 1.0)
    stamps = () if unit and writer in _SEVERAL else stamps_of(text[: begin + match.start()])
    return RecordPlace(
        writer,
        place("number"),
        place(unit),
        each_ms,
        stamps,
        place("tflops"),
    )


def _iterations(text: str, starts: list[re.Match[str]]) -> Iterator[RecordPlace]:
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for match, end in zip(starts, ends, strict=True):
        at = match.end()
        tflops, batch = _TFLOPS.search(text, at, end), _BATCH.search(text, at, end)
        of = tflops.span("value") if tflops else NOWHERE, batch.span("value") if batch else NOWHERE
        stamps = stamps_of(text[: match.start()])
        if (nemo := _NEMO.search(text, at, end)) is not None:
            step = _NEMO_STEP.search(text, at, end)
            yield RecordPlace("NeMo", (step or match).span("number"), nemo.span("s"), 1e3, stamps, *of)
        elif (elapsed := _ELAPSED.search(text, at, end)) is not None:
            each_ms = _FACTORS[elapsed["times"]] * (1.0 if elapsed["unit"] == "ms" else 1e3)
            yield RecordPlace("Megatron", match.span("number"), elapsed.span("time"), each_ms, stamps, *of)


def stride(numbers: Sequence[float] | Array) -> int:
    """Usual number of iterations from one line to the next, by the iterations' `numbers`; 1 where it is not known."""
    apart = np.diff(numbers)
    apart = apart[apart > 0]
    return round(np.median(apart)) if len(apart) else 1
