"""Mutations of what a trace says of itself, and of what its file name says: rank, world size, groups, clock base."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from fuzzing.mutations.values import NAN, documents, put
from fuzzing.tree import Tree

_NUMBERS: tuple[Any, ...] = (-1, 0, 1, 3, 63, 4_097, 10**6, 10**9, 2**31, 2**63, 2**64, 10**30)
_NUMBERS += (1.5, NAN, None, "1", "x")
_SHAPES: tuple[Any, ...] = (None, [], {}, "x", 7, True, [[]], [None], {"a": 1})
_BASES = (0, 1, -1, 2**62, 2**63, 10**30, 1.5e18, "1760000000000000000", None, [])
_NAMES = ("rank{}.json", "rank{}.pt.trace.json", "worker{}_step_1.json", "trace{}.json", "gpu_{}.json")
_RANKS_IN_NAMES = (0, 1, 7, 4_096, 10**6, 10**9, 2**31, 2**64, 10**40)


def _headers(tree: Tree) -> list[tuple[str, Any]]:
    found = documents(tree)
    return [(name, value) for name, value in found if isinstance(value, dict) and "traceEvents" in value]


def _with_header(tree: Tree, draw: Random, change: Callable[[dict[str, Any], Random], dict[str, Any]]) -> Tree:
    """One trace with its header changed, or all traces."""
    found = _headers(tree)
    if not found:
        return tree
    for name, value in found if draw.random() < 0.3 else [draw.choice(found)]:
        tree = put(tree, name, change(value, draw))
    return tree


def header_rank(tree: Tree, draw: Random) -> Tree:
    """Another rank or world size."""
    key, new = draw.choice(("rank", "world_size")), draw.choice(_NUMBERS)

    def change(value: dict[str, Any], draw: Random) -> dict[str, Any]:
        info = value.get("distributedInfo")
        return {**value, "distributedInfo": {**(info if isinstance(info, dict) else {}), key: new}}

    return _with_header(tree, draw, change)


def header_shape(tree: Tree, draw: Random) -> Tree:
    """A top-level value of another type, or missing."""

    def change(value: dict[str, Any], draw: Random) -> dict[str, Any]:
        key = draw.choice(sorted(set(value) - {"traceEvents"} | {"distributedInfo", "deviceProperties"}))
        return {**value, key: draw.choice(_SHAPES)}

    return _with_header(tree, draw, change)


def header_groups(tree: Tree, draw: Random) -> Tree:
    """Process groups of another shape: ranks beyond the world, a group of a billion, text for lists."""

    def change(value: dict[str, Any], draw: Random) -> dict[str, Any]:
        group: dict[str, Any] = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}
        group[draw.choice(sorted(group))] = draw.choice((*_NUMBERS, *_SHAPES, [0, 10**9], [-1, 2**64], "[0, 1]"))
        config = draw.choice(([group], [group] * 500, group, [group, None]))
        info = value.get("distributedInfo")
        return {**value, "distributedInfo": {**(info if isinstance(info, dict) else {}), "pg_config": config}}

    return _with_header(tree, draw, change)


def header_base_time(tree: Tree, draw: Random) -> Tree:
    """Another base of the clock: hosts centuries apart."""
    new = draw.choice(_BASES)
    return _with_header(tree, draw, lambda value, _: {**value, "baseTimeNanoseconds": new})


def header_device(tree: Tree, draw: Random) -> Tree:
    """Odd properties of the devices."""

    def change(value: dict[str, Any], draw: Random) -> dict[str, Any]:
        keys = ("id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "warpSize", "numSms")
        odd = [{draw.choice(keys): draw.choice((*_NUMBERS, *_SHAPES))} for _ in range(2)]
        return {**value, "deviceProperties": odd}

    return _with_header(tree, draw, change)


def header_last(tree: Tree, draw: Random) -> Tree:
    """The header after the events, as some writers have it: the same recording."""

    def change(value: dict[str, Any], draw: Random) -> dict[str, Any]:
        return {"traceEvents": value["traceEvents"], **value}

    return _with_header(tree, draw, change)


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
    """One file there twice by different names."""
    name = draw.choice(sorted(path for path in tree if path.startswith("run/")))
    return {**tree, f"run/copy/{name.removeprefix('run/')}": tree[name]}


_ALL = (header_rank, header_shape, header_groups, header_base_time, header_device, header_last, no_header)
_ALL += (rank_in_name, same_rank)
MUTATIONS: Mapping[str, Callable[[Tree, Random], Tree]] = {mutation.__name__: mutation for mutation in _ALL}
