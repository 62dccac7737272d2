"""TensorFlow's trace viewer (JSON): Chrome's format with TensorFlow's names of devices and threads."""

from __future__ import annotations

import re

from ddprof.readers.format import Format, Sample
from ddprof.readers.formats.chrome import read_chrome
from ddprof.readers.formats.kineto import MARKS as KINETO_MARKS

_MARKS = re.compile(rb'"/(?:device|host|job):|"highres-ticks"')
_WORDS = (b'"/device:', b'"/host:', b'"/job:', b'"highres-ticks"')


def _recognise(sample: Sample) -> bool:
    return sample.is_object and sample.may_hold_events and sample.has(_MARKS, _WORDS) and not sample.has(KINETO_MARKS)


FORMAT = Format("tensorflow", "a TensorFlow trace", _recognise, read_chrome)
