"""PyTorch profiler (Kineto) JSON: `header` reads the text around the event list, `trace` the events."""

from __future__ import annotations

import re

from ddprof.readers.format import Format, Sample
from ddprof.readers.formats.kineto.merged import merged_ranks
from ddprof.readers.formats.kineto.trace import read_kineto

MARKS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|schema_version)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|Operator|kernel|Kernel|cuda_runtime|Runtime|user_annotation|gpu_memcpy|cuda_driver|python_function'
    rb'|hip_runtime|xpu_runtime|privateuse1_runtime)"'
)

# libkineto has begun every file with this since 2020.
_START = re.compile(rb'\{\s*"schemaVersion"\s*:')


def _is_sure(sample: Sample) -> bool:
    return _START.match(sample.text) is not None and sample.may_hold_events


def _recognise(sample: Sample) -> bool:
    """True for any object with events that no other format claimed; for a list only with the profiler's marks."""
    return sample.may_hold_events and (sample.is_object or sample.has(MARKS))


FORMAT = Format(
    "kineto",
    "a PyTorch profiler trace",
    _recognise,
    read_kineto,
    merged_ranks,
    is_run=False,
    generality=1,
    is_sure=_is_sure,
)
