"""Pickles of plain values (dicts, lists, numbers, text) from files others wrote: nothing in them may run code."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn


class UnsafePickle(Exception):
    """The pickle asks for a class or function, which plain data never does."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafePickle(f"the pickle asks for {module}.{name}: refused")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnsafePickle("the pickle asks for an outside object: refused")


def load_plain(content: bytes) -> Any:
    """The value of a pickle made of plain values only. Raises UnsafePickle, or ValueError where it is damaged."""
    try:
        return _PlainUnpickler(io.BytesIO(content)).load()
    except UnsafePickle:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        raise ValueError(f"damaged pickle ({type(error).__name__})") from error
