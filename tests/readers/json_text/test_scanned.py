"""The native scanner against msgspec: whatever the text, the same columns, or the block is left to msgspec."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import kineto_text as kt
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.json_text.scanned import Block, Decoder, is_native
from ddprof.readers.numbers import InexactFloats

pytestmark = pytest.mark.skipif(
    not is_native(), reason="the native scanner was not built (no C compiler or no Python.h): msgspec reads everything"
)
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
PLAIN = st.sampled_from(["aten::mm", "nccl:all_reduce", "gloo:all_reduce", "c10d::send", "[memory]", "Python GC"])
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
NUMBER = st.integers(-3, 2**40) | st.sampled_from([0, 2**62, 2**70, -1]) | FLOAT
USED = ("cpu_op", "kernel", "gpu_memcpy", "cuda_runtime", "cuda_sync", "user_annotation", "python_function", "ac2g")
ANY = st.none() | st.booleans() | NUMBER | TEXT | st.lists(st.integers(0, 9), max_size=3)
TIME = st.integers(0, 2**60).map(kt.us) | st.integers(0, 10**12) | st.sampled_from(["12.5", -4, 1e300, None, 1.23456])
ID, SIZE = st.integers(0, 2**33), st.integers(0, 2**30) | st.just("128")
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "External id": ID | ANY, "external id": ID, "correlation": ID | ANY, "Seq": st.integers(0, 3) | ANY,
        "device": st.integers(0, 7), "stream": st.integers(0, 40) | st.just("7"), "bytes": SIZE, "In msg nelems": SIZE,
        "Input Dims": st.just([[4, 8], [8, 2], []]) | ANY, "Input type": st.just(["float", "c10::BFloat16", ""]) | ANY,
        "Concrete Inputs": st.just(["", "", "3", "7"]), "Collective name": st.just("allreduce") | st.none(),
        "Process Group Ranks": st.sampled_from(["[0, 1]", [0, 1], "[0, ...]"]), "Group size": st.integers(1, 8),
        "Process Group Name": st.just("0") | ANY, "dtype": st.sampled_from(["Float", "BFloat16"]),
        "Rank": st.integers(0, 1), "Dst Rank": st.integers(-1, 1),
        "nested": st.just({"a": [{"b": "} , {"}], "ts": 4}), "text": TEXT,
    },
)  # fmt: skip
EVENT = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "i", "M", "s", "f"]), "name": PLAIN | TEXT},
    optional={
        "cat": st.sampled_from(USED) | TEXT, "ts": TIME, "dur": TIME, "args": ARGS | st.none(),
        "pid": st.integers(0, 3) | st.sampled_from(["a", "Spans"]) | st.none(),
        "tid": st.integers(0, 3) | st.sampled_from(["stream 7", 7.5]), "id": st.integers(0, 9),
    },
)  # fmt: skip


def columns_of(text: bytes, *, native: bool) -> dict[str, Any] | str:
    """All that one block leaves behind, names as text; the kind of error where it is refused."""
    columns = EventColumns()
    decoder = Decoder(columns.scanner() if native else None)
    try:
        try:
            columns.add(decoder.decode(text))
        except InexactFloats:
            columns.add(decoder.redecode())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "refused"
    strings, tracks = list(columns.strings), list(columns.tracks)
    rows = [row for block in columns.blocks for row in zip(*(column.tolist() for column in block), strict=True)]
    given_ = columns.arguments
    order = sorted(range(len(rows)), key=lambda at: repr((rows[at][3:], strings[rows[at][1]], tracks[rows[at][2]])))

    def events(table: Sequence[Sequence[int]], texts: Sequence[int] = ()) -> list[str]:
        return sorted(
            repr((rows[row][3:], [strings[v] if at in texts else v for at, v in enumerate(values, 1)]))
            for row, *values in table
        )

    operators = np.concatenate(given_.operators, axis=1).T.tolist() if given_.operators else []
    return {
        "rows": [(rows[at][0], strings[rows[at][1]], tracks[rows[at][2]], *rows[at][3:]) for at in order],
        "collectives": events(given_.collective_rows().tolist(), (1, 6)), "operators": events(operators, (1, 2)),
        "copies": events(given_.copies), "messages": events(given_.messages),
        "memory": [block.tolist() for block in given_.memory], "ranks": given_.ranks_seen,
        "categories": +columns.categories, "defects": +columns.defects, "unknown": +columns.unknown_categories,
        "devices": {tracks[number]: place for number, place in columns.device_of.items()},
        "groups": Counter(map(repr, given_.groups.groups)), "unnamed": given_.groups.unnamed,
        "threads": columns.thread_names,
    }  # fmt: skip


@settings(max_examples=200)
@given(st.lists(EVENT, max_size=12), st.sampled_from([None, 1]), st.booleans())
def test_random_events_give_the_same_columns(events: list[Any], indent: int | None, ascii_only: bool) -> None:
    text = kt._NUMBER.sub(r"\1", json.dumps(events, indent=indent, ensure_ascii=ascii_only)).encode()
    assert columns_of(text, native=True) == columns_of(text, native=False)


def test_damaged_text_gives_the_same_columns_or_the_same_refusal() -> None:
    spans = [kt.span("aten::mm", 10 * n, 5, tid=n % 3, **{"External id": n, "Input Dims": [[n]]}) for n in range(30)]
    kernels = [kt.kernel('gemm<float, "x">', 10 * n, 7, correlation=n, **{"Collective name": "x"}) for n in range(10)]
    whole = kt.render(spans + kernels, "list")
    odd = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e", b"null", b"\\u12", b"\x00", b"\xff"]
    odd += [b"\n", "é".encode(), b'"args":', b'"ts":', b"1e5", b"9" * 20, b"true", b'"cat":"",', b'"ph":"M",', b"01"]
    refused = 0
    for seed in range(1500):
        draw = random.Random(seed)
        text = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(text))
            text[at : at + draw.choice((0, 1, 1, 20))] = draw.choice(odd)
        native, plain = columns_of(bytes(text), native=True), columns_of(bytes(text), native=False)
        assert native == plain, seed
        refused += native == "refused"
    assert 100 < refused < 1500


def test_ordinary_events_never_reach_python() -> None:
    events = [kt.span("aten::mm", n, 5) for n in range(50)]
    events += [kt.span(name, 1, 1, "python_function") for name in ("f", "Python GC")]
    events.append({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 4, "pid": 1, "tid": 1, "ts": 5})
    events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0, "args": {"name": "main"}})
    block = Decoder(EventColumns().scanner()).decode(kt.render(events, "list"))
    assert isinstance(block, Block) and (len(block), len(block.name)) == (54, 50)
    assert [event.name for event in block.rest if event] == ["Python GC", "thread_name"]


def test_the_smallest_texts_and_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (b"[]", b" [ ] ", b"[{}]", b'[{"ph":"X"}]', b"[null]", b'{"a":1}', b"", b"[", b"[{}] x"):
        assert columns_of(text, native=True) == columns_of(text, native=False), text
    monkeypatch.setenv("DDPROF_NATIVE", "0")
    assert EventColumns().scanner() is None
