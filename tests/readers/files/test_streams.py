"""Bytes of a file, however it is packed, encoded or cut."""

import bz2
import gzip
import lzma
from pathlib import Path
from random import Random
from typing import Any

import kineto_text as kt
import numpy as np
import pyarrow as pa
import pytest
from reading import broken, healthy, issues

from ddprof.model import RankTrace
from ddprof.readers import Source, read
from ddprof.readers.files import unpacking
from ddprof.readers.files.streams import open_blocks

pytestmark = pytest.mark.usefixtures("decoding")


def _unpacked(path: Path, content: bytes | None = None) -> tuple[bytes, str | None]:
    """Text and damage of a file, which first gets this content."""
    if content is not None:
        path.write_bytes(content)
    with open_blocks(str(path)) as blocks:
        return b"".join(blocks), blocks.damage


@pytest.mark.parametrize("name", ["bom_utf8.json.gz", "latin1_byte_in_name.json.gz"])
def test_encodings_do_not_matter(shared_dir: Path, name: str) -> None:
    trace, sound = broken(shared_dir, name), healthy(shared_dir, 0)
    for column in ("ts_ns", "dur_ns", "correlation", "kind"):
        np.testing.assert_array_equal(trace.events[column], sound.events[column])
    assert ("not UTF-8" in issues(trace)) == name.startswith("latin1")
    plain = broken(shared_dir, "not_gzip_despite_suffix.json.gz")
    np.testing.assert_array_equal(plain.events["ts_ns"], healthy(shared_dir, 3).events["ts_ns"])
    assert (plain.identity.rank, plain.health) == (3, ())


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("text", ['{"traceEvents": []}', "\r\n [1]"])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, text: str, mark: str) -> None:
    assert _unpacked(tmp_path / "t.json", (mark + text).encode())[0].decode() == text


@pytest.mark.parametrize("name", ["truncated_gzip_stream.json.gz", "truncated_mid_event.json.gz"])
def test_truncation_keeps_what_came_before(shared_dir: Path, name: str) -> None:
    trace = broken(shared_dir, name)
    sound = healthy(shared_dir, trace.identity.rank or 0)
    assert 0.3 * len(sound.events) < len(trace.events) < len(sound.events)
    assert np.isin(trace.events["ts_ns"], sound.events["ts_ns"]).all()
    assert "error:" in issues(trace) and "ends inside the event list after byte" in issues(trace)
    assert ("compressed data ends early" in issues(trace)) == ("gzip" in name)


def test_garbage_after_and_inside_gzip(tmp_path: Path) -> None:
    def read_bytes(content: bytes) -> RankTrace:
        (tmp_path / "t.gz").write_bytes(content)
        return read(Source(str(tmp_path / "t.gz"), "kineto"))

    text = kt.render([kt.span("op", i * 1000, 1000) for i in range(5000)])
    packed, half = gzip.compress(text), len(text) // 2
    after = read_bytes(packed + b"trailing")
    assert len(after.events) == 5000 and "ignored" in issues(after)
    middle = bytearray(packed)
    middle[len(packed) // 2 : len(packed) // 2 + 40] = b"\0" * 40
    inside = read_bytes(bytes(middle))
    assert 0 < len(inside.events) <= 5000 and "error:" in issues(inside)
    assert len(read_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:])).events) == 5000


@pytest.mark.parametrize("pack", [gzip, bz2, lzma, pa.Codec("zstd")], ids=["gzip", "bz2", "lzma", "zstd"])
def test_parts_that_meet_at_a_read_are_all_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Any) -> None:
    first, *others = (pack.compress(text) for text in (b"first", b" second", b" third"))
    monkeypatch.setattr(unpacking, "_RAW_BYTES", len(first) + 1)
    assert _unpacked(tmp_path / "t", b"".join((first, *others))) == (b"first second third", None)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kib", [10, 700])
def test_a_wrong_checksum_at_the_end_costs_nothing_but_a_note(tmp_path: Path, parts: int, kib: int) -> None:
    texts = [Random(part).randbytes(kib << 10) for part in range(parts)]
    packed = bytearray(b"".join(map(gzip.compress, texts)))
    packed[-6] ^= 1
    content, damage = _unpacked(tmp_path / "t.gz", packed)
    assert len(b"".join(texts)) - len(content) <= 256 and b"".join(texts).startswith(content)
    assert damage is not None and "damaged" in damage


def test_a_flipped_bit_costs_only_what_comes_after_it(tmp_path: Path) -> None:
    text = b"".join(b"%d %d " % (n, n * n) for n in range(30_000))
    packed = gzip.compress(text)
    for place in (0.2, 0.5, 0.9):
        broken = bytearray(packed)
        broken[int(len(packed) * place)] ^= 16
        content, damage = _unpacked(tmp_path / "t.gz", broken)
        same = next((at for at, (x, y) in enumerate(zip(content, text, strict=False)) if x != y), len(content))
        assert damage is not None and same > (place - 0.1) * len(text)


def test_a_hole_larger_than_any_disk_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "t.json").open("wb") as file:
        file.write(b'{"traceEvents": [')
        file.truncate(1 << 40)
    content, damage = _unpacked(tmp_path / "t.json")
    assert len(content) < 32 << 20 and damage == "16 MiB of zeros instead of text; the rest is not read"
