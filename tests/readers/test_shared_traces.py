"""Every real trace is readable or refused in one true line, and agrees with a plain reading of the same JSON."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddprof.errors import NoUsableInput
from ddprof.model import DEVICE_KINDS, Kind
from ddprof.readers import Source, discover, read

SOME = (
    pytest.param("single_rank/resnet50_v100_workers4/worker0.1623212756351.pt.trace.json.gz", marks=pytest.mark.slow),
    "single_rank/ddp_a100_collective_args/nccl_data.json.gz",
    "single_rank/ddp_v100_ns_timestamps/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "single_rank/qwen_mi300x/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "multi_rank/llama4_tp_rtx4090_2ranks/llama_trace_4layers1_with_annotations.json.gz",
    "cpu_gloo/fsdp2-tf-2r-base/rank1.0.pt.trace.json.gz",
)


def test_every_source_is_readable_or_refused_in_one_line(shared_dir: Path) -> None:
    inventory = discover([shared_dir / "traces"])
    assert len(inventory.runs) > 35
    for source in inventory.sources:
        try:
            trace = read(source)
        except NoUsableInput as error:
            assert "\n" not in str(error)
            continue
        events = trace.events
        assert (np.diff(events["ts_ns"]) >= 0).all() and (events["dur_ns"] >= 0).all()
        assert len(events) == 0 or events["track"].max() < len(trace.tracks)
        for table in (trace.collectives, trace.copies, trace.operators):
            assert len(table) == 0 or (table["row"].min() >= 0 and table["row"].max() < len(events))
        assert np.isin(events["kind"][trace.copies["row"]], (Kind.MEMCPY, Kind.MEMSET)).all()
        device_tracks = events["track"][np.isin(events["kind"], DEVICE_KINDS)]
        assert trace.format != "kineto" or (trace.tracks["stream"][device_tracks] >= 0).all()


@pytest.mark.parametrize("name", SOME)
def test_agrees_with_a_plain_reading(shared_dir: Path, name: str) -> None:
    path = shared_dir / "traces" / name
    trace = read(Source(str(path), "kineto"))
    with gzip.open(path) as file:
        document = json.load(file, parse_float=str)
    base = int(document.get("baseTimeNanoseconds", 0))
    spans = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    kept = [e for e in spans if e.get("cat") not in ("python_function", "Trace")]
    wanted = sorted((_ns(e["ts"]) + base, _ns(e["dur"]), e["name"]) for e in kept)
    columns = (trace.events[c].tolist() for c in ("ts_ns", "dur_ns", "name"))
    assert sorted((ts, dur, trace.strings[n]) for ts, dur, n in zip(*columns, strict=True)) == wanted
    stated = sorted(int(e["args"]["correlation"]) for e in kept if "correlation" in e.get("args", {}))
    assert sorted(c for c in trace.events["correlation"].tolist() if c >= 0) == [c for c in stated if c >= 0]


def _ns(value: Any) -> int:
    whole, _, fraction = str(value).partition(".")
    return int(whole) * 1000 + int((fraction + "000")[:3]) * (-1 if whole.startswith("-") else 1)


def test_oracle_samples(shared_dir: Path) -> None:
    for label, sources in discover([shared_dir / "oracle_samples"]).runs:
        traces = [read(s) for s in sources]
        stated = json.loads((shared_dir / "oracle_samples" / label / "label.json").read_text())
        assert [t.identity.rank for t in traces] == list(range(stated["world_size"]))
        assert not [h for t in traces for h in t.health if h.severity != "info"]
        assert all(len(t.collectives) and t.process_groups for t in traces)
