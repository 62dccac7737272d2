"""Mutations of a trace's events, and of what it and its file name say of it (rank, world size, groups, clock base):
still whole JSON, but another or an impossible recording."""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from fuzzing.mutations.values import NAN, RAW, documents, put
from fuzzing.tree import Tree

Events = list[dict[str, Any]]
Change = Callable[[Events, Random], Events]
Header = dict[str, Any]
_NUMBERS: tuple[Any, ...] = (-1, 0, 1, 3, 63, 4_097, 10**6, 10**9, 2**31, 2**63, 2**64, 10**30)
_NUMBERS += (1.5, NAN, None, "1", "x")
_SHAPES: tuple[Any, ...] = (None, [], {}, "x", 7, True, [[]], [None], {"a": 1})
_BASES = (0, 1, -1, 2**62, 2**63, 10**30, 1.5e18, "1760000000000000000", None, [])
_NAMES = ("rank{}.json", "rank{}.pt.trace.json", "worker{}_step_1.json", "trace{}.json", "gpu_{}.json")
_RANKS_IN_NAMES = (0, 1, 7, 4_096, 10**6, 10**9, 2**31, 2**64, 10**40)


def changed(change: Change, tree: Tree, draw: Random) -> Tree:
    """The tree with the events of one of its traces changed."""
    traces = [(name, value) for name, value in documents(tree) if _events(value) is not None]
    if not traces:
        return tree
    name, value = draw.choice(traces)
    after = change([event for event in _events(value) or [] if isinstance(event, dict)], draw)
    return put(tree, name, {**value, "traceEvents": after} if isinstance(value, dict) else type(value)(after))


def _events(value: Any) -> list[Any] | None:
    found = value.get("traceEvents") if isinstance(value, dict) else value
    return found if isinstance(found, list) and found and isinstance(found[0], dict) else None


