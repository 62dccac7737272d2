"""Mutations of what a trace says of itself, and of what its file name says: rank, world size, groups, clock base."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from fuzzing.mutations.values import NAN, documents, put
from fuzzing.tree import Tree

Header = dict[str, Any]
_NUMBERS: tuple[Any, ...] = (-1, 0, 1, 3, 63, 4_097, 10**6, 10**9, 2**31, 2**63, 2**64, 10**30)
_NUMBERS += (1.5, NAN, None, "1", "x")
_SHAPES: tuple[Any, ...] = (None, [], {}, "x", 7, True, [[]], [None], {"a": 1})
_BASES = (0, 1, -1, 2**62, 2**63, 10**30, 1.5e18, "1760000000000000000", None, [])
_NAMES = ("rank{}.json", "rank{}.pt.trace.json", "worker{}_step_1.json", "trace{}.json", "gpu_{}.json")
_RANKS_IN_NAMES = (0, 1, 7, 4_096, 10**6, 10**9, 2**31, 2**64, 10**40)


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


MUTATIONS: Mapping[str, Callable[[Tree, Random], Tree]] = {
    "header_rank": _changing(lambda v, d: _distributed(v, d.choice(("rank", "world_size")), d.choice(_NUMBERS))),
    "header_shape": _changing(_shape),
    "header_groups": _changing(_groups),
    "header_base_time": _changing(lambda value, draw: {"baseTimeNanoseconds": draw.choice(_BASES)}),
    "header_device": _changing(_device),
    **{mutation.__name__: mutation for mutation in (header_last, no_header, rank_in_name, same_rank)},
}
