"""Ranks that left their group's common order of calls: one omitted, one too many, or two swapped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ddprof.slices.hangs.evidence import Call
from ddprof.slices.hangs.judging.frames import user_frame
from ddprof.slices.hangs.model import Passed

Key = tuple[object, ...]
Numbered = tuple[Key, Call]
_OP, _LINE = 0, 3  # their places in a key
_MOST_CARRIED_ON = 4096  # calls: twice what a flight recorder keeps by default
MOST_LEFT_OUT = 8  # calls in a row: what one branch of a script holds


def passed_over(calls: Mapping[int, Sequence[Call]], number: int) -> tuple[Passed, ...]:
    """The ranks that left the common order at or before collective `number`, and how.

    Calls are compared by operation, shapes, dtypes and calling line, the only difference between two loops of equal
    all-reduces. The reference is most ranks or, with two, what followed the last common call before.
    """
    spans = {rank: [c for c in of if c.number <= number + 1] for rank, of in calls.items() if of}
    if len(spans) < 2:
        return ()
    first = max(min(c.number for c in of) for of in spans.values())
    keys = {rank: {c.number: (_key(c), c) for c in of if c.number >= first} for rank, of in spans.items()}
    at = _first_difference(keys, first, number)
    if at is None:
        return ()
    kinds = Counter(of[at][0] for of in keys.values() if at in of)
    expected = _expected(keys, kinds, at)
    if expected is None:
        return ()
    passed = []
    reference = next(rank for rank, of in keys.items() if at in of and of[at][0] == expected)
    for rank, of in sorted(keys.items()):
        if at in of and of[at][0] != expected and _is_shifted(of, keys[reference], at):
            passed.append(Passed(rank, keys[reference][at][1], of[at][1], _is_extra(of, keys[reference], at)))
    return tuple(passed)


def _key(call: Call) -> Key:
    line = user_frame(call.frames)
    where = (line.file, line.line) if line is not None else None
    return (call.op, call.input_sizes, call.input_dtypes, where)


def _first_difference(keys: Mapping[int, Mapping[int, Numbered]], first: int, last: int) -> int | None:
    """The first number whose calls differ and after which no number has calls alike on all ranks."""
    difference: int | None = None
    for number in sorted({number for of in keys.values() for number in of if first <= number <= last}):
        here = {of[number][0] for of in keys.values() if number in of}
        if len(here) > 1:
            difference = number if difference is None else difference
        elif len(here) == 1 and sum(number in of for of in keys.values()) == len(keys):
            difference = None
    return difference


def _expected(keys: Mapping[int, Mapping[int, Numbered]], kinds: Counter[Key], at: int) -> Key | None:
    """Call of most ranks; among equals the one that always followed the previous call. None if unknown."""
    (most, count), *others = kinds.most_common()
    if not others:
        return None
    if count > others[0][1]:
        return most
    before = next((of[at - 1][0] for of in keys.values() if at - 1 in of), None)
    followed: Counter[Key] = Counter()
    for of in keys.values():
        followed.update(of[n + 1][0] for n in of if n + 1 < at and n + 1 in of and of[n][0] == before)
    candidates = {key for key in followed if key in kinds}
    return candidates.pop() if len(candidates) == 1 and len(followed) == 1 else None


def _is_shifted(calls: Mapping[int, Numbered], others: Mapping[int, Numbered], at: int) -> bool:
    """True where the rank's calls from `at` on are its peers' with some omitted, one added, or two swapped.

    Waiting peers have made no later call, so what followed before stands in for it. Where that is unknown, the
    unexpected call must be one that peers make elsewhere. A pair of lines that matched before is the script's design
    (the root of a broadcast has its own).
    """
    if any(n < at and n in others and calls[n][0] == calls[at][0] and others[n][0] == others[at][0] for n in calls):
        return False
    if calls[at][0][_OP] == others[at][0][_OP] and calls[at][0][_LINE] == others[at][0][_LINE]:
        return False  # the same call, of other tensors
    later = [n for n in calls if n >= at]
    expected = _continued(others, max(later) + MOST_LEFT_OUT)
    for shift in (*range(1, MOST_LEFT_OUT + 1), -1):
        moved = [n for n in later if n + shift >= at]
        if moved and all(n + shift in expected and calls[n][0] == expected[n + shift] for n in moved):
            return True
    swapped = at + 1 in calls and expected.get(at + 1) == calls[at][0] and expected[at] == calls[at + 1][0]
    unknown = at + 1 not in expected and any(key == calls[at][0] for key, _ in others.values())
    return swapped or unknown


def _continued(calls: Mapping[int, Numbered], last: int) -> dict[int, Key]:
    """The keys of a rank's calls, extended to number `last` by their order so far."""
    keys = {number: key for number, (key, _) in calls.items()}
    end = max(keys)
    before = next((n for n in sorted(keys, reverse=True) if n < end and keys[n] == keys[end]), None)
    if before is not None:
        for number in range(end + 1, min(last, end + _MOST_CARRIED_ON) + 1):
            if before + number - end not in keys:  # a hole in the record
                break
            keys[number] = keys[before + number - end]
    return keys


def _is_extra(calls: Mapping[int, Numbered], others: Mapping[int, Numbered], at: int) -> bool:
    """True where the call at `at` is superfluous: the peers' call at `at` is the rank's next."""
    follows = at + 1 in calls and calls[at + 1][0] == others[at][0]
    swapped = at + 1 in others and calls[at][0] == others[at + 1][0]
    return follows and not swapped