def some(events: Events, draw: Random) -> Events:
    """A few of the events: one, those of one category or name, or a share of all."""
    if not events:
        return []
    one = draw.choice(events)
    how = draw.randrange(4)
    if how == 0:
        return [one]
    if how == 1:
        return [event for event in events if event.get("cat") == one.get("cat")]
    if how == 2:
        return [event for event in events if event.get("name") == one.get("name")]
    return draw.sample(events, max(1, len(events) * draw.choice((1, 10, 50)) // 100))


def drop(events: Events, draw: Random) -> Events:
    gone = {id(event) for event in some(events, draw)}
    return [event for event in events if id(event) not in gone]


def _set(key: str, offered: tuple[Any, ...]) -> Change:
    def change(events: Events, draw: Random) -> Events:
        new = draw.choice(offered)
        for event in some(events, draw):
            event[key] = new
        return events

    return change


def scale_times(events: Events, draw: Random) -> Events:
    """Times or durations multiplied: another unit, a clock that runs backwards, everything at once."""
    key, factor = draw.choice(("ts", "dur")), draw.choice((-1, 0, 1e-3, 1e3, 1e6, 1e12, 1e15))
    for event in some(events, draw):
        if isinstance(event.get(key), int | float):
            event[key] *= factor
    return events


def shift_times(events: Events, draw: Random) -> Events:
    by_us = draw.choice((-1e9, -1e4, -1.0, 0.0005, 1e4, 1e9, 1e13, 4e15, 9e15))
    for event in some(events, draw):
        if isinstance(event.get("ts"), int | float):
            event["ts"] += by_us
    return events


def swap_labels(events: Events, draw: Random) -> Events:
    key = draw.choice(("name", "cat", "pid", "tid"))
    one, other = (draw.choice(events).get(key) if events else None for _ in range(2))
    for event in events:
        if event.get(key) in (one, other):
            event[key] = other if event.get(key) == one else one
    return events


def swap_arguments(events: Events, draw: Random) -> Events:
    """The arguments of events in another order: kernels that belong to other launches and collectives."""
    mine = some(events, draw)
    arguments = [event.get("args") for event in mine]
    draw.shuffle(arguments)
    for event, args in zip(mine, arguments, strict=True):
        event["args"] = args
    return events


def set_argument(events: Events, draw: Random) -> Events:
    """One argument of some events replaced by the same odd value."""
    named = [event for event in events if isinstance(event.get("args"), dict) and event["args"]]
    if not named:
        return events
    key = draw.choice(sorted({key for event in named for key in event["args"]}))
    new = draw.choice((-1, 0, 2**31, 2**63, 2**64, 10**30, None, "x", "", [], [[1]], {}, True, 0.5, 1e300, "[0, 1, 2"))
    for event in some([event for event in named if key in event["args"]], draw):
        event["args"][key] = new
    return events


def renumber(events: Events, draw: Random) -> Events:
    """All identifiers that join events the same, or none the same."""
    key, is_same = draw.choice(("correlation", "External id", "Seq", "stream", "device")), draw.random() < 0.5
    for at, event in enumerate(events):
        args = event.get("args")
        if isinstance(args, dict) and key in args:
            args[key] = 1 if is_same else at
    return events


def steps_elsewhere(events: Events, draw: Random) -> Events:
    """Step marks missing, of no or of great length, nested in one another, on another thread or with odd numbers."""
    marks = [event for event in events if str(event.get("name", "")).startswith("ProfilerStep")]
    numbers = ("ProfilerStep#", "ProfilerStep#-1", "ProfilerStep#1e3", f"ProfilerStep#{2**70}")
    key = draw.choice(("name", "dur", "ts", "tid", "odd name", "great dur"))
    for number, mark in enumerate(marks):
        new = {"name": "step", "dur": 0, "ts": marks[0]["ts"], "tid": number, "great dur": 1e10}
        mark[key.split()[-1]] = new.get(key, draw.choice(numbers))
    return events


def disorder_marks(events: Events, draw: Random) -> Events:
    """Numbers or times of step marks given to one another: in another order, or the last one first."""
    marks = [event for event in events if str(event.get("name", "")).startswith("ProfilerStep")]
    for key in draw.choice((("name",), ("ts",), ("dur",), ("name", "tid"))):
        held = [mark.get(key) for mark in marks]
        for mark, value in zip(marks, held[::-1] if draw.random() < 0.5 else draw.sample(held, len(held)), strict=True):
            mark[key] = value
    return events


def long_times(events: Events, draw: Random) -> Events:
    """Times with more digits than a double holds, as text that `json` would not write."""
    key, digits = draw.choice(("ts", "dur")), draw.choice((15, 17, 20, 40))
    for event in some(events, draw):
        if isinstance(event.get(key), int | float):
            text = f"{abs(int(event[key]))}{draw.choice(('.', '', '.000'))}{'123456789' * 5}"
            event[key] = RAW + text[:digits].rstrip(".")
    return events


_OTHERS: Mapping[str, Change] = {
    "repeat": lambda events, draw: events + [dict(e) for e in some(events, draw) for _ in range(draw.choice((1, 9)))],
    "shuffle": lambda events, draw: draw.sample(events, len(events)),
    "denormal_duration": _set("dur", (5e-324, 1e-320, -1e-320, 2.2e-308, 1e-310)),
    "denormal_time": _set("ts", (5e-324, -1e-320, 2.2e-308)),
    "keep_only": some,
    "no_duration": _set("dur", (0, -1, -1e9, None, "", "5")),
    "phase": _set("ph", ("B", "E", "i", "M", "b", "e", "C", "", "XX", None, 5)),
    "other_pid": _set("pid", (0, 1, -1, "", None, 2**40, [1], {"a": 1}, 0.5, "\ud800")),
    "other_tid": _set("tid", (0, 7, 20, -1, "", None, 2**40, [1], {"a": 1}, 0.5)),
    "other_category": _set("cat", ("kernel", "cpu_op", "gpu_memcpy", "user_annotation", "Trace", "", None, "x" * 999)),
    "other_name": _set("name", ("", None, "ProfilerStep#0", "gloo:all_reduce", "ncclDevKernel_SendRecv", "\x1b[2J", 5)),
    "no_arguments": _set("args", (None, [], {}, "x", 5, [{}])),
    "same_time": _set("ts", (0, -1, None, 1e18, "1000.5", 2**62, 9.3e15)),
}
_CHANGES = (drop, scale_times, shift_times, long_times, swap_labels, swap_arguments, set_argument, renumber)
_CHANGES += (steps_elsewhere, disorder_marks)
EVENTS: Mapping[str, Callable[[Tree, Random], Tree]] = {
    f"events_{name}": partial(changed, change)
    for name, change in [*((change.__name__, change) for change in _CHANGES), *_OTHERS.items()]
}


def _headers(tree: Tree) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in documents(tree) if isinstance(value, dict) and "traceEvents" in value]


def _changing(change: Callable[[Header, Random], Header]) -> Callable[[Tree, Random], Tree]:
    """One trace with some values of its header replaced by those of `change`, or all traces alike."""

    def mutation(tree: Tree, draw: Random) -> Tree:
        found, alike = _headers(tree), draw.randrange(1 << 30)
        for name, value in found if draw.random() < 0.3 else draw.sample(found, min(1, len(found))):
            tree = put(tree, name, {**value, **change(value, Random(alike))})
        return tree

    return mutation


def _distributed(value: Header, key: str, new: Any) -> Header:
    info = value.get("distributedInfo")
    return {"distributedInfo": {**(info if isinstance(info, dict) else {}), key: new}}


def _shape(value: Header, draw: Random) -> Header:
    keys = set(value) - {"traceEvents"} | {"distributedInfo", "deviceProperties"}
    return {draw.choice(sorted(keys)): draw.choice(_SHAPES)}


def _groups(value: Header, draw: Random) -> Header:
    """Ranks beyond the world, a group of a billion, text for lists."""
    group: Header = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}
    group[draw.choice(sorted(group))] = draw.choice((*_NUMBERS, *_SHAPES, [0, 10**9], [-1, 2**64], "[0, 1]"))
    return _distributed(value, "pg_config", draw.choice(([group], [group] * 500, group, [group, None])))


