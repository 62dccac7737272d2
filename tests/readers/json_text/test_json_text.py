"""Blocks are cut at event boundaries, damage costs the events it hits, an odd value no more than that of its event."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kineto_text as kt
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import broken, healthy, issues, traces

from ddprof.errors import DdprofError, NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers.json_text.salvage import Salvager
from ddprof.readers.json_text.stream import EventStream
from ddprof.readers.json_text.structure import ends
from ddprof.readers.numbers import FARTHEST_NS, LARGEST_RANK


@pytest.mark.usefixtures("decoding")
def test_two_ranks_in_one_file_cost_the_events_at_the_seam(shared_dir: Path) -> None:
    trace = broken(shared_dir, "two_ranks_interleaved_write.json.gz")
    assert "damaged text at byte 299," in issues(trace) and trace.identity.rank == 0
    assert len(trace.events) > 0.9 * len(healthy(shared_dir, 0).events)


EVENTS = st.lists(st.fixed_dictionaries({"ph": st.just("X"), "name": st.text(), "args": kt.JSON}), max_size=12)


def read_all(text: bytes, block: int = 50) -> tuple[list[Any], EventStream[list[Any], Any]]:
    decoder = msgspec.json.Decoder(list[Any])
    chunks: Iterator[bytes] = (text[i : i + block] for i in range(0, len(text), block))

    def typed(value: Any) -> Any:
        return value if isinstance(value, dict) and "ph" in value else None

    salvager: Salvager[Any] = Salvager(lambda one: typed(msgspec.json.decode(one)), typed)
    events = EventStream(chunks, decoder.decode, salvager)
    return [e for batch in events for e in batch], events


@given(EVENTS, st.integers(1, 400), st.sampled_from([None, 0, 2]), st.booleans(), kt.JSON)
def test_events_come_back(events: list[Any], block: int, indent: int | None, ascii_only: bool, other: Any) -> None:
    document = {"before": other, "traceEvents": events, "after": [{"x": other}]}
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    if b"\xed" in text:  # lone surrogates are not UTF-8: the strict decoder refuses them, salvage replaces them
        return
    found, source = read_all(text, block)
    assert found == events and source.damage.spots == 0 and not source.damage.truncated
    assert json.loads(source.header + b"]" + source.footer)["after"] == [{"x": other}]


@given(EVENTS.filter(bool), st.integers(1, 400))
def test_list_root_and_lines(events: list[Any], block: int) -> None:
    as_list, source = read_all(json.dumps(events).encode(), block)
    assert as_list == events and source.damage.spots == 0
    if len(events) > 1:
        as_lines, _ = read_all("\n".join(map(json.dumps, events)).encode(), block)
        assert as_lines == events


def test_marks_and_boundaries_in_pieces_or_inside_strings_are_none() -> None:
    event = {"ph": "X", "name": "a"}
    for block in (1, 2, 3, 4, 40):
        assert read_all(b"\xef\xbb\xbf" + json.dumps({"traceEvents": [event]}).encode(), block)[0] == [event]
    document = {"note": '"traceEvents": [', "traceEvents": [event]}
    assert read_all(json.dumps(document).encode(), 7)[0] == [event]
    events = [{"ph": "X", "name": 'a "}, {" b'}, {"ph": "X", "name": "}, {"}, {"ph": "X", "name": "c\\"}]
    for block in range(1, 120):
        found, source = read_all(json.dumps({"traceEvents": events}).encode(), block)
        assert found == events and source.damage.spots == 0


@pytest.mark.parametrize("cut", range(30, 200, 7))
def test_truncation_keeps_every_complete_event(cut: int) -> None:
    events = [{"ph": "X", "name": f"event {i}", "args": {"i": i}} for i in range(8)]
    text = json.dumps({"traceEvents": events}).encode()
    found, source = read_all(text[:cut], 40)
    assert found == events[: len(found)]
    ends = [text.index(whole) + len(whole) for whole in (json.dumps(event).encode() for event in events)]
    assert len(found) == sum(end <= cut for end in ends) and source.damage.truncated


def test_damage_in_the_middle_costs_the_events_it_hits() -> None:
    events = [{"ph": "X", "name": f"event {i}", "args": {"text": "x"}} for i in range(50)]
    text = json.dumps({"traceEvents": events, "baseTimeNanoseconds": 5}).encode()
    found, source = read_all(text[:1000] + text[1030:], 256)
    assert len(found) in (48, 49) and all(e in events for e in found)
    assert source.damage.spots == 1 and abs((source.damage.first_offset or 0) - 1000) < 120
    assert json.loads(source.header + b"]" + source.footer) == {"traceEvents": [], "baseTimeNanoseconds": 5}
    assert read_all(b'{"a": "x, "traceEvents": [{"ph": "X"}]}')[0] == [{"ph": "X"}]  # of a header, too


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((b"", "empty"), (b"<html>", "not JSON")),
        *((odd, "without a list") for odd in (b'{"a": 1}', b'{"traceEvents": 5}')),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(text: bytes, message: str) -> None:
    with pytest.raises(NoUsableInput, match=message):
        read_all(text)


@given(kt.JSON)
def test_the_end_of_a_value(value: Any) -> None:
    text = json.dumps([value]).encode()
    assert ends(text[1:])[0] == len(text) - 2


ODD = ("NaN", "1e400", "1e999999999", "9223372036854775807", "-9223372036854775808", "9" * 5000, "null", "true")
ODD += ("[1]", "{}", '"\\ud800"', "-0.5", '"' + "7" * 20 + '"', "[" * 3000 + "]" * 3000)


def horovod() -> tuple[str, list[Any]]:
    events: list[Any] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "grad"}}]
    for t in range(0, 6000, 1000):
        events += [{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": t, "pid": 1}]
        events += [{"ph": "X", "name": str(rank), "ts": t + 10 * rank, "pid": 1, "dur": 0} for rank in range(4)]
        events += [{"ph": "E", "ts": t + 50, "pid": 1}, {"ph": "B", "name": "ALLREDUCE", "ts": t + 60, "pid": 1}]
        events += [{"ph": "E", "ts": t + 200, "pid": 1}]
    return "h.json", events


def chrome() -> tuple[str, list[Any]]:
    names = [{"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "/device:GPU:0"}}]
    span = {"ph": "X", "cat": "kernel", "pid": 7, "tid": 2, "dur": 50}
    spans = [{**span, "name": f"k{n}", "ts": 100 * n} for n in range(9)]
    call = {"name": "call", "pid": 1, "tid": 1}
    pairs = [{**call, "ph": ph, "ts": ts} for ts, ph in ((1, "B"), (9, "E"), (20, "B"), (15, "E"))]
    return "c.json", [*names, *spans, *pairs]


def op_timeline() -> tuple[str, list[Any]]:
    workers = [{"pid": dp, "tid": pp} for dp in range(2) for pp in range(2)]
    names = [{**w, "ph": "M", "name": "thread_name", "args": {"name": f"PP rank {w['tid']}"}} for w in workers]
    compute = {"ph": "X", "name": "forward-compute", "dur": 5.5}
    spans = [{**w, **compute, "ts": 1000 * s + 10, "args": {"step": s, "mb_id": 1}} for s in range(4) for w in workers]
    return "o.json", [*names, *spans]


def nccl() -> tuple[str, list[Any]]:
    records: list[Any] = []
    for n in range(6):
        timed = {"extCorrId": n, "start": {"ts": 100 * n, "pid": 4}, "stop": {"ts": 100 * n + 30}}
        details = {"func": "AllReduce", "count": 64, "dtype": "ncclFloat32", "nranks": 2, "seq": n}
        of_call = {"recordType": "event", "type": "ncclProfileColl", "commId": "c", "rank": n % 2}
        of_kernel = {"recordType": "event", "type": "KERNEL", "gpuUuid": "g", "name": "k", "deviceId": 0}
        records += [{**of_call, **timed, "details": details}, {**of_kernel, **timed}]
    return "n.jsonl", records


def fields(value: Any) -> list[tuple[Any, ...]]:
    """The way to each value inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, inner in items for way in ((key,), *((key, *rest) for rest in fields(inner)))]


