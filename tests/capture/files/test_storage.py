"""Files are written whole or not at all."""

import gzip
import os
from pathlib import Path
from threading import get_ident

import pytest
from hubs import on_another_thread

from ddprof.capture.files.storage import MAX_JSON_BYTES, compress, names_in, open_to_append, read_object, write_json


def test_a_failed_write_leaves_nothing_and_compression_no_plain_file(tmp_path: Path) -> None:
    target = tmp_path / "folder-in-the-way"
    target.mkdir()
    with pytest.raises(OSError):
        write_json(target, {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["folder-in-the-way"]
    plain = tmp_path / "t.json"
    plain.write_text('{"a": 1}')
    packed = compress(plain)
    assert not plain.exists() and gzip.decompress(packed.read_bytes()) == b'{"a": 1}'


@pytest.mark.parametrize("kind", ["fifo", "link", "loop", "folder", "device", "gone"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, target in (("link", "nowhere"), ("loop", "loop"), ("device", "/dev/zero")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "folder").mkdir()
    with pytest.raises((OSError, ValueError)):
        read_object(tmp_path / kind)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"7", b'{"a":', b"\xff\xfe{}", b"{}" + b"\0" * 9, b'{"a":' * 200_000, b"[" * 200_000],
)
def test_what_is_no_object_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"^a\.json"):
        read_object(tmp_path / "a.json")


def test_numbers_that_json_has_not_are_missing_and_large_files_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": NaN, "b": [-Infinity, 1]}')
    assert read_object(tmp_path / "a.json") == {"a": None, "b": [None, 1]}
    with (tmp_path / "a.json").open("wb") as stream:
        stream.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(OSError, match=r"larger than 64 MiB.*a\.json"):
        read_object(tmp_path / "a.json")


def test_links_in_place_of_our_files_are_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    temporary = (f"a.json.{os.getpid()}.{get_ident()}.tmp", f"t.json.gz.{os.getpid()}.tmp")
    for name in ("a.json", "t.json.gz", "lines", *temporary):
        (tmp_path / name).symlink_to(mine)
    write_json(tmp_path / "a.json", {"a": 1})
    (tmp_path / "t.json").write_text("{}")
    compress(tmp_path / "t.json")
    with pytest.raises(OSError):
        open_to_append(tmp_path / "lines")
    assert mine.read_text() == "precious" and read_object(tmp_path / "a.json") == {"a": 1}
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == b"{}"


def test_two_threads_can_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other begins and ends as the first is about to rename what it wrote."""
    path, rename = tmp_path / "a.json", os.replace

    def interrupted(*names: Path) -> None:
        monkeypatch.setattr(os, "replace", rename)
        on_another_thread(write_json, path, {"a": 1})
        rename(*names)

    monkeypatch.setattr(os, "replace", interrupted)
    write_json(path, {"a": 2})
    assert read_object(path) == {"a": 2} and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_gone_has_no_names(tmp_path: Path) -> None:
    (tmp_path / "b.ring").touch()
    (tmp_path / "a.ring").touch()
    assert [path.name for path in names_in(tmp_path, ".ring")] == ["a.ring", "b.ring"]
    assert names_in(tmp_path / "gone", ".ring") == names_in(tmp_path / "a.ring", ".ring") == []
