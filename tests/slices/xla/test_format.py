"""XPlane profiles: a real one of JAX 0.10 on a CPU, and the planes of TPUs and GPUs made by hand."""

from pathlib import Path
from typing import Any

import pytest
from reading import names, traces

from ddprof.api import analyze
from ddprof.errors import NoUsableInput
from ddprof.model import Kind
from ddprof.readers import discover
from ddprof.report.export.protobuf import varint
from ddprof.slices.xla import format as xplane
from ddprof.slices.xla.messages import _messages

SAMPLE = Path(__file__).parent / "samples" / "jax_cpu.xplane.pb"
SIZE = "kind_src:1 size:4096 dest:0"
START_NS = 1_790_000_000_000_000_000


class PlaneMaker:
    def __init__(self, name: str) -> None:
        self.plane = _messages()(name=name.encode())
        self._names: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def line(self, name: str, events: list[tuple[Any, ...]], number: int = 0) -> "PlaneMaker":
        """Events as (name, start us, length us, {stat: value}); a value in bytes is stored as the name of a stat."""
        line = self.plane.lines.add(id=number, name=name.encode(), timestamp_ns=START_NS)
        for text, start_us, dur_us, *stats in events:
            key = self._key(self.plane.event_metadata, self._names, text)
            event = line.events.add(metadata_id=key, offset_ps=start_us * 10**6, duration_ps=dur_us * 10**6)
            for stat, value in (stats[0] if stats else {}).items():
                at = self._key(self.plane.stat_metadata, self._stats, stat)
                event.stats.add(metadata_id=at, **self._given(value))
        return self

    def _given(self, value: Any) -> dict[str, Any]:
        if isinstance(value, bytes):
            return {"ref_value": self._key(self.plane.stat_metadata, self._stats, value.decode())}
        return {"str_value": value.encode()} if isinstance(value, str) else {"int64_value": value}

    def _key(self, table: Any, known: dict[str, int], name: str) -> int:
        if name not in known:
            known[name] = len(known) + 1
            table.add(key=known[name]).value.name = name.encode()
        return known[name]


def host(steps: int = 4) -> PlaneMaker:
    marks = [("train", 1000 * n, 1000, {"step_num": n}) for n in range(steps)]
    return PlaneMaker("/host:CPU").line("python", [*marks, ("$train.py:12 main", 0, 1000 * steps)])


def tpu(index: int = 0, steps: int = 4) -> PlaneMaker:
    step = (("while.1", 100, 700), ("fusion.7", 100, 300), ("all-reduce.3", 400, 300))
    ops = [(name, 1000 * n + at, length) for n in range(steps) for name, at, length in step]
    plane = PlaneMaker(f"/device:TPU:{index}").line("XLA Ops", ops, 3)
    plane.line("XLA Modules", [("jit_step", 1000 * n, 900) for n in range(steps)], 2)
    return plane.line("Steps", [(str(n), 1000 * n, 900) for n in range(steps)], 1)


def write(folder: Path, *planes: PlaneMaker) -> Path:
    file, parts = folder / "host.xplane.pb", [maker.plane.SerializeToString() for maker in planes]
    file.write_bytes(b"".join(b"\n" + varint(len(part)) + part for part in parts))
    return file


def test_a_real_profile_of_jax() -> None:
    (trace,) = traces(SAMPLE)
    assert names(trace, Kind.ANNOTATION) == [f"ProfilerStep#{n}" for n in range(4)]
    operators = names(trace, Kind.CPU_OP)
    assert "PjitFunction(step)" in operators and operators.count("wrapped_tanh") == 4
    assert not any(name.startswith(("ThreadpoolListener", "end: ")) for name in operators)
    assert trace.device.kind == "cpu" and trace.has_base_time
    report = analyze(SAMPLE, cache=False).report
    assert report.steps.count == 3 and report.steps.source == "profiler_step" and report.run.source == "xplane"


