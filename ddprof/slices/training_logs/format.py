"""Text logs of training jobs (Megatron, NeMo, DeepSpeed, torchtitan, Hugging Face, Lightning, loops of one's own, ...).

`ddprof analyze` reads them alone; beside traces they give the iteration times of the whole run.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ddprof.errors import NoUsableInput
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source

_OBJECTS = re.compile(rb"\{'|\{\"[^\n]{1,65536}\}\r?\n\{(?!\"(?:ph|nodes|schema)\")")  # Trainer's dicts; JSON lines


def _refuse(source: Source) -> NoReturn:
    """Raise NoUsableInput: a text log has no timeline."""
    raise NoUsableInput(
        f"{source.label}: a training log, which holds no events: `ddprof analyze` tells what its lines say, and "
        "`ddprof run` records why"
    )


def _recognise(sample: Sample) -> bool:
    """True for text other than JSON, whose strings may hold such lines, but for an object in each line."""
    is_json = (sample.is_object and sample.is_json and not _OBJECTS.match(sample.text)) or (
        sample.is_list and sample.has_events
    )
    return not is_json and b"\0" not in sample.head[:4096] and _is_of_training(sample.text)


def _is_of_training(text: bytes) -> bool:
    from ddprof.slices.training_logs.reading.read import is_of_training

    return is_of_training(text)  # each analysis asks this module, and few are of logs


def _aside(source: Source) -> str | None:
    from ddprof.slices.training_logs.findings.explain import said_aside

    return said_aside(source)


FORMAT = Format(
    "training_log",
    "a training log (Megatron, NeMo, DeepSpeed, torchtitan, Hugging Face, Lightning)",
    _recognise,
    _refuse,
    holds_events=False,
    is_late=_is_of_training,
    aside=_aside,
)
