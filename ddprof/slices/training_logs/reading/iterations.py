"""Lines about iterations: of Megatron-LM and its offspring (Megatron-DeepSpeed, GPT-NeoX), NeMo, DeepSpeed's pipeline.

iteration       72/     100 | consumed samples: 9216 | elapsed time per iteration (ms): 5470.7 | ... |
iteration=       1/  635782 | consumed_samples=  768 | elapsed_time_per_iteration_ms=29570.0 | ... |
Training epoch 0, iteration 120/149 | ... | global_step: 120 | ... | train_step_timing in s: 0.03146 | ...
Epoch 0: :   3%|▎   | 9000/301500 [..., global_step=9e+3, ..., train_step_timing in s=0.615, ...]
steps: 20 loss: 4.6178 iter time (s): 0.994 samples/sec: 257.601
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddprof.slices.training_logs.model import LoggedIteration
from ddprof.slices.training_logs.reading.fields import fields, number

_LINE = re.compile(r"iteration[ =]\s*(?P<number>\d{1,12})\s*/\s*\d{1,12}\s*\|")
_BAR = re.compile(r"global_step=(?P<number>\d[\d.e+]{0,15})[,\]].*?train_step_timing in s=(?P<s>\d[\d.e+-]{0,20})[,\]]")
_PIPELINE = re.compile(r"steps: (?P<number>\d{1,12}) loss: \S{1,40} iter time \(s\): (?P<s>\d[\d.]{0,20}) samples/sec:")
_TFLOPS = ("throughputpergputflopsgpu", "tflops", "[lm]tflops", "tflopspergpu")
_MOST_MS = 1e9  # twelve days: no iteration


def iterations_of(text: str) -> Iterator[tuple[str, LoggedIteration]]:
    """(who writes so, iteration) of every record in a line: ranks that share a file put several in one."""
    for found in _BAR.finditer(text):
        yield from _timed("NeMo", number(found["number"]), _ms(found["s"]))
    for found in _PIPELINE.finditer(text):
        yield from _timed("DeepSpeed", number(found["number"]), _ms(found["s"]))
    starts = list(_LINE.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for found, end in zip(starts, ends, strict=False):
        said = dict(fields(text[found.end() : end]))
        tflops = next((number(said[key]) for key in _TFLOPS if key in said), None)
        batch = number(said.get("globalbatchsize"))
        samples = int(batch) if batch is not None and batch > 0 else None
        if "trainsteptimingins" in said:
            step = number(said.get("globalstep"))
            seconds = _ms(said["trainsteptimingins"])
            yield from _timed("NeMo", step if step is not None else float(found["number"]), seconds, tflops, samples)
        elif (ms := number(said.get("elapsedtimeperiterationms"))) is not None:
            yield from _timed("Megatron", float(found["number"]), ms, tflops, samples)


def _ms(seconds: str) -> float | None:
    given = number(seconds)
    return None if given is None else given * 1e3


def _timed(
    writer: str, at: float | None, ms: float | None, tflops: float | None = None, batch: int | None = None
) -> Iterator[tuple[str, LoggedIteration]]:
    if at is not None and 0 <= at < 2**53 and ms is not None and 0 < ms < _MOST_MS:
        yield writer, LoggedIteration(int(at), ms, tflops if tflops is not None and tflops > 0 else None, batch)
