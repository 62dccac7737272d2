"""Values of any type and size in any field of an event: no traceback, no warning, and no more lost than that event."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from reading import traces

from ddprof.errors import DdprofError
from ddprof.model import RankTrace
from ddprof.readers.numbers import FARTHEST_NS, LARGEST_RANK

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