def _device(value: Header, draw: Random) -> Header:
    keys = ("id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "warpSize", "numSms")
    return {"deviceProperties": [{draw.choice(keys): draw.choice((*_NUMBERS, *_SHAPES))} for _ in range(2)]}


def header_last(tree: Tree, draw: Random) -> Tree:
    """The header after the events, as some writers have it: the same recording."""
    for name, value in draw.sample(found := _headers(tree), min(draw.choice((1, 2)), len(found))):
        tree = put(tree, name, {"traceEvents": value["traceEvents"], **value})
    return tree


def no_header(tree: Tree, draw: Random) -> Tree:
    """Only the events: who wrote them, and when, is unknown."""
    found = _headers(tree)
    if not found:
        return tree
    name, value = draw.choice(found)
    return put(tree, name, draw.choice((value["traceEvents"], {"traceEvents": value["traceEvents"]})))


def rank_in_name(tree: Tree, draw: Random) -> Tree:
    """A file whose name says another rank: twice the same, a huge one, one of forty digits."""
    name = draw.choice(sorted(path for path in tree if path.startswith("run/")))
    new = "run/" + draw.choice(_NAMES).format(draw.choice(_RANKS_IN_NAMES))
    return {new if path == name else path: entry for path, entry in tree.items()}


def same_rank(tree: Tree, draw: Random) -> Tree:
    name = draw.choice(sorted(path for path in tree if path.startswith("run/")))
    return {**tree, f"run/copy/{name.removeprefix('run/')}": tree[name]}


HEADERS: Mapping[str, Callable[[Tree, Random], Tree]] = {
    "header_rank": _changing(lambda v, d: _distributed(v, d.choice(("rank", "world_size")), d.choice(_NUMBERS))),
    "header_shape": _changing(_shape),
    "header_groups": _changing(_groups),
    "header_base_time": _changing(lambda value, draw: {"baseTimeNanoseconds": draw.choice(_BASES)}),
    "header_device": _changing(_device),
    **{mutation.__name__: mutation for mutation in (header_last, no_header, rank_in_name, same_rank)},
}
