"""Text logs of training jobs: reading, findings, and the answer of `ddprof analyze`."""

from ddprof.slice import Slice

SLICE = Slice(
    "training_logs",
    formats=("ddprof.slices.training_logs.format",),
    answers=("ddprof.slices.training_logs.answer",),
)
