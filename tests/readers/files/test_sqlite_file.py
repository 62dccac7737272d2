"""Databases that are read from an unpacked copy."""

import gzip
import multiprocessing
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from ddprof.readers.files.sqlite_file import _plain_path


def unpacked(packed: str, folder: str) -> None:
    tempfile.tempdir = folder
    assert Path(_plain_path(packed, None, (0, ""))).parent.parent == Path(folder)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_leave_no_copy_behind(tmp_path: Path, method: str) -> None:
    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as connection:
        connection.execute("CREATE TABLE t (a)")
    packed = tmp_path / "t.sqlite.gz"
    packed.write_bytes(gzip.compress((tmp_path / "plain.sqlite").read_bytes()))
    copies = tmp_path / "copies"
    copies.mkdir()
    worker = multiprocessing.get_context(method).Process(target=unpacked, args=(str(packed), str(copies)))
    worker.start()
    worker.join(300)
    assert worker.exitcode == 0 and list(copies.iterdir()) == []
