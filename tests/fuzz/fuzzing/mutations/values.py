"""Mutations of JSON values: one value of a document replaced by one that its reader may not expect."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from fuzzing.tree import Entry, Tree, files, packed_like, unpacked

Slot = tuple[Any, Any]  # a dict or list, and the key or index in it
Mutation = Callable[[Tree, Random], Tree]
NAN, INFINITY = float("nan"), float("inf")
RAW = "@raw:"  # stands for text that `json` would not write
_MOST_EVENTS = 300  # of a long list that are looked at: the others are alike

NUMBERS = (-1, 0, 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, 1e308, 5e-324)
NUMBERS += (NAN, INFINITY, -INFINITY, f"{RAW}1e999", f"{RAW}{'9' * 5_000}", f"{RAW}-0.0", f"{RAW}1E400")
TEXTS = ("", "x", "0", "-1", "NaN", "1e5", "\x1b[31mred", "\x1b]0;title\x07", "\ud800", "\u202e", "a\nb", "a" * 100_000)
TEXTS += ("../../etc/passwd", "<script>alert(1)</script>", "Process\x00name", "ProfilerStep#99999999999999999999")
SHAPES: tuple[Any, ...] = (None, True, False, [], {}, [1], [[]], [None], {"a": {}}, {"0": 1}, [NAN], [[2**64]], ["x"])
SHAPES += (RAW + "[" * 3_000 + "]" * 3_000, RAW + '{"a":' * 900 + "1" + "}" * 900)


def documents(tree: Tree) -> list[tuple[str, Any]]:
    """Files that are whole JSON, or lists of JSON lines, with their values."""
    texts = [(name, unpacked(content)) for name, content in sorted(files(tree))]
    values = [(name, _parsed(text)) for name, text in texts if text[:1] in (b"{", b"[")]
    return [(name, value) for name, value in values if value is not None]


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return Lines(json.loads(line) for line in text.splitlines() if line.strip())
    except (ValueError, RecursionError):
        return None


class Lines(list[Any]):
    """The values of a file of JSON lines."""


def written(value: Any) -> bytes:
    """JSON text of a value, NaN and raw pieces included."""
    if isinstance(value, Lines):
        return b"\n".join(written(item) for item in value) + b"\n"
    text = re.sub(rf'"{RAW}(?:[^"\\]|\\.)*"', lambda raw: json.loads(raw[0])[len(RAW) :], json.dumps(value))
    return text.encode()


def put(tree: Tree, name: str, value: Any) -> dict[str, Entry]:
    """The tree with one JSON file replaced, packed as it was."""
    return {**tree, name: packed_like(_content(tree, name), written(value))}


def slots(value: Any, key: str = "") -> Iterator[tuple[str, Slot]]:
    """(the nearest key, where it is) of every value of a document; of long lists only some."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name, (value, name)
            yield from slots(item, name)
    elif isinstance(value, list):
        for at in range(0, len(value), max(1, len(value) // _MOST_EVENTS)):
            yield f"{key}[]", (value, at)
            yield from slots(value[at], f"{key}[]")


def chosen_slot(tree: Tree, draw: Random, wanted: Callable[[Any], bool]) -> tuple[str, Any, Slot] | None:
    """A file, its value and a place in it: first a key, then one of its places, so that rare keys have their turn."""
    found = documents(tree)
    draw.shuffle(found)
    for name, value in found:
        by_key: dict[str, list[Slot]] = {}
        for key, slot in slots(value):
            if wanted(slot[0][slot[1]]):
                by_key.setdefault(key, []).append(slot)
        if by_key:
            return name, value, draw.choice(by_key[draw.choice(sorted(by_key))])
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _replacing(wanted: Callable[[Any], bool], *offered: Any) -> Mutation:
    """One value that is `wanted` replaced by one of those offered."""

    def mutation(tree: Tree, draw: Random) -> Tree:
        if (found := chosen_slot(tree, draw, wanted)) is None:
            return tree
        name, value, (holder, key) = found
        holder[key] = draw.choice(offered)
        return put(tree, name, value)

    return mutation


def _of_a_key(change: Callable[[dict[str, Any], str, Random], None]) -> Mutation:
    """One key of one object changed."""

    def mutation(tree: Tree, draw: Random) -> Tree:
        found = chosen_slot(tree, draw, lambda value: True)
        if found is None or not isinstance(found[2][0], dict):
            return tree
        change(*found[2], draw)
        return put(tree, *found[:2])

    return mutation


def _swap(holder: dict[str, Any], key: str, draw: Random) -> None:
    other = draw.choice(sorted(holder))
    holder[key], holder[other] = holder[other], holder[key]


def _rename(holder: dict[str, Any], key: str, draw: Random) -> None:
    holder[draw.choice((key.upper(), "", "\ud800", f"{key} ", "0"))] = holder.pop(key)


def repeat_key(tree: Tree, draw: Random) -> Tree:
    """A key twice, with another value the second time (which is the one that parsers keep), or thousands of times."""
    found = chosen_slot(tree, draw, lambda value: _is_number(value) or isinstance(value, str))
    if found is None or not isinstance(found[2][0], dict):
        return tree
    name, value, (holder, key) = found
    before = f"{json.dumps(key)}: {json.dumps(holder[key])}"
    more = f", {json.dumps(key)}: {draw.choice(('null', '-1', '[]', '5e-324', 'true', json.dumps(holder[key])))}"
    text = written(value).decode().replace(before, before + more * draw.choice((1, 1, 5_000)), 1)
    return {**tree, name: packed_like(_content(tree, name), text.encode())}


def all_of_a_key(tree: Tree, draw: Random) -> Tree:
    """Every value of one key replaced by the same odd one: a writer with another idea of the format."""
    found = documents(tree)
    if not found:
        return tree
    name, value = draw.choice(found)
    keys = sorted({key for key, _ in slots(value) if not key.endswith("[]")})
    if not keys:
        return tree
    key, new = draw.choice(keys), draw.choice((*NUMBERS, *SHAPES, "x", "-1"))
    for holder in _holders(value, key):
        holder[key] = new
    return put(tree, name, value)


def _holders(value: Any, key: str) -> Iterator[dict[str, Any]]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
            if key in item:
                yield item
        elif isinstance(item, list):
            stack.extend(item)


def _content(tree: Tree, name: str) -> bytes:
    entry = tree[name]
    assert isinstance(entry, bytes)
    return entry


MUTATIONS: Mapping[str, Mutation] = {
    "number_to_odd_number": _replacing(_is_number, *NUMBERS),
    "number_to_other": _replacing(_is_number, *SHAPES, *TEXTS),
    "text_to_odd_text": _replacing(lambda value: isinstance(value, str), *TEXTS),
    "text_to_other": _replacing(lambda value: isinstance(value, str), *SHAPES, *NUMBERS),
    "holder_to_other": _replacing(lambda value: isinstance(value, list | dict), *SHAPES, 7, "x", NAN),
    "null_to_other": _replacing(lambda value: value is None or isinstance(value, bool), *SHAPES, *NUMBERS, *TEXTS),
    "drop_key": _of_a_key(lambda holder, key, draw: holder.pop(key)),
    "swap_keys": _of_a_key(_swap),
    "rename_key": _of_a_key(_rename),
    "repeat_key": repeat_key,
    "all_of_a_key": all_of_a_key,
}
