"""Pickles of plain values (dicts, lists, numbers, text) from untrusted files: nothing in them may run code.

Nor may they fill memory: an instruction of one byte makes a list, one of five an index of any size, and a value that is
referred to twice in a value that is referred to twice is a tree of any size. So instructions are counted before they
are followed, and what comes out is copied as the tree that it stands for, up to a bound.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from itertools import repeat
from typing import Any, NoReturn

# Of 20,000 collectives with their stacks, ten times NCCL's default: 180 instructions each, and 100 values.
MAX_INSTRUCTIONS = 4_000_000
MAX_VALUES = 4_000_000
MAX_DEPTH = 32  # a dump nests six deep


class UnsafePickle(Exception):
    """The pickle needs a class or function, which plain data never does."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafePickle(f"the pickle needs {module}.{name}: refused")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnsafePickle("the pickle needs an external object: refused")


def load_plain(content: bytes) -> Any:
    """The value of a pickle made of plain values only. Raises UnsafePickle, or ValueError where it is damaged."""
    return _guarded(lambda: _counted(content))


def plain_value(content: bytes) -> Any:
    """Content of a pickle whose size the caller has checked; shared objects stay shared."""
    return _guarded(lambda: _PlainUnpickler(io.BytesIO(content)).load())


def _counted(content: bytes) -> Any:
    _count_instructions(content)
    return _as_tree(_PlainUnpickler(io.BytesIO(content)).load(), MAX_DEPTH, repeat(None, MAX_VALUES))


def _guarded(load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (UnsafePickle, _TooLarge):
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        raise ValueError(f"damaged pickle ({type(error).__name__})") from error


class _TooLarge(ValueError):
    pass


def _count_instructions(content: bytes) -> None:
    for count, (instruction, argument, _) in enumerate(pickletools.genops(content), 1):
        if count > MAX_INSTRUCTIONS:
            raise _TooLarge(f"a pickle of more than {MAX_INSTRUCTIONS} values")
        if instruction.name.endswith("PUT") and isinstance(argument, int) and argument > count:
            raise _TooLarge("a pickle that refers to more values than it holds")


def _as_tree(value: Any, depth: int, left: repeat[None]) -> Any:
    """A copy without shared parts and without values that are not plain."""
    if next(left, False) is False:
        raise _TooLarge(f"a pickle of more than {MAX_VALUES} values")
    if isinstance(value, str | int | float | None):
        return value
    if not depth:
        raise _TooLarge(f"a pickle of values nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return {key: _as_tree(item, depth - 1, left) for key, item in value.items() if isinstance(key, str)}
    if isinstance(value, list | tuple):
        return [_as_tree(item, depth - 1, left) for item in value]
    return None
