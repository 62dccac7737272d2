"""TensorFlow's trace viewer."""

from pathlib import Path

from reading import FORMATS, names, traces

from ddprof.model import Kind


def test_tensorflow_without_device_events_says_so(shared_dir: Path) -> None:
    (trace,) = traces(shared_dir / FORMATS / "tensorflow")
    assert "train_function" in names(trace, Kind.CPU_OP)
    assert any("8 devices but no device events" in h.issue for h in trace.health)