def damaged(value: Any, way: tuple[Any, ...]) -> Any:
    if not way:
        return "@odd@"
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[way[0]] = damaged(value[way[0]], way[1:])
    return copied


@pytest.mark.parametrize("make", [horovod, chrome, op_timeline, nccl])
def test_an_odd_value_costs_no_more_than_its_event(tmp_path: Path, make: Any) -> None:
    name, events = make()

    def read(texts: list[str]) -> tuple[list[RankTrace], int]:
        """The traces of these events, and how many events they have."""
        (tmp_path / name).write_text("\n".join(texts) if name.endswith("jsonl") else f"[{','.join(texts)}]")
        ranks = traces(tmp_path / name)
        return ranks, sum(len(trace.events) for trace in ranks)

    _, before = read([json.dumps(event) for event in events])
    assert before
    for way, at in {way: at for at, event in enumerate(events) for way in fields(event)}.items():
        for odd in ODD:
            changed = [*events[:at], damaged(events[at], way), *events[at + 1 :]]
            texts = [json.dumps(event).replace('"@odd@"', odd) for event in changed]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    ranks, after = read(texts)
                except DdprofError as error:
                    raise AssertionError((way, odd[:30])) from error
            for trace in ranks:
                assert (trace.events["dur_ns"] >= 0).all() and (trace.identity.world_size or 1) <= LARGEST_RANK
                if len(trace.events):
                    assert int(trace.events["ts_ns"].max()) - int(trace.events["ts_ns"].min()) <= 2 * FARTHEST_NS
            assert after >= before - 8, (way, odd[:30])
