"""Whatever lies in a folder, the files that can be read are; all else costs itself alone, and is said."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from reading import file_names, rank_file, refusal

from ddprof.errors import NoUsableInput
from ddprof.readers import discover, read


def _socket(path: Path) -> None:
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    bound.close()


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("rank1.json", os.mkfifo, "a named pipe, not a regular file"),
        ("rank1.json", _socket, "a socket, not a regular file"),
        ("rank1.json", lambda path: path.symlink_to("/dev/zero"), "a device, not a regular file"),
        ("rank1.json", lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
        *((name, lambda path: path.symlink_to("gone"), "a link to nothing") for name in ("notes.txt", "latest")),
    ],
)
def test_what_is_no_file_is_left_out(tmp_path: Path, name: str, make: Callable[[Path], None], words: str) -> None:
    rank_file(tmp_path / "rank0.json", 0)
    make(tmp_path / name)
    inventory = discover([tmp_path])
    assert file_names(inventory) == ["rank0.json"]
    assert [f"{tmp_path / name}: {words}"] == [note.issue for note in inventory.health]
    if words != "a link to nothing":
        assert words.partition(",")[0] in refusal(tmp_path / name)


def test_what_vanishes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = discover([f"file://{rank_file(tmp_path / 'rank0.json', 0)}"]).sources
    assert source.path == f"{tmp_path}/rank0.json"  # a local URL is a path
    rank_file(tmp_path / "rank1.json", 1)
    look = os.stat

    def stat(path: str | Path, **how: object) -> os.stat_result:
        if str(path).endswith("rank1.json"):
            os.unlink(path)
        return look(path)

    monkeypatch.setattr(os, "stat", stat)
    assert [note.issue for note in discover([tmp_path]).health] == [f"{tmp_path}/rank1.json: vanished"]
    os.unlink(source.path)
    with pytest.raises(NoUsableInput, match="No such file or directory"):
        read(source)


@pytest.mark.parametrize("name", [b"caf\xe9.json", b"new\nline \x1b[31m.json"])
def test_any_name_of_a_file_works_and_can_be_written(tmp_path: Path, name: bytes) -> None:
    rank_file(Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))), 0)
    inventory = discover([tmp_path])
    trace = read(inventory.sources[0])
    for text in (trace.path, trace.identity.host or "", inventory.runs[0][0]):
        text.encode()
    assert all(note.issue.isprintable() for note in trace.health)
