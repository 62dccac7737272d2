"""Logs of spans as a format: a line of JSON for each span of each rank (torchtitan, and docs/formats.md)."""

from __future__ import annotations

import re
from typing import NoReturn

from ddprof.errors import NoUsableInput
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source

_MARK = re.compile(
    rb'\A\{[^\n]*"log_type_name":\s*"|\A\{(?=[^\n]*"rank":)(?=[^\n]*"start_us":)(?=[^\n]*"dur_us":)[^\n]*"span":'
)


def _refuse(source: Source) -> NoReturn:
    """Raises NoUsableInput: it says how long spans took, and nothing of what ran in them."""
    raise NoUsableInput(
        f"{source.label}: a log of spans, which holds no events: `ddprof analyze` of the logs alone tells what they say"
    )


def _recognise(sample: Sample) -> bool:
    return sample.is_object and sample.has(_MARK, (b'"log_type_name"', b'"span"'))


def _aside(source: Source) -> str | None:
    from ddprof.slices.span_logs.read import read_span_logs
    from ddprof.slices.span_logs.text import explained

    try:
        return explained(read_span_logs([source])).sentence
    except NoUsableInput:
        return None


FORMAT = Format("span_log", "a log of spans (torchtitan)", _recognise, _refuse, holds_events=False, aside=_aside)
