"""Text logs of training jobs (Megatron, NeMo, DeepSpeed): numbers, and no events; `ddprof analyze` reads them alone."""

from __future__ import annotations

import re
from typing import NoReturn

from ddprof.errors import NoUsableInput
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source

_MARKS = re.compile(
    rb"comm op: [^|\r\n]{1,200}? \| time \(ms\): [\d.]{1,20} \| msg size: "
    rb"|Comm\. Op\s+Message Size\s+Count\s+Total "
    rb"|times? across ranks \(ms\):[ \r\n]"
    rb"|elapsed[ _]time[ _]per[ _]iteration[ _]\(?ms\)?\s*[:=]\s*\d"
    rb"|train_step_timing in s[:=]\s*\d"
    rb"|time \(ms\) \| (?:forward|fwd|optimizer|model-and|pipe|batch_input)[\w-]*: "
    # What is printed at the start: megabytes of others' lines may lie between it and the first number.
    rb"|using world size: \d{1,7}, data-parallel size: \d"
    rb"|\[INFO\] \[(?:logging|config)\.py:\d{1,5}:(?:log_dist|print)\]"
    rb"|iter time \(s\): [\d.]{1,20} samples/sec:"
)
_WORDS = (
    b"comm op: ",
    b"Comm. Op",
    b"across ranks (ms)",
    b"per iteration",
    b"per_iteration",
    b"train_step_timing",
    b"time (ms) |",
    b"iter time (s)",
    b"using world size",
    b"[INFO] [",
)


def _refuse(source: Source) -> NoReturn:
    """Raises NoUsableInput: there is nothing in it that lies on a timeline."""
    raise NoUsableInput(
        f"{source.label}: a training log, which holds no events: `ddprof analyze` tells what its lines say, and "
        "`ddprof run` records why"
    )


def _recognise(sample: Sample) -> bool:
    is_text = b"\0" not in sample.head[:4096]
    return is_text and not (sample.is_object or (sample.is_list and sample.has_events)) and sample.has(_MARKS, _WORDS)


FORMAT = Format("training_log", "a training log (Megatron, NeMo, DeepSpeed)", _recognise, _refuse, holds_events=False)
