"""Lanes are named as in the file."""

import gzip
import json
from pathlib import Path

from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.host_lanes import stream_words, thread_words
from ddprof.dashboard.timeline.lane_info import timeline_info
from ddprof.model import TRACKS
from ddprof.tables import NULL

WORDS = {"pid": ["0", "1", "9"], "tid": ["7", "20", "41"], "name": ["", "", "pt_autograd_0"]}
TWO_DEVICES = TRACKS.table({**WORDS, "device": [0, 1, NULL], "stream": [7, 20, NULL]})


def test_words_of_threads_categories_and_streams_of_the_file(straggler: OpenRun, straggler_traces: Path) -> None:
    assert thread_words(TWO_DEVICES, 2) == "pt_autograd_0 (thread 41)"
    assert thread_words(TWO_DEVICES, 1) == "thread 20" and thread_words(TWO_DEVICES, 9) == "thread not recorded"
    assert stream_words(TWO_DEVICES, 1) == "device 1 stream 20"
    assert stream_words(TWO_DEVICES.take([0, 2]), 0) == "stream 7"
    categories = {c["words"]: c for c in timeline_info(straggler.timeline)["categories"]}
    assert [words for words, c in categories.items() if c["texture"]] == ["waiting for late ranks"]
    assert categories["other idle"]["idle"] and not categories["compute"]["idle"]
    assert not categories["waiting for late ranks"]["idle"] and not categories["forward"]["idle"]
    file = next(path for path in sorted(straggler_traces.iterdir()) if "json" in path.name)
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    recorded = {e["args"]["stream"] for e in json.loads(text)["traceEvents"] if e.get("cat") == "kernel"}
    rank = straggler.timeline.lanes[0].rank
    labels = [lane.label for lane in straggler.timeline.lanes if lane.kind == "stream" and lane.rank == rank]
    assert recorded <= {int(label.split(":")[0].split()[1]) for label in labels}
