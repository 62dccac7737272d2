"""The smallest input that still fails in the same way: files left out, then events and values, then pieces of text."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fuzzing.mutations.values import documents, put
from fuzzing.tree import Tree, unpacked, with_file, without

T = TypeVar("T")
Fails = Callable[[Tree], bool]


def minimised(tree: Tree, fails: Fails, seconds: float) -> Tree:
    """A smaller tree for which `fails` holds too; the best that was found in the time."""
    until = time.monotonic() + seconds

    def holds(candidate: Tree) -> bool:
        return time.monotonic() < until and fails(candidate)

    for name in sorted(tree, key=lambda path: path.startswith("run/")):
        if holds(without(tree, name)):
            tree = without(tree, name)
    for name, entry in tree.items():
        if isinstance(entry, bytes) and unpacked(entry) is not entry and holds(with_file(tree, name, unpacked(entry))):
            tree = with_file(tree, name, unpacked(entry))
    for name, value in documents(tree):
        tree = _smaller_document(tree, name, value, holds)
    parsed = {name for name, _ in documents(tree)}
    for name in [name for name, entry in tree.items() if isinstance(entry, bytes) and name not in parsed]:
        tree = _smaller_text(tree, name, holds)
    return tree


def _smaller_document(tree: Tree, name: str, value: Any, holds: Fails) -> Tree:
    """Events, lines and top-level keys left out."""
    if isinstance(value, dict):
        for key in list(value):
            smaller = {k: v for k, v in value.items() if k != key}
            if holds(put(tree, name, smaller)):
                value = smaller
        for key, held in list(value.items()):
            if isinstance(held, list) and len(held) > 1:
                value |= {key: fewer(held, lambda items, v=value, k=key: holds(put(tree, name, {**v, k: items})))}
    elif isinstance(value, list):
        value = type(value)(fewer(value, lambda items: holds(put(tree, name, type(value)(items)))))
    smallest = put(tree, name, value)
    return smallest if holds(smallest) else tree


def _smaller_text(tree: Tree, name: str, holds: Fails) -> Tree:
    """Pieces of the text left out, at most some hundred."""
    entry = tree[name]
    assert isinstance(entry, bytes)
    size = max(1, len(entry) // 256)
    pieces = [entry[at : at + size] for at in range(0, len(entry), size)]
    kept = fewer(pieces, lambda items: holds(with_file(tree, name, b"".join(items))))
    return with_file(tree, name, b"".join(kept))


def fewer(items: Sequence[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """Delta debugging: a sublist for which it holds, of which no tried part can be left out."""
    left, parts = list(items), 2
    while len(left) > 1 and parts <= 2 * len(left):
        size = -(-len(left) // min(parts, len(left)))
        for at in range(0, len(left), size):
            smaller = left[:at] + left[at + size :]
            if smaller and holds(smaller):
                left, parts = smaller, max(2, parts - 1)
                break
        else:
            if size == 1:
                return left
            parts *= 2
    return left
