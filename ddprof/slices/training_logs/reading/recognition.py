"""Recognition of text logs of training jobs: text in which their readers find something."""

from __future__ import annotations

import re

from ddprof.slices.training_logs.reading.lines import broken
from ddprof.slices.training_logs.reading.read import Readers

# What is printed at the start by programs that print thousands of lines before the first number.
_STARTS = re.compile(rb"\[INFO\] \[(?:logging|config)\.py:\d{1,5}:(?:log_dist|print)\]|Total optimization steps = \d")
_OF_NUMBERS = re.compile(rb"[:=] ?-?\d{1,9}\.\d[^\n|]{0,20}\d%\|")  # losses, whatever their names, before a bar
_EPOCH = re.compile(rb"\bepochs?\W{0,3}\d")
# Beside which an error, or a number before a bar, is a training's
_OF_TRAINING = (
    *(b"torch", b"processgroupnccl", b"deepspeed", b"megatron", b"lightning", b"transformers", b"wandb", b"jax"),
    *(b"horovod", b"npustream", b"tensorflow", b"paddle", b"mxnet", b"keras", b"slurmstepd"),
)


def is_of_training(text: bytes) -> bool:
    """True for text with lines of a training, or of what it ends in."""
    readers, text = Readers(), broken(text)
    readers.read(text)
    if readers.are_there or _STARTS.search(text):
        return True
    lower = text.lower()
    is_named = any(word in lower for word in _OF_TRAINING)
    learns = b"loss" in lower or _EPOCH.search(lower) or (is_named and _OF_NUMBERS.search(text))
    return bool(learns and readers.bars.longest()[0]) or (is_named and bool(readers.ending.error))
