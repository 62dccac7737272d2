"""Lines of a text log, whoever wrote and collected it: who a line is from, and its text without colours and prefixes.

Launchers mark lines with their rank (torchrun `[default0]:` and `[rank0]:`, `srun --label`, `mpirun --tag-output`, the
host name that DeepSpeed's pdsh puts there), collectors with a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddprof.readers.files.streams import open_blocks

MAX_LINE_BYTES = 1 << 16  # arguments printed in one line have some 20 KB; a longer line holds no number we look for
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_FROM = re.compile(
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[ \t])?"
    r"(?P<who>\[(?:default|rank|[\w-]{1,40}/)\d{1,6}\]:|\[\d+,\d+\]<std(?:out|err)>:|\s{0,6}\d{1,6}:(?=\s)"
    r"|[A-Za-z][\w.-]{0,80}:(?=\s{1,2}\[)|\d{1,3}(?:\.\d{1,3}){3}:)?"
)


def log_lines(path: str, member: str | None = None) -> Iterator[tuple[str, str]]:
    """(who, text) of every line that is whole. Raises NoUsableInput where the file cannot be opened.

    What a progress bar rewrites by carriage returns are lines of their own. The last line counts only if it ends as
    the lines that are read do: one that was cut has cut numbers.
    """
    rest = b""
    with open_blocks(path, member) as blocks:
        for block in blocks:
            *whole, rest = (rest + block).replace(b"\r", b"\n").split(b"\n")
            for line in whole:
                yield from _plain(line)
            if len(rest) > MAX_LINE_BYTES:
                rest = rest[-MAX_LINE_BYTES:]
    if rest.rstrip().endswith((b"|", b")")):
        yield from _plain(rest)


def _plain(line: bytes) -> Iterator[tuple[str, str]]:
    if line and len(line) <= MAX_LINE_BYTES:
        text = line.decode("utf-8", "replace")
        text = _ESCAPE.sub("", text) if "\x1b" in text else text
        found = _FROM.match(text)
        who = "" if found is None else (found["who"] or "").strip()
        yield who, text if found is None else text[found.end() :]
