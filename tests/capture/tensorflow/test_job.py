"""Ranks of a TensorFlow job, from the cluster's description."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddprof.capture.tensorflow.job import newest_profile, task_of_cluster, to_chrome


@pytest.mark.parametrize(
    ("task", "cluster", "expected"),
    [
        ({"type": "worker", "index": 1}, {"worker": ["a:1", "b:1"]}, (1, 2)),
        ({"type": "worker", "index": 0}, {"chief": ["a:1"], "worker": ["b:1"]}, (1, 2)),
        ({"type": "chief", "index": 0}, {"chief": ["a:1"], "worker": ["b:1"]}, (0, 2)),
        ({}, {}, (0, 1)),
    ],
)
def test_tensorflow_ranks_come_from_the_cluster(task: object, cluster: object, expected: tuple[int, int]) -> None:
    assert task_of_cluster(json.dumps({"task": task, "cluster": cluster})) == expected


def test_tensorflow_profiles_become_chrome_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [SimpleNamespace(metadata_id=n, offset_ps=2_500_000, duration_ps=1_000_000) for n in (0, 1)]
    line = SimpleNamespace(name="python", display_name="", timestamp_ns=4_000, events=events)
    metadata = {0: SimpleNamespace(name="MatMul"), 1: SimpleNamespace(name="ThreadpoolListener::Record")}
    host = SimpleNamespace(name="/host:CPU", id=7, lines=[line], event_metadata=metadata, stats=[])
    start = SimpleNamespace(metadata_id=0, uint64_value=123, int64_value=0)
    meta = {0: SimpleNamespace(name="profile_start_time")}
    task = SimpleNamespace(name="Task Environment", id=0, lines=[], stats=[start], stat_metadata=meta)
    module = SimpleNamespace(XSpace=lambda: SimpleNamespace(planes=[host, task], ParseFromString=lambda data: None))
    monkeypatch.setitem(sys.modules, "tensorflow.tsl.profiler.protobuf.xplane_pb2", module)
    path = tmp_path / "a" / "vm.xplane.pb"
    path.parent.mkdir()
    path.write_bytes(b"")
    assert newest_profile(tmp_path) == path
    trace = to_chrome(path)
    assert trace["profile_start_ns"] == 123
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert spans == [{"ph": "X", "name": "MatMul", "pid": 7, "tid": 0, "ts": 6.5, "dur": 1.0}]
