"""Large pickles of plain values whose parts are shared: a stack that a million events refer to is one list.

Copying them as trees (safe_pickle) would make each event its own stack. Instead what comes out is as it was written,
and who reads it must look at each list once. What makes an object is counted before anything is made; what refers to
one costs the few bytes that it takes in the file, which is bounded.
"""

from __future__ import annotations

import re
from typing import Any

from ddprof.readers.files.safe_pickle import UnsafePickle, plain_value

MAX_OBJECTS = 12_000_000  # of a million events: a dict, a tuple, a list and three numbers each, and their stacks
# What makes no object and has a fixed length: marks, appending, references, small numbers, constants. In one
# expression, because it is most of such a file.
_CHEAP = re.compile(rb"(?:[(\x94aesuN\x88\x89.]|h.|q.|K.|\x80.|j.{4}|\x95.{8})+", re.S)
_FIXED = {
    **dict.fromkeys(b"])}\x8f\x91tld\x85\x86\x870120b", 0),
    **{ord("M"): 2, ord("J"): 4, ord("G"): 8},
}
_COUNTED = {  # operation: width of the length that follows it
    **dict.fromkeys(b"UC\x8a\x8c", 1),
    **dict.fromkeys(b"TXB\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}
_LINES = frozenset(b"IFLSVgp")  # protocol 0: the argument ends with the line
_CODE = frozenset(b"c\x93R\x81\x92oiPQ\x82\x83\x84b")


def load_shared(content: bytes) -> Any:
    """The value of a pickle made of plain values only. Raises UnsafePickle, or ValueError where it is damaged."""
    _check(content)
    return plain_value(content)


def _check(content: bytes) -> None:
    at, size, made = 0, len(content), 0
    while at < size:
        cheap = _CHEAP.match(content, at)
        if cheap is not None:
            at = cheap.end()
            continue
        op = content[at]
        made += 1
        if op in _CODE:
            raise UnsafePickle("the pickle asks for a class or function: refused")
        if op in _FIXED:
            at += 1 + _FIXED[op]
        elif op in _COUNTED:
            width = _COUNTED[op]
            at += 1 + width + int.from_bytes(content[at + 1 : at + 1 + width], "little")
        elif op == ord("r"):  # the place of a value among those that may be referred to: the table is as long as that
            if int.from_bytes(content[at + 1 : at + 5], "little") > at:
                raise ValueError("a pickle that refers to more values than it holds")
            at, made = at + 5, made - 1
        elif op in _LINES:
            raise ValueError("a pickle of protocol 0, which no snapshot is")
        else:
            raise ValueError("damaged pickle")
        if made > MAX_OBJECTS:
            raise ValueError(f"a pickle of more than {MAX_OBJECTS} values")
