"""Place in ddprof of an error, a warning or a hang: its own innermost frame."""

import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType

import ddprof

_CODE = f"{Path(ddprof.__file__).resolve().parents[1]}/"  # the checkout whose ddprof runs
_OURS = ("ddprof", "analyzers", "dashboard")
_FAULT_LINE = re.compile(r'File "(?P<file>[^"]+)", line \d+ in (?P<function>\S+)')


def of_error(trace: TracebackType | None) -> str:
    """`file:function` of the innermost frame of ours."""
    return _innermost((frame.filename, frame.name) for frame in traceback.extract_tb(trace))


def of_frame(frame: FrameType | None) -> str:
    """Place of the frame that runs now."""
    frames = reversed([one for one, _ in traceback.walk_stack(frame)]) if frame else ()
    return _innermost((one.f_code.co_filename, one.f_code.co_name) for one in frames)


def of_dump(text: str) -> str:
    """Place in a dump of `faulthandler`, innermost first; of its last thread, which is the main one."""
    main = text.rsplit("Thread 0x", 1)[-1]
    return _innermost((found["file"], found["function"]) for found in reversed([*_FAULT_LINE.finditer(main)]))


def _innermost(frames: Iterable[tuple[str, str]]) -> str:
    place = "outside ddprof"
    for file, function in frames:
        parts = file.removeprefix(_CODE).split("/")
        if file.startswith(_CODE) and parts[0] in _OURS and not function.startswith("<module"):
            place = f"{'/'.join(parts)}:{function}"
    return place
