"""The folder that keeps facts: whole entries of believed users, never more than its bound, nothing else touched."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddprof.analyzers.facts.cache.place import LONGEST_WRITE_S, Folder, users_folder

ME = {os.getuid()}
KEYS = [f"{number:020x}" for number in range(8)]
OTHERS = ["thesis.facts", f"{KEYS[0]}.parquet", f"{KEYS[0]}.facts.bak"]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "facts"), 400)


def _entries(folder: Folder) -> list[str]:
    return sorted(os.listdir(folder.path))


def test_what_was_kept_by_a_believed_user_is_found_under_its_key_alone(folder: Folder) -> None:
    folder.save(KEYS[0], [b"a", memoryview(b"bc")])
    assert folder.load(KEYS[0], ME) == b"abc" and folder.load(KEYS[1], ME) is None
    assert folder.load(KEYS[0], {os.getuid() + 1}) is None and _entries(folder) == [f"{KEYS[0]}.facts"]


def test_a_pipe_or_a_folder_in_its_place_is_neither_read_nor_waited_for(folder: Folder) -> None:
    os.makedirs(os.path.join(folder.path, f"{KEYS[0]}.facts"))
    os.mkfifo(os.path.join(folder.path, f"{KEYS[1]}.facts"))
    assert [folder.load(key, ME) for key in KEYS[:2]] == [None, None]


def test_a_write_that_fails_leaves_what_was_there(folder: Folder) -> None:
    def breaking() -> Iterator[bytes]:
        yield b"new"
        raise OSError("no space left")

    folder.save(KEYS[0], [b"old"])
    with pytest.raises(OSError, match="no space left"):
        folder.save(KEYS[0], breaking())
    assert folder.load(KEYS[0], ME) == b"old" and _entries(folder) == [f"{KEYS[0]}.facts"]


def test_who_reads_while_others_write_finds_one_whole_content(folder: Folder) -> None:
    contents = [bytes([letter]) * 100_000 for letter in b"abcd"]
    folder.save(KEYS[0], [contents[0]])
    with ThreadPoolExecutor(len(contents)) as pool:
        writes = [pool.submit(folder.save, KEYS[0], [content]) for content in contents * 20]
        read = {folder.load(KEYS[0], ME) for _ in range(200)}
    assert [write.exception() for write in writes if write.exception()] == []
    assert read <= set(contents) and _entries(folder) == [f"{KEYS[0]}.facts"]


def test_the_oldest_go_first_and_no_more_than_must(folder: Folder) -> None:
    for age_s, key in enumerate(reversed(KEYS)):
        folder.save(key, [b"x" * 100])
        os.utime(os.path.join(folder.path, f"{key}.facts"), (time.time() - 100 * (len(KEYS) - age_s),) * 2)
    assert folder.load(KEYS[-1], ME) is not None  # the oldest by writing, now used
    folder.prune()
    assert _entries(folder) == sorted(f"{key}.facts" for key in (*KEYS[:3], KEYS[-1]))


def test_files_of_other_names_are_nobodys_to_remove_and_no_folder_is_made(folder: Folder) -> None:
    folder.prune()
    assert not os.path.exists(folder.path)
    os.makedirs(folder.path)
    for name in OTHERS:
        Path(folder.path, name).write_bytes(b"x" * 1000)
    folder.prune()
    assert _entries(folder) == sorted(OTHERS)


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_is_not(folder: Folder) -> None:
    os.makedirs(folder.path)
    left, written = (Path(folder.path, f".{KEYS[0]}.{16 * digit}.part") for digit in "01")
    for part in (left, written):
        part.write_bytes(b"x")
    os.utime(left, (time.time() - LONGEST_WRITE_S - 1,) * 2)
    folder.prune()
    assert _entries(folder) == [written.name]


def test_the_users_folder_is_private_below_the_stated_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert users_folder() == Folder(str(tmp_path / "ddprof" / "facts"))
    assert (tmp_path / "ddprof" / "facts").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")  # the specification has a relative one ignored; the home has one
    monkeypatch.setenv("HOME", str(tmp_path))
    assert users_folder() == Folder(str(tmp_path / ".cache" / "ddprof" / "facts"))


def test_a_folder_of_another_user_or_a_file_there_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "theirs"))
    assert users_folder() is not None
    if os.getuid() == 0:
        os.chown(tmp_path / "theirs" / "ddprof", 4711, -1)
    else:
        me = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert users_folder() is None
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ddprof").write_text("")
    assert users_folder() is None
