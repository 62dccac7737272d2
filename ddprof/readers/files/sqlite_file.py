"""SQLite files, packed or inside an archive, opened read-only; queries straight to int64 columns."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.readers.files.streams import open_blocks, open_raw
from ddprof.readers.source import Source
from ddprof.tables import NULL, Array
from ddprof.untrusted.plain_text import clean

if TYPE_CHECKING:
    import sqlite3

MAGIC = b"SQLite format 3\0"
REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"  # of Nsight Systems: a closed format, which an installed `nsys` converts
_LONGEST_EXPORT_S = 600  # a report of some GB takes minutes


@contextmanager
def open_database(source: Source) -> Iterator[Database]:
    """The database of a source. Raises NoUsableInput, in one line, where it is damaged or not a database."""
    import sqlite3  # few traces are databases

    path = _plain_path(source.path, source.member, source.state)
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield Database(connection)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        raise NoUsableInput(f"{source.label}: damaged or unsupported database ({error})") from error


@lru_cache(maxsize=4)
def _plain_path(path: str, member: str | None, state: tuple[int, str]) -> str:
    """The path itself, or an unpacked copy that lives as long as this process (one per file, for all its parts); for a
    report of Nsight Systems the database that `nsys` makes of it.
    """
    if member is None and "://" not in path:
        with open_raw(path) as file:
            if file.read(len(MAGIC)) == MAGIC:
                return path
    folder = tempfile.mkdtemp(prefix="ddprof-")
    # A worker of a pool leaves without `atexit`; what multiprocessing finalizes is run in every process.
    Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=0)
    copy = Path(folder) / "database.sqlite"
    with open_blocks(path, member) as blocks, copy.open("wb") as sink:
        is_report = False
        for block in blocks:
            is_report = is_report or (not sink.tell() and block.startswith(REPORT_MAGIC))
            sink.write(block)
    if is_report:
        database = Path(folder) / "exported.sqlite"
        _export(str(copy), path, database)
        copy.unlink()
        return str(database)
    return str(copy)


def _export(report: str, label: str, into: Path) -> None:
    """Convert a report to the database `into`. Raises NoUsableInput, in one line, where `nsys` cannot."""
    program = shutil.which("nsys")
    if program is None:
        raise NoUsableInput(f"{label}: nsys is no longer on PATH")
    # An absolute path is never taken for an option.
    options = ["--type", "sqlite", "--force-overwrite", "true", "--output", str(into), os.path.abspath(report)]
    try:
        done = subprocess.run(
            [program, "export", *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LONGEST_EXPORT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoUsableInput(f"{label}: nsys export: {clean(str(error))}") from error
    if done.returncode or not into.is_file():
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        reason = clean(lines[-1])[:200] if lines else f"exit code {done.returncode}"
        raise NoUsableInput(f"{label}: nsys cannot export it ({reason})")


class Database:
    """Queries whose results are columns; absent tables and columns read as empty and NULL."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self.tables = frozenset(name for (name,) in rows)

    def columns(self, table: str) -> frozenset[str]:
        """The column names of a table; none where it is absent."""
        return frozenset(row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")'))

    def count(self, table: str) -> int:
        """Rows of a table; 0 where it is absent."""
        if table not in self.tables:
            return 0
        return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])

    def integers(self, table: str, names: tuple[str, ...], where: str = "", values: tuple[Any, ...] = ()) -> Array:
        """Integer columns of a table, shape (len(names), rows).

        NULL for nulls and for columns that this schema lacks.
        """
        if table not in self.tables:
            return np.empty((len(names), 0), np.int64)
        present = self.columns(table)
        wanted = ", ".join(f'ifnull("{n}", {NULL + 1})' if n in present else str(NULL + 1) for n in names)
        cursor = self._connection.execute(f'SELECT {wanted} FROM "{table}" {where}', values)
        blocks = []
        while rows := cursor.fetchmany(65536):
            blocks.append(np.array([[(v if type(v) is int else NULL + 1) for v in row] for row in rows], np.int64))
        result = np.concatenate(blocks).T if blocks else np.empty((len(names), 0), np.int64)
        return np.where(result == NULL + 1, NULL, result)

    def texts(self, table: str, key: str, value: str) -> dict[int, str]:
        """The texts of a table of strings by their number; {} where it is absent."""
        if table not in self.tables:
            return {}
        rows = self.rows(f'SELECT "{key}", "{value}" FROM "{table}"')
        return {k: v if isinstance(v, str) else "" for k, v in rows if isinstance(k, int)}

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of any query, for small tables."""
        return self._connection.execute(query, values).fetchall()
