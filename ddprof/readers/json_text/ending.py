"""Where the list of events ends: at a bracket that the values of the root follow, not at any that events follow."""

from __future__ import annotations

import re

# Keys of Chrome's trace format that open an event; after a bracket none of them is a value of the root.
_OF_EVENTS = frozenset(b"ph cat name pid tid ts dur tts tdur args id id2 s bp cname sf".split())
# Values that profilers write behind the list: believed even where the event before them is broken.
_BEHIND = re.compile(
    rb'\]\s*,\s*"(?:traceName|displayTimeUnit|baseTimeNanoseconds|deviceProperties|distributedInfo|schemaVersion'
    rb'|otherData|stackFrames|samples|systemTraceEvents|metadata|ddprof)"\s*:'
)
_LONGEST_KEY = 200  # bytes
_KEY = rb'\s*"(?P<%s>[^"\\]{0,' + str(_LONGEST_KEY).encode() + rb'})"\s*:'
_AFTER = re.compile(rb"\]\s*(?:," + _KEY % b"key" + rb"|\}\s*\{" + _KEY % b"other" + rb"|(?P<last>(?:\}\s*)?\Z))")
_UNCLEAR = re.compile(rb'\]\s*(?:,\s*(?:"[^"\\]*"?\s*)?|\}\s*(?:\{\s*(?:"[^"\\]*"?\s*)?)?)?\Z')
_SOLID = re.compile(rb"\S")


def is_list_end(text: bytes, bracket: int, is_last: bool) -> bool | None:
    """Whether the closing bracket at this offset ends the list; None where the text ends before that is clear.

    It does where a value of the root, the end of the root, or another document follows. `is_last`: nothing follows the
    text.
    """
    found = _AFTER.match(text, bracket)
    if found is not None and found["last"] is None:
        return (found["key"] or found["other"]) not in _OF_EVENTS
    if _UNCLEAR.match(text, bracket) is None:
        return False
    return (found is not None) if is_last else None


def end_between(text: bytes, last_event: int, begin: int, until: int) -> int | None:
    """The bracket that ends the list between an event that ended at `last_event` and another that may begin at `until`.

    Right behind the event any value of the root may follow it, in damaged text from `begin` on only those of profilers.
    """
    if begin == last_event:
        bracket = _first(text, last_event)
        if bracket is not None and is_list_end(text, bracket, False):
            return bracket
    found = _BEHIND.search(text, begin, until)
    return found.start() if found is not None else None


def end_of_text(text: bytes, last_event: int, last_object: int, begin: int) -> int | None:
    """The bracket that ends the list in a text that nothing follows, where no event lies behind `last_event`.

    `last_object`: where the last object ended, which need not be an event.
    """
    bracket = _first(text, last_event)
    if bracket is not None:
        return bracket
    bracket = _first(text, last_object)
    if bracket is not None and is_list_end(text, bracket, True):
        return bracket
    found = _BEHIND.search(text, begin)
    return found.start() if found is not None else None


def _first(text: bytes, begin: int) -> int | None:
    """The offset of a closing bracket that only white space, and one comma, separate from `begin`."""
    found = _SOLID.search(text, begin)
    if found is not None and found[0] == b",":
        found = _SOLID.search(text, found.end())
    return found.start() if found is not None and found[0] == b"]" else None