def test_operations_of_a_tpu_once_and_without_what_holds_them(tmp_path: Path) -> None:
    (trace,) = traces(write(tmp_path, host(), tpu()))
    assert sorted(set(names(trace, Kind.KERNEL))) == ["all-reduce.3", "fusion.7"]
    assert trace.device.kind == "unknown" and len(trace.script_frames) == 1
    ledger = analyze(write(tmp_path, host(), tpu()), cache=False).report.ledger.job
    assert (ledger["compute"], ledger["comm_transfer"]) == (pytest.approx(300), pytest.approx(300))
    assert sum(value for cause, value in ledger.items() if cause != "wall_us") == pytest.approx(ledger["wall_us"])


def test_each_device_is_a_rank_and_has_the_steps_where_the_host_marks_none(tmp_path: Path) -> None:
    (trace,) = traces(write(tmp_path, PlaneMaker("/host:CPU").line("python", [("PjitFunction(step)", 0, 4000)]), tpu()))
    assert names(trace, Kind.ANNOTATION) == [f"ProfilerStep#{n}" for n in range(4)]
    found = discover([write(tmp_path, host(), tpu(0), tpu(1))])
    assert [source.part for source in found.sources] == ["device:TPU:0", "device:TPU:1"]
    assert [trace.identity.local_device for trace in traces(tmp_path)] == [0, 1]


@pytest.mark.parametrize(("details", "plane"), [(SIZE, "/host:CUPTI"), (SIZE.encode(), "/host:CPU")])
def test_streams_copies_and_launches_of_a_gpu(tmp_path: Path, details: str | bytes, plane: str) -> None:
    device = PlaneMaker("/device:GPU:0")
    device.line("Stream #13(Compute)", [("gemm", 200, 500, {"correlation_id": 7})], 13)
    device.line("Stream #14(MemcpyH2D)", [("MemcpyH2D", 0, 90, {"memcpy_details": details})], 14)
    device.line("XLA Ops", [("gemm", 200, 500)], 99)
    other = PlaneMaker("/device:GPU:1").line("Stream #13(Compute)", [("gemm", 200, 500, {"correlation_id": 8})], 13)
    calls = PlaneMaker(plane).line("77", [("cuLaunchKernel", 150, 10, {"correlation_id": at}) for at in (7, 8)])
    trace, _ = traces(write(tmp_path, host(), calls, device, other))
    assert names(trace, Kind.KERNEL) == ["gemm"] and names(trace, Kind.MEMCPY) == ["Memcpy HtoD"]
    assert trace.copies["size_bytes"].tolist() == [4096] and trace.device.kind == "cuda"
    linked = trace.events["correlation"][trace.events["kind"] == Kind.RUNTIME]
    assert linked.tolist() == trace.events["correlation"][trace.events["kind"] == Kind.KERNEL].tolist() == [7]


def test_no_advice_for_pytorch(tmp_path: Path) -> None:
    """A third of each step is an exposed all-reduce: a cause, and no setting that JAX has not."""
    report = analyze(write(tmp_path, host(12), tpu(0, 12), tpu(1, 12)), cache=False).report
    assert any(note.issue == "2 parts of files do not state their rank" for note in report.health)
    assert report.findings and all(finding.fixes == () for finding in report.findings) and len(report.clock.hosts) == 1
    text = " ".join(finding.summary for finding in report.findings)
    assert not any(word in text for word in ("torch", "DDP", "bucket", "DataLoader"))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_profile_that_is_cut_off_keeps_its_whole_planes(tmp_path: Path, share: float) -> None:
    content = write(tmp_path, host(), tpu(0), tpu(1)).read_bytes()
    file = tmp_path / "cut.xplane.pb"
    file.write_bytes(content[: int(len(content) * share)])
    (tmp_path / "host.xplane.pb").unlink()
    if share < 0.4:
        with pytest.raises(NoUsableInput, match="without a complete plane"):
            traces(file)
    else:
        found = traces(file)
        assert found and any("cut off or damaged" in note.issue for note in found[0].health)


def test_without_protobuf_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xplane, "can_decode", lambda: False)
    with pytest.raises(NoUsableInput, match=r"pip install ddprof\[xplane\]"):
        discover([SAMPLE])
