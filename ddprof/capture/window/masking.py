"""Kineto's text without the secrets in names that the script gives: of its own ranges and of process groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from ddprof.untrusted.secrets import masked

_BLOCK_BYTES = 1 << 18
_EVENT = b"\n  {"  # how Kineto begins one
# Words that are found at the speed of memory -> the names behind them, whose quotes Kineto leaves as they are.
_NAMED = {
    b"user_annotation": re.compile(rb'(user_annotation",\s*"name": ")([^\n]*?)(?=",\s*"(?:pid|tid|ts)":)'),
    b"Process Group Desc": re.compile(rb'("Process Group Description": ")([^\n]*?)(?="\s*[,}\n])'),
}
_FIRST = {**_NAMED, b"pg_desc": re.compile(rb'("pg_desc": ")([^\n]*?)(?=", ")')}


def masked_blocks(source: BinaryIO) -> Iterator[bytes]:
    """The text of a trace in blocks of whole events, each with its names masked. Raises OSError."""
    held, named = b"", _FIRST
    while block := source.read(_BLOCK_BYTES):
        events, sign, begun = (held + block).rpartition(_EVENT)
        held = sign + begun
        if len(held) > _BLOCK_BYTES:  # no event is as long: the groups of a large job in the header
            events, held = events + held, b""
        yield _masked(events, named)
        named = _NAMED
    yield _masked(held, _NAMED)


def _masked(text: bytes, named: Mapping[bytes, re.Pattern[bytes]]) -> bytes:
    for word, pattern in named.items():
        if word in text:
            text = pattern.sub(lambda match: match[1] + _name(match[2]), text)
    return text


def _name(name: bytes) -> bytes:
    text = name.decode("utf-8", "replace")
    return name if masked(text) == text else masked(text).encode()
