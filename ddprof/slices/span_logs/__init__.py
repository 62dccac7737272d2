"""Logs of spans that each rank writes at every step: late ranks and phases of the whole run, without a profiler."""

from ddprof.slice import Slice

SLICE = Slice(
    "span_logs",
    formats=("ddprof.slices.span_logs.format",),
    answers=("ddprof.slices.span_logs.answer",),
)
