"""Mutations of databases and pickles: sound containers whose values are not what a reader expects."""

import pickle
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.mutations.values import NAN, slots
from fuzzing.tree import Tree, files

_CELLS: tuple[Any, ...] = (None, -1, 0, 2**31, 2**62, 2**63 - 1, -(2**63), 0.5, 1e300, "x", "", b"\xff\xfe", "9" * 300)
_PICKLED = (*_CELLS, NAN, 2**64, 10**30, True, [], [[]], {}, {"a": {}}, (1, 2), {1, 2}, "\ud800", [None])
_CODE = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R."
_RING_FIELDS = (b"\0" * 8, b"\xff" * 8, struct.pack("<q", 2**62), struct.pack("<q", -(2**62)), struct.pack("<q", 7))


def _with_database(change: Callable[[sqlite3.Connection, Random], None], tree: Tree, draw: Random) -> Tree:
    found = [(name, content) for name, content in files(tree) if content.startswith(b"SQLite format 3")]
    if not found:
        return tree
    name, content = draw.choice(found)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "changed.sqlite"
        path.write_bytes(content)
        connection = sqlite3.connect(path)
        try:
            with connection:
                change(connection, draw)
        except (sqlite3.Error, UnicodeDecodeError, IndexError):  # another mutation was here before
            return tree
        finally:
            connection.close()
        return {**tree, name: path.read_bytes()}


def _tables(connection: sqlite3.Connection) -> list[str]:
    return sorted(name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _set_cell(connection: sqlite3.Connection, draw: Random) -> None:
    table = draw.choice(_tables(connection))
    column = draw.choice(_columns(connection, table))
    rows = [row for (row,) in connection.execute(f'SELECT rowid FROM "{table}"')]
    where = f"WHERE rowid = {draw.choice(rows)}" if rows and draw.random() < 0.7 else ""
    connection.execute(f'UPDATE "{table}" SET "{column}" = ? {where}', (draw.choice(_CELLS),))


def _reshape(connection: sqlite3.Connection, draw: Random) -> None:
    """A table or a column missing, renamed, empty or twice."""
    table = draw.choice(_tables(connection))
    how = draw.randrange(4)
    if how == 0:
        connection.execute(f'DROP TABLE "{table}"')
    elif how == 1:
        connection.execute(f'DELETE FROM "{table}"')
    elif how == 2:
        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{draw.choice(_columns(connection, table))}" TO other')
    else:
        connection.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')


def pickle_value(tree: Tree, draw: Random) -> Tree:
    found = [(name, content) for name, content in files(tree) if content.startswith(b"\x80\x04")]
    if not found:
        return tree
    name, content = draw.choice(found)
    try:
        value = pickle.loads(content)  # made by this harness
    except (pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError):  # another mutation was here before
        return tree
    by_key: dict[str, list[Any]] = {}
    for key, slot in slots(value):
        by_key.setdefault(key, []).append(slot)
    holder, key = draw.choice(by_key[draw.choice(sorted(by_key))])
    holder[key] = draw.choice(_PICKLED)
    return {**tree, name: pickle.dumps(value, protocol=draw.choice((0, 2, 4)))}


def pickle_code(tree: Tree, draw: Random) -> Tree:
    """A pickle that runs code, loops within itself, or is endless: it must be refused, and say so."""
    endless: list[Any] = []
    endless.append(endless)
    deep = b"\x80\x04" + b"]" * 50_000 + b"a" * 49_999 + b"."
    content = draw.choice((_CODE, pickle.dumps({"entries": endless}), deep, b"\x80\x04" + b"(" * 10**6))
    content = draw.choice((content, pickle.dumps([1]), b"\x80\x04X\xff\xff\xff\x7f", b"\x80\x04\x8e" + b"\xff" * 8))
    return {**tree, f"run/nccl_trace_rank_{draw.choice((0, 1, 9))}": content}


def ring_field(tree: Tree, draw: Random) -> Tree:
    """One field of a ring of steps replaced: a length, a count, a rank, a time."""
    found = [(name, content) for name, content in files(tree) if name.endswith(".ring")]
    if not found:
        return tree
    name, content = draw.choice(found)
    at = draw.choice((8, 64, 72, 4096, 4096 + 8 * draw.randrange(320)))
    if draw.random() < 0.3:
        return {**tree, name: content.replace(b'"rank": ', draw.choice((b'"rank":"', b'"rung": ', b'"rank":-')), 1)}
    return {**tree, name: content[:at] + draw.choice(_RING_FIELDS) + content[at + 8 :]}


_CHANGES = {"cell": _set_cell, "shape": _reshape}
DATABASES: Mapping[str, Callable[[Tree, Random], Tree]] = {
    f"database_{name}": partial(_with_database, change) for name, change in _CHANGES.items()
}
PICKLES: Mapping[str, Callable[[Tree, Random], Tree]] = {m.__name__: m for m in (pickle_value, pickle_code)}
RINGS: Mapping[str, Callable[[Tree, Random], Tree]] = {ring_field.__name__: ring_field}
