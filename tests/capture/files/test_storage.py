"""Files are written whole or not at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ddprof.capture.files.storage import compress, write_json


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "folder-in-the-way"
    target.mkdir()
    with pytest.raises(OSError):
        write_json(target, {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["folder-in-the-way"]


def test_compress_replaces_the_plain_file(tmp_path: Path) -> None:
    plain = tmp_path / "t.json"
    plain.write_text('{"a": 1}')
    packed = compress(plain)
    assert not plain.exists()
    assert gzip.decompress(packed.read_bytes()) == b'{"a": 1}'
