"""Text logs of training jobs: their lines, what they show and what they cannot, model to answer of `ddprof analyze`."""

from ddprof.slice import Slice

SLICE = Slice(
    "training_logs",
    formats=("ddprof.slices.training_logs.format",),
    answers=("ddprof.slices.training_logs.answer",),
)
