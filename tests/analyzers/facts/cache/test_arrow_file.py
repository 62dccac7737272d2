"""Files of columns: what is written is read again, by numpy here and by pyarrow as any Arrow file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ddprof.analyzers.facts.cache.arrow_file import SEAL_DIGITS, TEXT, ArrowFile

COLUMNS = [
    ("told", TEXT), ("t.at_ns", "int64"), ("t.track", "int32"), ("t.kind", "uint8"), ("t.is_last", "bool"),
    ("t.share", "float64"), ("t.file", "str"),
]  # fmt: skip
LARGEST = np.iinfo(np.int64).max


def _values(rows: int) -> list[Any]:
    numbers = np.arange(rows)
    return [
        "naïve {}" * rows,
        LARGEST - numbers,
        -numbers.astype("int32"),
        numbers.astype("uint8"),
        numbers % 2 == 0,
        np.where(numbers % 3 == 0, np.nan, numbers / 3),
        [f"é{number}" * (number % 3) for number in range(rows)],
    ]


def _content(values: list[Any]) -> bytes:
    file = ArrowFile(COLUMNS)
    chunks = file.chunks(values)
    return b"".join([*chunks, file.tail(sum(map(len, chunks)), "5" * SEAL_DIGITS)])


def _same(mine: Any, theirs: Any) -> bool:
    return np.array_equal(mine, theirs, equal_nan=True) if isinstance(mine, np.ndarray) else mine == theirs


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 1000])
def test_what_is_written_is_read_again(rows: int) -> None:
    found = ArrowFile(COLUMNS).read(_content(_values(rows)))
    assert [name for (name, _), a, b in zip(COLUMNS, found, _values(rows), strict=True) if not _same(a, b)] == []
    assert [a.dtype for a in found[1:-1]] == [np.dtype(dtype) for _, dtype in COLUMNS[1:-1]]


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 1000])
def test_pyarrow_reads_it_as_a_valid_file_of_one_row(rows: int) -> None:
    values = _values(rows)
    reader = pa.ipc.open_file(pa.BufferReader(_content(values)))
    batch = reader.get_batch(0)
    batch.validate(full=True)
    assert (reader.num_record_batches, batch.num_rows) == (1, 1)
    assert batch.schema.names == [name for name, _ in COLUMNS]
    assert batch.column("told")[0].as_py() == values[0]
    assert batch.column("t.file")[0].as_py() == values[-1]
    for (name, _), mine in list(zip(COLUMNS, values, strict=True))[1:-1]:
        theirs = batch.column(name).values.to_numpy()
        assert _same(theirs, mine.astype(theirs.dtype)), name
        assert theirs.dtype == mine.dtype or name == "t.is_last"  # a byte each


def test_the_seal_stands_in_the_footer_where_every_tool_finds_it() -> None:
    reader = pa.ipc.open_file(pa.BufferReader(_content(_values(3))))
    assert reader.metadata == {b"seal": b"5" * SEAL_DIGITS}


def test_a_view_of_another_array_is_written_as_its_values() -> None:
    values = _values(20)
    strided = [v[::2] for v in values]
    again = ArrowFile(COLUMNS).read(_content(strided))
    assert all(_same(a, b) for a, b in zip(again, strided, strict=True))
