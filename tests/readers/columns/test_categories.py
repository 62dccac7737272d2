"""Every vendor's categories, and those that nobody knows."""

from pathlib import Path

import kineto_text as kt
import pytest
from reading import times, trace_of

from ddprof.model import Kind

pytestmark = pytest.mark.usefixtures("decoding")


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        *((name, Kind.CPU_OP) for name in ("cpu_op", "Operator")),
        *((name, Kind.KERNEL) for name in ("kernel", "Kernel", "mtia_ccp_events")),
        *((name, Kind.MEMCPY) for name in ("gpu_memcpy", "Memcpy")),
        *((name, Kind.MEMSET) for name in ("gpu_memset", "Memset")),
        *((name, Kind.RUNTIME) for name in ("cuda_runtime", "Runtime", "cuda_driver", "xpu_runtime")),
        *(("privateuse1_runtime", Kind.RUNTIME), ("cuda_sync", Kind.SYNC), ("overhead", Kind.OVERHEAD)),
        *(("user_annotation", Kind.ANNOTATION), ("gpu_user_annotation", Kind.GPU_ANNOTATION)),
    ],
)
def test_categories_of_every_vendor(tmp_path: Path, category: str, kind: Kind) -> None:
    trace = trace_of(tmp_path / "t.json", [kt.span("x", 1000, 10, category)])
    assert trace.events["kind"].tolist() == [kind] and trace.top["categories"] == {category: 1}


def test_unknown_categories_are_work_or_named_and_of_frames_collections_alone_are_events(tmp_path: Path) -> None:
    on_device = {"cat": "new_accelerator", "pid": 0, "tid": 7, "device": 0, "stream": 7}
    work = [
        kt.span(name, 20 * at, 10, **on_device, correlation=at + 1) for at, name in enumerate(("gemm", "MemcpyAsync"))
    ]
    trace = trace_of(tmp_path / "t.json", [*work, kt.span("what", 40, 10, "mystery")])
    assert trace.events["kind"].tolist() == [Kind.KERNEL, Kind.MEMCPY]
    assert any("1 of 'mystery'" in h.issue for h in trace.health)
    frames = (("model.py(3): forward", 0, 99_999), ("model.py(3): forward", 200_000, 100_000), ("Python GC", 10, 50))
    events = [*(kt.span(*frame, "python_function") for frame in frames), kt.span("aten::mm", 20, 5)]
    trace = trace_of(tmp_path / "t.json", events)
    assert [row[0] for row in times(trace)] == ["Python GC", "aten::mm"] and len(trace.script_spans) == 1
    assert trace.top["categories"]["python_function"] == 3
