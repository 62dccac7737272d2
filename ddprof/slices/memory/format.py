"""PyTorch memory snapshots (`torch.cuda.memory._dump_snapshot`): without steps, so `ddprof memory` analyzes them."""

from __future__ import annotations

import re
from typing import NoReturn

from ddprof.errors import NoUsableInput
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source

_PICKLE = re.compile(rb"\A\x80[\x02-\x05]")
_MARKS = re.compile(rb"segments.{0,200}(?:device|address|total_size)|device_traces", re.S)
_WORDS = (b"segments", b"device_traces")


def _refuse(source: Source) -> NoReturn:
    """Raise NoUsableInput that names the command to use instead."""
    why = "a PyTorch memory snapshot, which has no steps to analyze"
    raise NoUsableInput(f"{source.label}: {why}: `ddprof memory FILE` says what its peak is made of")


def _recognise(sample: Sample) -> bool:
    return _PICKLE.match(sample.head) is not None and sample.has(_MARKS, _WORDS) and b"pg_config" not in sample.head


FORMAT = Format("memory_snapshot", "a PyTorch memory snapshot", _recognise, _refuse, holds_events=False)
