"""Timelines of Ascend's profilers (torch_npu, MindSpore, msprof): in Chrome's format, one rank each."""

from __future__ import annotations

import re

from ddprof.readers.format import Format, Sample
from ddprof.readers.formats.chrome import read_chrome

# A list with times as text, whose device events have no category.
_MARKS = re.compile(
    rb'"(?:torch_to_npu|async_npu|async_task_queue|Ascend Hardware|HostToDevice)"|"ts"\s*:\s*"\d{16,20}\.'
)


def _recognise(sample: Sample) -> bool:
    return sample.is_list and sample.has_events and sample.has(_MARKS)


FORMAT = Format("ascend", "a timeline of Ascend's profiler", _recognise, read_chrome, is_run=False)
