"""Archives are folders, read in one pass, and damaged ones are one line; unpacked copies of databases are removed."""

import bz2
import gzip
import io
import multiprocessing
import sqlite3
import tarfile
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path
from random import Random

import kineto_text as kt
import pyarrow as pa
import pytest
from reading import EVENTS, issues, rank_file, ranks_of, read_all, refusal

from ddprof.errors import NoUsableInput
from ddprof.readers import discover
from ddprof.readers.files import archives, unpacking
from ddprof.readers.files.sqlite_file import _plain_path
from ddprof.readers.files.streams import open_blocks, read_small


def _tar(path: Path, contents: dict[str, bytes], kind: str = "") -> Path:
    with tarfile.open(path, f"w:{kind}") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def _zip(path: Path, contents: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


def _archive(path: Path, contents: dict[str, bytes], kind: str) -> Path:
    return _zip(path, contents) if kind == "zip" else _tar(path, contents, kind[4:])


TRACE = kt.render(EVENTS)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_damaged_archives_are_one_line(tmp_path: Path, kind: str) -> None:
    random, path = Random(kind), tmp_path / "archive"
    sound = _archive(path, {"rank0.json": random.randbytes(4000)}, kind).read_bytes()
    for _ in range(60):
        broken = bytearray(sound)
        for _ in range(random.choice((1, 20))):
            broken[-random.randrange(1, random.choice((100, len(broken))))] = random.randrange(256)
        path.write_bytes(broken[: random.randrange(len(broken) // 2, len(broken) + 1)])
        refusal(path)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_archives_are_folders_with_members_in_any_order(tmp_path: Path, kind: str) -> None:
    ranks = {f"run/rank{r}.json": rank_file(tmp_path / "in" / f"rank{r}.json", r).read_bytes() for r in range(2)}
    inventory = discover([_archive(tmp_path / f"run.{kind}", ranks, kind)])
    assert [t.identity.rank for t in read_all(inventory)] == [0, 1] and [size for _, size in ranks_of(inventory)] == [2]
    assert inventory.sources[0].label.endswith("!run/rank0.json")
    path = str(_archive(tmp_path / "a", {name: name.encode() for name in "abc"}, kind))
    assert [read_small(path, name) for name in "cabbca"] == [name.encode() for name in "cabbca"]


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_a_look_and_the_traces_read_each_byte_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _archive(tmp_path / "a", {f"rank{r:04}.json": TRACE for r in range(100)}, kind)
    opened: list[str] = []
    make = archives._opened
    monkeypatch.setattr(archives, "_opened", lambda path: opened.append(path) or make(path))
    assert len(read_all(discover([path]))) == 100 and len(opened) <= 2


def test_what_lies_before_the_damage_of_an_archive_is_read(tmp_path: Path) -> None:
    filler = Random(0).randbytes(300_000)
    path = _tar(tmp_path / "a.tar.gz", {"rank0.json": TRACE, "filler": filler, "rank1.json": TRACE}, "gz")
    path.write_bytes(path.read_bytes()[:200_000])
    inventory = discover([path])
    assert [s.member for s in inventory.sources] == ["rank0.json"]
    assert "damaged archive (the compressed data ends early)" in issues(inventory)
    # A header that is damaged is not the end of the archive.
    path = _tar(tmp_path / "a.tar", {"rank0.json": TRACE, "rank1.json": TRACE})
    content = bytearray(path.read_bytes())
    content[content.index(b"rank1")] ^= 1
    path.write_bytes(content)
    assert "damaged archive (bad checksum)" in issues(discover([path]))


def test_archives_in_archives_and_too_many_members_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = _zip(tmp_path / "inner", {"rank1.json": TRACE}).read_bytes()
    packed = gzip.compress(_tar(tmp_path / "inner.tar", {"rank2.json": TRACE}).read_bytes())
    inventory = discover([_zip(tmp_path / "outer", {"rank0.json": TRACE, "in.zip": inner, "in.tgz": packed})])
    assert [s.member for s in inventory.sources] == ["rank0.json"]
    told = sorted(note.issue.partition("!")[2] for note in inventory.health)
    assert told == [f"in.{kind}: an archive inside an archive" for kind in ("tgz", "zip")]
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    inventory = discover([_tar(tmp_path / "a.tar", {f"rank{r}.json": TRACE for r in range(4)})])
    assert len(inventory.sources) == 2 and "more than 2 files in one archive" in issues(inventory)


def test_a_bomb_is_unpacked_no_further_than_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", 1 << 20)
    zeros = b"{" + bytes(20 << 20)
    bombs = {"bz2": bz2.compress(zeros), "zst": pa.compress(zeros, codec="zstd", asbytes=True)}
    for name, content in {**bombs, "events": gzip.compress(b"[{}" + b",{}" * (1 << 16))}.items():
        (tmp_path / name).write_bytes(content)
        with unpacking.among(4), open_blocks(str(tmp_path / name)) as blocks:
            assert sum(map(len, blocks)) < 1 << 20
            assert blocks.damage == "it unpacks to over 250 times its size; the rest is not read"
    _zip(tmp_path / "bomb.zip", {"rank0.json": TRACE, "rank1.json": zeros})
    _tar(tmp_path / "bomb.tar.bz2", {"rank0.json": TRACE, "rank1.json": zeros}, "bz2")
    inventory = discover([tmp_path])
    assert [s.member for s in inventory.sources] == ["rank0.json", "rank0.json"]
    assert issues(inventory).count("unpacks to over 250 times its size") >= 2


def test_members_of_an_archive_have_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", 4 << 20)
    spaces = b"[" + b" " * (3 << 20)
    contents = {f"rank{number}.json": spaces if number else TRACE for number in range(12)}
    path, sizes = _zip(tmp_path / "many.zip", contents), []
    for name in contents:
        with open_blocks(str(path), name) as blocks:
            sizes.append([len(block) for block in blocks])
    seen, most_bytes = [sum(its) for its in sizes], max(4 << 20, unpacking.MAX_RATIO * path.stat().st_size)
    assert seen[0] == len(TRACE) and seen[1] == len(spaces)
    assert sum(seen) <= most_bytes + 12 * unpacking.MOST_BLOCK_BYTES < 12 * len(spaces)
    assert max(size for its in sizes for size in its) <= unpacking.MOST_BLOCK_BYTES
    assert blocks.damage == "its files unpack to over 250 times its size; the rest is not read"


def test_members_of_rare_packings_are_named(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match="only stored and deflated members are read"):
        discover([_zip(tmp_path / "rare.zip", {"rank0.json": TRACE}, zipfile.ZIP_LZMA)])


def test_a_member_with_a_wrong_checksum_is_read_and_a_damaged_one_costs_no_other(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", {"rank0.json": TRACE, "rank1.json": TRACE})
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 16  # the checksum of the last member in the directory
    content[at] ^= 1
    path.write_bytes(content)
    first, second = read_all(discover([path]))
    assert len(first.events) == len(second.events) == len(EVENTS)
    assert first.health != second.health and "its checksum is not that of its content" in issues(second)
    path = _zip(tmp_path / "a.zip", {f"rank{rank}.json": TRACE for rank in range(3)})
    content = bytearray(path.read_bytes())
    at = content.index(b"rank1.json") + 30
    content[at : at + 40] = bytes(40)
    path.write_bytes(content)
    inventory = discover([path])
    assert {s.member for s in inventory.sources} >= {"rank0.json", "rank2.json"}
    assert "rank1.json" in " ".join(map(issues, [inventory, *read_all(inventory)]))


def unpacked(packed: str, folder: str) -> None:
    tempfile.tempdir = folder
    assert Path(_plain_path(packed, None, (0, ""))).parent.parent == Path(folder)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_leave_no_copy_behind(tmp_path: Path, method: str) -> None:
    plain, packed, copies = (tmp_path / name for name in ("plain.sqlite", "t.sqlite.gz", "copies"))
    with closing(sqlite3.connect(plain)) as connection:
        connection.execute("CREATE TABLE t (a)")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    copies.mkdir()
    worker = multiprocessing.get_context(method).Process(target=unpacked, args=(str(packed), str(copies)))
    worker.start()
    worker.join(300)
    assert worker.exitcode == 0 and list(copies.iterdir()) == []
