"""Stacks of Python threads as text, from faulthandler or `py-spy dump`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddprof.slices.hangs.evidence import StackFrame

# faulthandler: `Thread 0x00007f (most recent call first):` or `Current thread 0x... [name] (...)`, then
# `  File "train.py", line 12 in load`.
_FAULTHANDLER_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+).*most recent call")
_FAULTHANDLER_FRAME = re.compile(r'^ +File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_FATAL = re.compile(r"^Fatal Python error: (?P<what>.*)$")
# py-spy: `Thread 1234 (idle): "MainThread"`, then `    load (train.py:12)`.
_PY_SPY_THREAD = re.compile(r'^Thread (?P<id>\S+) \((?P<state>[^)]*)\)(?:: "(?P<name>.*)")?$')
_PY_SPY_FRAME = re.compile(r"^ +(?P<function>.+) \((?P<file>.+):(?P<line>\d+)\)$")
MAX_FRAMES = 1024  # of one thread; Python's own limit of recursion is 1,000


@dataclass(frozen=True)
class StackText:
    """The training thread's frames in a text's last dump, innermost first, and the fatal error behind it ("": none)."""

    frames: tuple[StackFrame, ...]
    fatal: str = ""


def has_stacks(head: str) -> bool:
    """True where a text begins as one of the two formats."""
    lines = head.splitlines()
    return any(_FAULTHANDLER_THREAD.match(line) or _PY_SPY_THREAD.match(line) for line in lines)


def parse_stacks(text: str) -> StackText:
    """The last dump in the text, as a process may have been dumped several times. The training thread is the main one,
    which faulthandler lists last as the oldest.
    """
    threads: list[tuple[bool, list[StackFrame]]] = []
    fatal = ""
    seen: set[str] = set()
    for line in text.splitlines():
        if match := _FATAL.match(line):
            fatal = match["what"]
            threads, seen = [], set()
        elif match := _FAULTHANDLER_THREAD.match(line) or _PY_SPY_THREAD.match(line):
            if match[1] in seen:  # the next dump begins
                threads, seen = [], set()
            seen.add(match[1])
            threads.append((match.re is _PY_SPY_THREAD and match["name"] == "MainThread", []))
        elif threads and (frame := _frame(line)) and len(threads[-1][1]) < MAX_FRAMES:
            threads[-1][1].append(frame)
    main = [frames for is_main, frames in threads if is_main] or [frames for _, frames in threads[-1:]] or [[]]
    return StackText(tuple(main[0]), fatal)


def _frame(line: str) -> StackFrame | None:
    match = _FAULTHANDLER_FRAME.match(line) or _PY_SPY_FRAME.match(line)
    return StackFrame(match["file"], int(match["line"]), match["function"].strip()) if match else None
