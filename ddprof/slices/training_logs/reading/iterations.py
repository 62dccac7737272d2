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
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ddprof.readers.numbers import one_float
from ddprof.slices.training_logs.reading.lines import MOST_MS, LogLine, Stamp, number, stamped, time_ms

_LINE = re.compile(r"iteration(?:[ =]|: )\s*(?P<number>\d{1,12})\s*(?:/\s*\d{1,12}\s*)?\|")
_ELAPSED = re.compile(
    r"elapsed[ _]time[ _]per[ _]iteration[ _]\(?(?P<unit>ms|s)\)?\s*[:=]\s*"
    r"(?P<time>\d[\d.]{0,20})(?P<times>[KM]?)(?=[\s/|]|$)"
)
_PROFILED = re.compile(r"^iter latency: {1,80}(?P<time>\d[\d.]{0,20}) (?P<unit>m?s)\b")  # of DeepSpeed's flops profiler
_FACTORS = {"": 1.0, "K": 1e3, "M": 1e6}  # nanotron's 4.71K
_NEMO = re.compile(r"train_step_timing in s\s*[:=]\s*(?P<s>\d[\d.e+-]{0,20})(?=[\s,|\]]|$)")
_NEMO_STEP = re.compile(r"global_step\s*[:=]\s*(?P<number>\d[\d.e+]{0,15})(?=[\s,|\]]|$)")
_BAR = re.compile(r"global_step=(?P<number>\d[\d.e+]{0,15})[,\]].*?train_step_timing in s=(?P<s>\d[\d.e+-]{0,20})[,\]]")
_PIPELINE = re.compile(r"steps: (?P<number>\d{1,12}) loss: \S{1,40} iter time \(s\): (?P<s>\d[\d.]{0,20}) samples/sec:")
_DEEPSPEED = re.compile(r"(?:global_step=|(?<=\s)\d{1,9}/)(?P<number>\d{1,12}), (?:RunningAvg)?SamplesPerSec=\d")
_TITAN = re.compile(r"\bstep:\s{1,12}(?P<number>\d{1,12})\s.*?\btps: [\d,.]+(?:\s+tflops: (?P<tflops>[\d,.]+))?")
_RUNTIME = re.compile(
    r"'train_runtime': '?(?P<s>\d[\d.e+]{0,20})'?,.*?'train_steps_per_second': '?(?P<rate>\d[\d.e+-]{0,20})'?[,}]"
)
_LOGGED = re.compile(r"\{'loss': .*'step': (?P<number>\d{1,12})[,}]")
_TFLOPS = re.compile(
    r"(?:throughput per GPU \(TFLOPs?/s/GPU\)|throughput \(TFLOPs?/s/GPU\)|tflops|\[LM\]TFLOPs|TFLOPs?(?: per GPU)?)"
    r"\s*[:=]\s*(?P<value>\d[\d.]{0,20})",
    re.IGNORECASE,
)
_BATCH = re.compile(r"global[ _]batch[ _]size\s*[:=]\s*(?P<value>\d{1,12})")
# Writer, what stands in its lines, and the line: `number`, and `ms`, `s` or `rate` (iterations per second).
_PRINTED = tuple(
    (writer, word, re.compile(pattern))
    for writer, word, pattern in (
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


def records_of(line: LogLine) -> Iterator[tuple[str, LoggedRecord]]:
    """(writer, record) of every record in a line: ranks that share a file put several in one."""
    text = line.text
    if "iteration" in text and (starts := list(_LINE.finditer(text))):
        yield from _iterations(line, starts)
        return
    if "train_step_timing" in text:
        for match in _BAR.finditer(text):
            yield from _timed("NeMo", number(match["number"]), _ms(match["s"]))
    if "iter time (s)" in text:
        for match in _PIPELINE.finditer(text):
            yield from _timed("DeepSpeed", number(match["number"]), _ms(match["s"]))
    if "SamplesPerSec=" in text:
        for match in _DEEPSPEED.finditer(text):
            yield from _stamped("DeepSpeed", match, line)
    if "tps: " in text and (titan := _TITAN.search(text)) is not None:
        yield from _stamped("torchtitan", titan, line, number((titan["tflops"] or "").replace(",", "")))
    if "iter latency: " in text and (profiled := _PROFILED.search(text)) is not None:
        yield from _timed("DeepSpeed", 0, time_ms(profiled["time"], 1.0 if profiled["unit"] == "ms" else 1e3))
    if "'train_runtime'" in text and (ran := _RUNTIME.search(text)) is not None:
        seconds, rate = one_float(ran["s"]), one_float(ran["rate"])
        if seconds and rate:
            yield from _timed("Hugging Face Trainer, whole run", *_whole_steps(seconds, rate, ran["rate"]))
    if "'step'" in text and (logged := _LOGGED.search(text)) is not None:
        yield from _stamped("Hugging Face Trainer", logged, line)
    for writer, word, pattern in _PRINTED:
        if word in text and (printed := pattern.search(text)) is not None:
            yield from _printed(writer, printed, line)


def _whole_steps(seconds: float, rate: float, printed: str) -> tuple[float, float]:
    """Steps of a run and ms of one: where the rate as printed leaves one whole number of steps, that one decides."""
    if not 0 < seconds * rate < 2**53:
        return seconds * rate, 1e3 / rate
    off = seconds * 10.0 ** -len(printed.partition(".")[2]) / 2
    steps = round(seconds * rate)
    return (
        (steps, seconds * 1e3 / steps)
        if steps and off < 1 and abs(steps - seconds * rate) <= off
        else (seconds * rate, 1e3 / rate)
    )


def _printed(writer: str, match: re.Match[str], line: LogLine) -> Iterator[tuple[str, LoggedRecord]]:
    (unit,) = match.re.groupindex.keys() & {"ms", "s", "rate"}
    given = one_float(match[unit])
    if given:
        ms = given if unit == "ms" else given * 1e3 if unit == "s" else 1e3 / given
        tflops = match["tflops"] if "tflops" in match.re.groupindex else None
        clock = stamped(line.prefix + line.text[: match.start()])[0]
        yield from _timed(writer, float(match["number"]), ms, clock, number(tflops or ""))


def _iterations(line: LogLine, starts: list[re.Match[str]]) -> Iterator[tuple[str, LoggedRecord]]:
    text = line.text
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for match, end in zip(starts, ends, strict=True):
        at = match.end()
        tflops, batch = _TFLOPS.search(text, at, end), _BATCH.search(text, at, end)
        printed = (None if tflops is None else number(tflops["value"]), None if batch is None else int(batch["value"]))
        clock = stamped(line.prefix + text[: match.start()])[0]
        if (nemo := _NEMO.search(text, at, end)) is not None:
            step = _NEMO_STEP.search(text, at, end)
            yield from _timed("NeMo", number((step or match)["number"]), _ms(nemo["s"]), clock, *printed)
        elif (elapsed := _ELAPSED.search(text, at, end)) is not None:
            given = one_float(elapsed["time"])
            each_ms = _FACTORS[elapsed["times"]] * (1.0 if elapsed["unit"] == "ms" else 1e3)
            ms = None if given is None else given * each_ms
            yield from _timed("Megatron", float(match["number"]), ms, clock, *printed)


def _ms(seconds: str) -> float | None:
    given = number(seconds)
    return None if given is None else given * 1e3


def stride(numbers: Sequence[int]) -> int:
    """Usual number of iterations from one line to the next, by the iterations' `numbers`; 1 where it is not known."""
    apart = [now - before for before, now in pairwise(numbers) if now > before]
    return round(median(apart)) if apart else 1


def _stamped(
    writer: str, match: re.Match[str], line: LogLine, tflops: float | None = None
) -> Iterator[tuple[str, LoggedRecord]]:
    clock = stamped(line.prefix + line.text[: match.start()])[0]
    if clock is not None:
        yield writer, LoggedRecord(int(match["number"]), None, clock, tflops if tflops else None)


def _timed(
    writer: str,
    at: float | None,
    ms: float | None,
    clock: Stamp | None = None,
    tflops: float | None = None,
    batch: int | None = None,
) -> Iterator[tuple[str, LoggedRecord]]:
    if at is not None and 0 <= at < 2**53 and ms is not None and 0 < ms < MOST_MS:
        yield writer, LoggedRecord(round(at), ms, clock, tflops or None, batch or None)
