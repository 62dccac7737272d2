"""TensorFlow, where it is installed: its own profiler's trace of the planned steps, in the run folder."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest
from runs import SCRIPTS, good_run, read_json

from ddprof.analyzers.engine import Options, analyze

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("loop", ["fit", "loop"])
def test_tensorflow_keeps_its_own_trace(tmp_path: Path, loop: str) -> None:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:  # without an origin it is the folder beside this file
        pytest.skip("tensorflow is not installed")
    run = good_run(tmp_path, [sys.executable, str(SCRIPTS / "mirrored.py"), loop], "--skip", "3", "--steps", "4")
    (sidecar,) = run.sidecars
    assert sidecar["steps_total"] == 16 and sidecar["notes"] == []
    assert (sidecar["windows"][0]["first_step"], sidecar["windows"][0]["last_step"]) == (3, 6)
    (path,) = run.folder.glob("*.tf.trace.json.gz")
    names = Counter(event["name"] for event in read_json(path)["traceEvents"] if event["ph"] == "X")
    assert [names[f"ProfilerStep#{n}"] for n in range(2, 8)] == [0, 1, 1, 1, 1, 0]
    (report,) = analyze([run.folder], Options(cache=False))
    assert report.steps.count == 4
